"""Legacy lists. Items that producers push to their own lists and sorted sets become tasks. Their content does not
change.
"""

import json
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from rota.protocol.replies import AdoptedLegacy, LegacySource
from support.protocol import SECOND_US, Fleet, body_of, one_tier

YEAR_SECONDS: Final = 365 * 86_400
Named = Callable[[str], str]


@pytest.fixture
def named(fleet: Fleet, namespace: str) -> Iterator[Named]:
    """Yield a function that makes a key name unique to this test. Legacy keys are outside the namespace, so another
    test might use the same name.
    """
    used: set[str] = set()

    def key(name: str) -> str:
        used.add(f"{name}@{namespace}")
        return f"{name}@{namespace}"

    yield key
    for name in used:
        fleet.redis.delete(name)


def adopt(fleet: Fleet, *sources: LegacySource, limit: int = 100, poller: str = "one") -> AdoptedLegacy:
    return fleet.run(fleet.store.adopt_legacy(poller, limit, sources))


def schedule(fleet: Fleet, key: str, seconds: float, member: str | bytes) -> float:
    """Add an item that is due in this many seconds. A plain ZADD is used, which a program in any language can send.
    Returns the score.
    """
    score = fleet.now_us() / SECOND_US + seconds
    fleet.raw("ZADD", key, repr(score), member)
    return score


def balanced(fleet: Fleet) -> bool:
    return fleet.run(fleet.store.audit()).missing == 0


def test_list_items_become_tasks_with_their_ids_in_order(fleet: Fleet, named: Named) -> None:
    source = LegacySource(named("queue:mail"), "q")
    fleet.redis.rpush(source.key, body_of("a"), body_of("b", "mail"), '["work",[1]]')
    adopted = adopt(fleet, source)
    assert [tuple(found) for found in adopted.sources] == [(3, 0, "")]
    assert (adopted.more, adopted.dead) == (False, ())
    claims = fleet.turn(fleet.register(), one_tier("q"), limit=5).claims
    assert [claim.body for claim in claims] == [body_of("a"), body_of("b", "mail"), b'["work",[1]]']
    assert [claim.entry.id for claim in claims[:2]] == ["a", "b"]
    assert {claim.entry.due_us for claim in claims} == {adopted.now_us}
    assert balanced(fleet)


def test_adopting_an_item_wakes_a_worker_and_lists_its_queue(fleet: Fleet, named: Named) -> None:
    source = LegacySource(named("queue:mail"), "q")
    fleet.redis.rpush(source.key, body_of("a"))
    adopt(fleet, source)
    assert fleet.bell() == 1
    assert fleet.redis.smembers(fleet.keys.queues) == {"q"}


def test_sorted_set_items_are_adopted_when_due_in_due_order(fleet: Fleet, named: Named) -> None:
    source = LegacySource(named("delayed:"))
    late = schedule(fleet, source.key, -1, body_of("late"))
    later = schedule(fleet, source.key, -2, body_of("later"))
    due_us = round(schedule(fleet, source.key, 60, body_of("waits")) * SECOND_US)
    adopted = adopt(fleet, source)
    assert [tuple(found) for found in adopted.sources] == [(2, 1, "")]
    assert adopted.next_due_us == pytest.approx(due_us, abs=1)
    claims = fleet.turn(fleet.register(), one_tier("q"), limit=5).claims
    assert [claim.entry.id for claim in claims] == ["later", "late"]
    assert [claim.entry.due_us for claim in claims] == pytest.approx([later * SECOND_US, late * SECOND_US], abs=1)
    assert {claim.entry.kind for claim in claims} == {"d"}
    assert balanced(fleet)


def test_producers_can_reschedule_or_remove_items_not_yet_due(fleet: Fleet, named: Named) -> None:
    source = LegacySource(named("delayed:"))
    schedule(fleet, source.key, 60, body_of("a"))
    adopt(fleet, source)
    schedule(fleet, source.key, -1, body_of("a"))
    assert adopt(fleet, source).sources[0].taken == 1
    schedule(fleet, source.key, 60, body_of("b"))
    adopt(fleet, source)
    assert fleet.redis.zrem(source.key, body_of("b").decode()) == 1


def test_an_item_may_be_the_argument_of_a_task(fleet: Fleet, named: Named) -> None:
    source = LegacySource(named("queue:email"), "q", "send")
    mail = '{"to": 17, "time": 1.5}'
    fleet.redis.rpush(source.key, mail)
    adopt(fleet, source)
    [claim] = fleet.turn(fleet.register(), one_tier("q")).claims
    assert json.loads(claim.body) == ["send", [json.loads(mail)]]


def test_a_due_legacy_item_goes_to_the_queue_that_its_list_feeds(fleet: Fleet, named: Named) -> None:
    name = named("queue:mail").removeprefix("queue:").replace("@", "-")
    sources = LegacySource(f"queue:{name}", "q"), LegacySource(named("delayed:"))
    schedule(fleet, sources[1].key, -1, body_of("a", name))
    adopt(fleet, *sources)
    assert fleet.claim(fleet.register(), one_tier("q")) == ["a"]


def test_an_item_with_a_live_id_gets_a_new_id(fleet: Fleet, named: Named) -> None:
    source = LegacySource(named("queue:mail"), "q")
    fleet.redis.rpush(source.key, body_of("a"), body_of("a"))
    adopt(fleet, source)
    first, second = fleet.lane()
    assert first == "a"
    assert second.startswith("adopted-")
    assert balanced(fleet)


def test_invalid_items_become_dead_tasks_and_do_not_block_others(fleet: Fleet, named: Named) -> None:
    jobs, delayed = LegacySource(named("jobs")), LegacySource(named("delayed:"))
    fleet.redis.rpush(jobs.key, b"\xff not json", '["work",[]]', body_of("good"))
    fleet.raw("ZADD", delayed.key, 1_795_252_610_250, body_of("far"))
    adopted = adopt(fleet, jobs, delayed)
    assert sorted(adopted.dead) == [("q", "too_far_ahead"), ("unknown", "garbage"), ("unknown", "garbage")]
    assert fleet.lane() == ["good"]
    found = fleet.run(fleet.store.dead_page(0, 10)).tasks
    assert {task.body for task in found} == {b"\xff not json", b'["work",[]]', body_of("far")}
    reasons = {json.loads(task.death_record)["reason"]: json.loads(task.death_record)["error"] for task in found}
    assert "names a queue" in reasons["garbage"]
    assert "milliseconds?" in reasons["too_far_ahead"]
    assert adopt(fleet, jobs, delayed).sources == ((0, 0, ""), (0, 0, ""))
    assert balanced(fleet)


def test_an_unreadable_legacy_list_is_reported_and_does_not_block_others(fleet: Fleet, named: Named) -> None:
    broken, good = LegacySource(named("queue:hash"), "q"), LegacySource(named("queue:good"), "q")
    fleet.redis.hset(broken.key, "a", "b")
    fleet.redis.rpush(good.key, body_of("a"))
    of_broken, of_good = adopt(fleet, broken, good).sources
    assert (of_good.taken, of_good.fault) == (1, "")
    assert "it is a hash" in of_broken.fault
    assert fleet.redis.hgetall(broken.key) == {"a": "b"}


def test_a_long_legacy_list_leaves_room_for_others_and_keeps_its_order(fleet: Fleet, named: Named) -> None:
    long, short = LegacySource(named("queue:long"), "q"), LegacySource(named("queue:short"), "short")
    fleet.redis.rpush(long.key, *(body_of(f"t{number}") for number in range(25)))
    fleet.redis.rpush(short.key, *(body_of(f"s{number}") for number in range(3)))
    adopted = adopt(fleet, long, short, limit=10)
    assert [(found.taken, found.left) for found in adopted.sources] == [(5, 20), (3, 0)]
    assert adopted.more
    assert adopt(fleet, long, short, limit=10).more
    assert not adopt(fleet, long, short, limit=10).more
    assert fleet.lane() == [f"t{number}" for number in range(25)]


@pytest.mark.parametrize("key", ["queues", "tasks", "pulse"])
def test_a_key_of_another_type_fails_the_adoption_without_changes(fleet: Fleet, named: Named, key: str) -> None:
    source = LegacySource(named("queue:mail"), "q")
    fleet.redis.rpush(source.key, body_of("a"))
    fleet.redis.set(getattr(fleet.keys, key), "something else")
    before = fleet.snapshot()
    with pytest.raises(Exception, match="WRONGTYPE"):
        adopt(fleet, source)
    assert fleet.snapshot() == before
    assert fleet.redis.lrange(source.key, 0, -1) == [body_of("a").decode()]


def test_items_for_an_unusable_lane_become_dead_tasks(fleet: Fleet, named: Named) -> None:
    source = LegacySource(named("queue:mail"), "q")
    fleet.redis.rpush(source.key, body_of("a"))
    fleet.redis.set(fleet.keys.ready_lane("q"), "no list")
    assert adopt(fleet, source).dead == (("q", "unusable_lane"),)
    assert balanced(fleet)


def test_only_one_poller_adopts_legacy_items_until_its_lease_expires(fleet: Fleet) -> None:
    assert [adopt(fleet, poller=name).is_leader for name in ("one", "two", "one")] == [True, False, True]
    fleet.redis.hset(fleet.keys.pulse, "adopts_until", fleet.now_us() - 1)
    assert [adopt(fleet, poller=name).is_leader for name in ("two", "one")] == [True, False]
