"""Items that programs in other languages push. Each item is counted and listed, and can be found by its id, before a
worker runs it.
"""

import json
from typing import Final

import pytest

from rota.protocol.replies import CancelStatus
from rota.protocol.store import BATCH
from support.protocol import LEASE_MS, SECOND_US, Fleet, body_of, one_tier

YEAR_SECONDS: Final = 365 * 86_400


def schedule(fleet: Fleet, member: str | bytes, seconds: float) -> None:
    """Add an item that is due in this many seconds. A plain ZADD is used, which a program in any language can send."""
    fleet.raw("ZADD", fleet.keys.delayed, fleet.now_us() / SECOND_US + seconds, member)


def scheduled(fleet: Fleet) -> dict[str, int]:
    rows = fleet.run(fleet.store.overview(())).queues
    return {row.queue: row.scheduled for row in rows if row.scheduled}


def legacy_items(fleet: Fleet) -> int:
    return fleet.run(fleet.store.sweep(LEASE_MS)).legacy_items


def adopt(fleet: Fleet, *members: str | bytes) -> tuple[int, tuple[tuple[str, str], ...]]:
    raw = [member.encode() if isinstance(member, str) else member for member in members]
    reply = fleet.run(fleet.store.adopt_scheduled(raw))
    return reply.adopted, reply.dead


def test_a_bare_scheduled_item_is_counted_and_found_after_adoption(fleet: Fleet) -> None:
    fleet.push("ours", due="+60000000")
    schedule(fleet, body_of("a", "mail"), 600)
    assert scheduled(fleet) == {"q": 1, "unknown": 1}
    assert legacy_items(fleet) == 1
    score = fleet.score(fleet.keys.delayed, body_of("a", "mail").decode())
    assert adopt(fleet, body_of("a", "mail")) == (1, ())
    assert (scheduled(fleet), legacy_items(fleet)) == ({"q": 1, "mail": 1}, 0)
    assert fleet.score(fleet.keys.delayed, "a") == score
    found = fleet.run(fleet.store.status("a"))
    assert (found.state, found.queue, found.body) == ("scheduled", "mail", body_of("a", "mail"))
    assert fleet.run(fleet.store.audit()).missing == 0


def test_an_adopted_item_can_be_cancelled_by_its_id(fleet: Fleet) -> None:
    schedule(fleet, body_of("a"), 600)
    adopt(fleet, body_of("a"))
    assert fleet.run(fleet.store.cancel("a")) is CancelStatus.CANCELLED
    assert (scheduled(fleet), legacy_items(fleet)) == ({}, 0)
    assert fleet.run(fleet.store.audit()).ended["cancelled"] == 1


def test_an_adopted_item_is_promoted_when_due_and_claimed_once(fleet: Fleet) -> None:
    schedule(fleet, body_of("a"), -1)
    due = fleet.score(fleet.keys.delayed, body_of("a").decode())
    adopt(fleet, body_of("a"))
    assert fleet.promote().moved == {"q": 1}
    owner = fleet.register()
    (claim,) = fleet.turn(owner, one_tier("q"), limit=5).claims
    assert claim.entry.id == "a"
    assert claim.entry.due_us == pytest.approx(due * SECOND_US, abs=1)
    assert fleet.claim(fleet.register(), one_tier("q")) == []


def test_an_item_adopted_twice_or_already_promoted_is_one_task(fleet: Fleet) -> None:
    schedule(fleet, body_of("a"), 600)
    schedule(fleet, body_of("b"), -1)
    assert fleet.promote().moved == {"q": 1}
    assert adopt(fleet, body_of("a"), body_of("a"), body_of("b")) == (1, ())
    assert adopt(fleet, body_of("a"), "a") == (0, ())
    assert fleet.run(fleet.store.audit()).accepted == 2


def test_an_item_with_a_live_id_gets_a_new_id(fleet: Fleet) -> None:
    fleet.push("a")
    schedule(fleet, body_of("a"), 600)
    assert adopt(fleet, body_of("a")) == (1, ())
    assert fleet.run(fleet.store.audit()).live == 2
    assert fleet.run(fleet.store.status("a")).state == "ready"


@pytest.mark.parametrize("seconds", [11 * YEAR_SECONDS, 1_795_252_610_250, float("inf")])
def test_a_bare_item_due_in_over_ten_years_becomes_dead_with_a_hint(fleet: Fleet, seconds: float) -> None:
    schedule(fleet, body_of("a", "mail"), seconds)
    assert adopt(fleet, body_of("a", "mail")) == (0, (("mail", "too_far_ahead"),))
    (dead,) = fleet.run(fleet.store.dead_page(0, 10)).tasks
    record = json.loads(dead.death_record)
    assert (dead.id, dead.queue, record["reason"]) == ("a", "mail", "too_far_ahead")
    assert "milliseconds?" in record["error"]
    assert {row.queue: row.dead for row in fleet.run(fleet.store.overview(())).queues} == {"mail": 1}
    assert (fleet.redis.zcard(fleet.keys.delayed), legacy_items(fleet)) == (0, 0)
    assert fleet.run(fleet.store.audit()).missing == 0


def test_a_bare_item_due_in_nine_years_is_adopted(fleet: Fleet) -> None:
    schedule(fleet, body_of("a"), 9 * YEAR_SECONDS)
    assert adopt(fleet, body_of("a")) == (1, ())


def test_a_bare_item_without_a_queue_becomes_dead_and_keeps_its_bytes(fleet: Fleet) -> None:
    member = b"[\xff not json"
    schedule(fleet, member, 600)
    assert adopt(fleet, member) == (0, (("unknown", "garbage"),))
    (dead,) = fleet.run(fleet.store.dead_page(0, 10)).tasks
    assert dead.body == member
    assert fleet.run(fleet.store.audit()).missing == 0


def test_a_key_of_another_type_fails_the_adoption_without_changes(fleet: Fleet) -> None:
    schedule(fleet, body_of("a"), 600)
    fleet.redis.set(fleet.keys.queues, "no set")
    before = fleet.snapshot()
    with pytest.raises(Exception, match="WRONGTYPE"):
        adopt(fleet, body_of("a"))
    assert fleet.snapshot() == before


def test_legacy_items_are_counted_correctly_after_keys_were_deleted(fleet: Fleet) -> None:
    fleet.push("a", "b", due="+60000000")
    schedule(fleet, b"[garbage", 600)
    adopt(fleet, b"[garbage")
    assert legacy_items(fleet) == 0
    fleet.redis.hdel(fleet.keys.tickets, "a")
    assert legacy_items(fleet) == 1
    fleet.redis.delete(fleet.keys.delayed)
    assert legacy_items(fleet) == 0


@pytest.mark.parametrize("key", ["delayed", "tickets", "dead"])
def test_a_sweep_ignores_a_key_of_the_wrong_type(fleet: Fleet, key: str) -> None:
    fleet.redis.set(getattr(fleet.keys, key), "something else")
    assert fleet.run(fleet.store.sweep(LEASE_MS)).legacy_items == 0


# Queues that no fleet serves


def test_a_bare_pushed_queue_is_listed_after_its_lane_is_found(fleet: Fleet) -> None:
    fleet.redis.rpush(fleet.keys.ready_lane("emial"), body_of("a", "emial"))
    fleet.redis.rpush(fleet.keys.delayed_lane("late"), body_of("b", "late"))
    assert fleet.run(fleet.store.overview(())).queues == ()
    assert fleet.run(fleet.store.list_queues(["emial", "late", "empty", "no name", "x-delayed"])) == 2
    rows = {row.queue: (row.ready, row.served) for row in fleet.run(fleet.store.overview(())).queues}
    assert rows == {"emial": (1, False), "late": (1, False)}
    assert fleet.run(fleet.store.list_queues(["emial"])) == 0


def test_a_lane_of_another_type_is_not_listed_as_a_queue(fleet: Fleet) -> None:
    fleet.redis.set(fleet.keys.ready_lane("odd"), "no list")
    assert fleet.run(fleet.store.list_queues(["odd"])) == 0


# The choice of the poller that scans the keys


def walks(fleet: Fleet, poller: str) -> bool:
    return fleet.run(fleet.store.sweep(LEASE_MS, poller)).is_leader


def test_only_one_poller_scans_for_bare_pushes_until_its_lease_expires(fleet: Fleet) -> None:
    assert [walks(fleet, "one"), walks(fleet, "two"), walks(fleet, "one"), walks(fleet, "")] == [
        True,
        False,
        True,
        False,
    ]
    fleet.redis.hset(fleet.keys.pulse, "walks_until", fleet.now_us() - 1)
    assert [walks(fleet, "two"), walks(fleet, "one")] == [True, False]


@pytest.mark.parametrize("until_us", ["99999999999999999", "9000000000000000", "nan", ""])
def test_a_poller_can_take_over_if_the_leaders_lease_has_an_impossible_end(fleet: Fleet, until_us: str) -> None:
    """The end of the lease may be impossibly late if the clock was set back, or invalid if another program wrote the
    value.
    """
    walks(fleet, "one")
    fleet.redis.hset(fleet.keys.pulse, "walks_until", until_us)
    assert walks(fleet, "two")


def test_a_full_batch_of_items_is_adopted_in_one_call(fleet: Fleet) -> None:
    members = [body_of(f"t{n}") for n in range(BATCH)]
    for member in members:
        schedule(fleet, member, 600)
    assert adopt(fleet, *members) == (BATCH, ())
    assert legacy_items(fleet) == 0
