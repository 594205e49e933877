"""How tasks ended is remembered: for how many, of which, and what is told of it."""

import pytest

from protocol import RUN, Fleet, one_tier
from rota.protocol.ends import Ended, Run
from rota.protocol.outcome import CancelledOutcome, DeadOutcome, Done, Expired, Outcome, Release, RetryOutcome
from rota.protocol.store import Announced, Blame
from rota.protocol.views import TaskState
from rota.protocol.wire import pack

Q = one_tier("q")


def status(fleet: Fleet, task_id: str) -> TaskState:
    return fleet.run(fleet.store.status(task_id))


def end_of(fleet: Fleet, task_id: str) -> Ended:
    ended = status(fleet, task_id).ended
    assert ended is not None
    return ended


def keep(fleet: Fleet, number: int) -> None:
    fleet.run(fleet.store.announce("node", b"{}", 60_000, ["q"], Announced(number)))


def end_all(fleet: Fleet, *ids: str) -> None:
    """Enqueue and finish these, in one turn."""
    fleet.push(*ids)
    owner = fleet.register()
    claims = fleet.turn(owner, Q, limit=len(ids)).claims
    fleet.turn(owner, Q, *((claim, Done()) for claim in claims), limit=0)


@pytest.mark.parametrize(
    ("outcome", "how"), [(Done(), "done"), (Expired(), "expired"), (CancelledOutcome(), "cancelled")]
)
def test_an_end_is_remembered_with_its_time_its_owner_and_the_account_of_its_run(
    fleet: Fleet, outcome: Outcome, how: str
) -> None:
    owner, claim = fleet.claimed("a")
    before = fleet.now_us()
    fleet.turn(owner, Q, (claim, outcome))
    ended = end_of(fleet, "a")
    assert (status(fleet, "a").state, ended.how, ended.owner, ended.entry, ended.run) == (
        how, how, owner, claim.entry, RUN,
    )  # fmt: skip
    assert before <= ended.at_us <= fleet.now_us()


def test_an_end_of_which_the_worker_gives_no_account_is_not_remembered(fleet: Fleet) -> None:
    fleet.push("a", "b")
    owner = fleet.register()
    first, second = fleet.turn(owner, Q, limit=2).claims
    fleet.turn(owner, Q, (first, Done()), (second, Expired()), account=b"")
    assert [status(fleet, task_id).state for task_id in ("a", "b")] == ["unknown"] * 2
    assert not fleet.redis.exists(fleet.keys.ended)


def test_of_what_came_back_the_record_has_the_attempts_before(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    fleet.exit(owner, ["a"])
    owner = fleet.register()
    (claim,) = fleet.turn(owner, Q).claims
    fleet.turn(owner, Q, (claim, Done()))
    assert (end_of(fleet, "a").entry.crashes, end_of(fleet, "a").earlier) == (1, (b'{"reason":"crash"}',))


def test_what_a_dead_worker_had_finished_is_remembered_as_its_own(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    fleet.retire(owner, [], (claim, Done()))
    assert (end_of(fleet, "a").owner, end_of(fleet, "a").run) == (owner, RUN)


@pytest.mark.parametrize("due", ["", "+60000000"])
def test_a_task_that_is_cancelled_while_it_waits_ends_then(fleet: Fleet, due: str) -> None:
    fleet.push("a", due=due)
    fleet.run(fleet.store.cancel("a"))
    ended = end_of(fleet, "a")
    assert (status(fleet, "a").state, ended.how, ended.owner) == ("cancelled", "cancelled", "")
    assert (ended.entry.queue, ended.run) == ("q", Run(name="work"))
    fleet.turn(fleet.register(), Q)  # drops what stands in a lane: its end is not another
    assert end_of(fleet, "a") == ended


@pytest.mark.parametrize("outcome", [RetryOutcome(0), DeadOutcome(b"{}"), Release()])
def test_a_task_that_is_cancelled_while_it_runs_ends_with_its_attempt(fleet: Fleet, outcome: Outcome) -> None:
    owner, claim = fleet.claimed("a")
    fleet.run(fleet.store.cancel("a"))
    assert status(fleet, "a").state == "running"
    fleet.turn(owner, Q, (claim, outcome))
    assert (end_of(fleet, "a").how, end_of(fleet, "a").owner) == ("cancelled", owner)


def test_a_cancelled_task_ends_with_the_life_of_its_worker(fleet: Fleet) -> None:
    owner, _ = fleet.claimed("a")
    fleet.run(fleet.store.cancel("a"))
    fleet.exit(owner, ["a"])
    assert (end_of(fleet, "a").how, end_of(fleet, "a").entry.crashes) == ("cancelled", 1)


def test_a_purge_is_remembered_but_not_of_what_had_been_cancelled(fleet: Fleet) -> None:
    fleet.push("a", "b")
    fleet.run(fleet.store.cancel("a"))
    fleet.run(fleet.store.purge("q"))
    assert [end_of(fleet, task_id).how for task_id in ("a", "b")] == ["cancelled", "purged"]
    assert end_of(fleet, "b").run == Run(name="work")


def test_at_least_the_last_so_many_ends_are_known_and_at_most_twice_as_many(fleet: Fleet) -> None:
    keep(fleet, 3)
    ids = [f"t{number}" for number in range(8)]
    for task_id in ids:
        end_all(fleet, task_id)
    known = [task_id for task_id in ids if status(fleet, task_id).state == "done"]
    assert known == ids[-5:]
    end_all(fleet, *(f"u{number}" for number in range(7)))
    assert fleet.redis.hlen(fleet.keys.ended_before) == 2 + 7
    assert not fleet.redis.exists(fleet.keys.ended)


def test_with_0_nothing_is_remembered_and_what_was_is_dropped(fleet: Fleet) -> None:
    keep(fleet, 2)
    end_all(fleet, "a")
    end_all(fleet, "b")
    end_all(fleet, "c")
    keep(fleet, 0)
    end_all(fleet, "d")
    assert not fleet.redis.exists(fleet.keys.ended, fleet.keys.ended_before)
    assert [status(fleet, task_id).state for task_id in "abcd"] == ["unknown"] * 4


def test_ten_thousand_are_remembered_before_a_master_has_said_how_many(fleet: Fleet) -> None:
    fleet.redis.hset(fleet.keys.ended, mapping={f"x{number}": "-" for number in range(9_998)})
    end_all(fleet, "a")
    assert fleet.redis.hlen(fleet.keys.ended) == 9_999
    end_all(fleet, "b")
    assert fleet.redis.hlen(fleet.keys.ended_before) == 10_000


@pytest.mark.parametrize("words", ["nan", "1e300", "-1", "many"])
def test_no_foreign_number_makes_the_memory_unbounded(fleet: Fleet, words: str) -> None:
    fleet.redis.hset(fleet.keys.meta, "ended_keep", words)
    fleet.redis.hset(fleet.keys.ended, mapping={f"x{number}": "-" for number in range(9_999)})
    end_all(fleet, "a")
    assert fleet.redis.hlen(fleet.keys.ended) in {0, 9_999}


@pytest.mark.parametrize("foreign", ["ended", "ended_before", "meta"])
def test_what_stands_in_the_place_of_the_memory_keeps_no_task_from_ending(fleet: Fleet, foreign: str) -> None:
    fleet.redis.set(getattr(fleet.keys, foreign), "text")
    end_all(fleet, "a")
    audit = fleet.run(fleet.store.audit())
    assert (audit.done, audit.live, audit.missing) == (1, 0, 0)
    assert status(fleet, "a").state in {"done", "unknown"}


def test_an_id_that_lives_again_is_told_as_it_stands(fleet: Fleet) -> None:
    end_all(fleet, "a")
    fleet.push("a")
    assert (status(fleet, "a").state, status(fleet, "a").ended) == ("ready", None)


def test_a_result_is_told_with_the_end_and_outlives_the_memory_of_it(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    fleet.turn(owner, Q, (claim, Done(b'{"a": [1, 2]}', 60_000)))
    assert (end_of(fleet, "a").how, status(fleet, "a").result) == ("done", b'{"a": [1, 2]}')
    assert 0 < fleet.redis.pttl(fleet.keys.result("a")) <= 60_000
    keep(fleet, 0)
    assert (status(fleet, "a").state, status(fleet, "a").ended, status(fleet, "a").result) == (
        "done", None, b'{"a": [1, 2]}',
    )  # fmt: skip


@pytest.mark.parametrize(
    "outcome", [Done(refused="too large"), Expired(), CancelledOutcome(), RetryOutcome(0), DeadOutcome(b"{}")]
)
def test_the_result_of_an_earlier_life_of_its_id_is_none_of_this_one(fleet: Fleet, outcome: Outcome) -> None:
    owner, claim = fleet.claimed("a")
    fleet.turn(owner, Q, (claim, Done(b"1", 60_000)), limit=0)
    fleet.push("a")
    (claim,) = fleet.turn(owner, Q).claims
    fleet.turn(owner, Q, (claim, outcome), limit=0)
    if isinstance(outcome, RetryOutcome):
        fleet.run(fleet.store.cancel("a"))
    assert not fleet.redis.exists(fleet.keys.result("a"))


def test_an_earlier_life_of_an_id_is_not_told_for_one_that_is_not_remembered(fleet: Fleet) -> None:
    end_all(fleet, "a", "b")
    fleet.push("a", "b")
    owner = fleet.register()
    first, second = fleet.turn(owner, Q, limit=2).claims
    fleet.turn(owner, Q, (first, Done()), (second, DeadOutcome(b"{}")), account=b"")
    fleet.run(fleet.store.purge_dead(["b"]))
    assert [status(fleet, task_id).state for task_id in ("a", "b")] == ["unknown"] * 2


def test_a_task_that_is_cancelled_between_its_attempts_is_told_with_them(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    fleet.turn(owner, Q, (claim, RetryOutcome(0, b'{"reason":"failed"}')), limit=0)
    fleet.promote()
    fleet.run(fleet.store.cancel("a"))
    assert end_of(fleet, "a").earlier == (b'{"reason":"failed"}',)


def test_a_time_for_a_result_that_is_no_number_of_milliseconds_keeps_no_task_from_ending(fleet: Fleet) -> None:
    """As in the slot of a worker whose task wrote there."""
    owner, claim = fleet.claimed("a")
    fleet.run(fleet.store.retire_exited(owner, Blame(), pack((claim.entry.text, "done", "", b"0.5 1"))))
    audit = fleet.run(fleet.store.audit())
    assert (audit.done, audit.live, status(fleet, "a").result) == (1, 0, None)


def test_of_a_dead_task_it_is_told_when_it_died(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    fleet.turn(owner, Q, (claim, DeadOutcome(b"{}")))
    assert 0 <= fleet.now_us() - status(fleet, "a").ended_us < 60_000_000
    assert not fleet.redis.exists(fleet.keys.ended)


def test_a_full_server_remembers_all_the_same(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    fleet.redis.config_set("maxmemory", 1)
    try:
        fleet.turn(owner, Q, (claim, Done()))
    finally:
        fleet.redis.config_set("maxmemory", 0)
    assert end_of(fleet, "a").run == RUN
