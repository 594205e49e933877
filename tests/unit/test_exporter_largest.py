"""The queues of a pattern that the exporter shows by name, which are the largest ones. All other queues of the pattern
are shown as one sum.
"""

from collections.abc import Iterable
from dataclasses import replace

from rota.protocol.views import QueueState
from rota.telemetry.metrics import OTHER
from rota_supervisor.exporter.queue_watch import MOST_UNMATCHED, Largest


def queue(name: str, ready: int = 0, accepted: int = 0, age_us: int = 0, *, served: bool = True) -> QueueState:
    return QueueState(name, ready, 0, 0, 0, 0, accepted, age_us, 0, paused=False, served=served)


def tenants(sizes: Iterable[int]) -> list[QueueState]:
    return [queue(f"tenant-{number:05}", size, size, age_us=size) for number, size in enumerate(sizes)]


def test_only_the_largest_queues_of_a_pattern_are_shown_by_name() -> None:
    largest = Largest(["default", "tenant-*"], top=2)
    shown = largest.choose([queue("default", 1), *tenants([5, 9, 7, 1, 0])], all_seen=True)

    assert [(each.queue, each.ready) for each in shown.queues] == [
        ("default", 1),
        ("tenant-00001", 9),
        ("tenant-00002", 7),
        (OTHER, 6),
    ]
    assert shown.queues[-1].oldest_ready_age_us == 5, "the longest, not the sum"


def test_ten_thousand_queues_of_a_pattern_need_no_more_rows_than_three() -> None:
    rows = [len(Largest(["tenant-*"], top=2).choose(tenants(range(n)), all_seen=True).queues) for n in (3, 10_000)]
    assert rows == [3, 3]


def test_a_queue_shown_by_name_stays_until_it_is_much_smaller_than_others() -> None:
    largest = Largest(["tenant-*"], top=2)

    def shown(*sizes: int) -> list[str]:
        return [each.queue[-1] for each in largest.choose(tenants(sizes), all_seen=True).queues[:-1]]

    assert shown(9, 8, 1, 1, 1) == ["0", "1"]
    assert sorted(shown(3, 3, 4, 4, 1)) == ["0", "1"], "among the four largest"
    assert sorted(shown(0, 3, 4, 4, 4)) == ["1", "2"], "no more"


def test_without_patterns_every_queue_is_shown_by_name() -> None:
    shown = Largest(["default"], top=2).choose([queue("default"), queue("strange", 3, 4)], all_seen=True)

    assert [each.queue for each in shown.queues] == ["default", "strange"]
    assert shown.accepted == {"default": 0, "strange": 4}


def test_queues_outside_the_tiers_are_limited_with_unserved_ones_first() -> None:
    strange = [queue(f"strange-{number}", served=True) for number in range(MOST_UNMATCHED)]
    shown = Largest(["default"], top=2).choose(
        [*strange, queue("forgotten", 1, served=False), queue("default")], all_seen=True
    )

    assert [each.queue for each in shown.queues[:2]] == ["default", "forgotten"]
    assert len(shown.queues) == MOST_UNMATCHED + 1


def test_summed_queues_count_as_unserved_if_any_with_tasks_is_unserved() -> None:
    largest = Largest(["tenant-*"], top=0)
    [rest] = largest.choose([queue("tenant-1", 5), queue("tenant-2", 0, served=False)], all_seen=True).queues
    assert rest.served
    [rest] = largest.choose([queue("tenant-1", 5), queue("tenant-2", 1, served=False)], all_seen=True).queues
    assert not rest.served


def test_the_accepted_count_never_decreases_while_queues_come_and_go() -> None:
    largest = Largest(["tenant-*"], top=2)

    def accepted(*states: QueueState, all_seen: bool = True) -> int:
        return largest.choose(states, all_seen=all_seen).accepted["tenant-*"]

    one, two = queue("tenant-1", accepted=10), queue("tenant-2", accepted=5)
    assert accepted(queue("tenant-*"), one, two) == 15
    assert accepted(queue("tenant-*"), one) == 15, "one was forgotten between two batches"
    assert accepted(queue("tenant-*", accepted=5), one) == 15, "it counts for the pattern"
    assert accepted(queue("tenant-*", accepted=5), queue("tenant-1", accepted=11)) == 16
    assert accepted(queue("tenant-*", accepted=5), all_seen=False) == 16, "not all of them were read"


def test_each_shown_queue_has_its_pattern_and_each_pattern_its_oldest_age() -> None:
    states = [*tenants([3, 9]), replace(queue("tenant-paused", 1, age_us=99), paused=True), queue("eu-1", 5, age_us=4)]
    shown = Largest(["tenant-*", "eu-*"], top=2).choose(states, all_seen=True)

    assert shown.pattern_of == {"tenant-00001": "tenant-*", "eu-1": "eu-*", OTHER: OTHER}
    assert shown.oldest_ready_us == {"tenant-*": 9, "eu-*": 4}
    assert shown.queues[-1].paused, "one of the rest is"
