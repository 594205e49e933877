"""The promotion of due tasks to their lanes, including due items that programs in other languages have pushed."""

import json

import pytest

from rota.protocol.body import BodyError, decode_body
from rota.protocol.new_tasks import NewTask
from rota.protocol.outcome import DeadOutcome, Done, RetryOutcome
from support.protocol import SECOND_US, Fleet, body_of, one_tier

Q = one_tier("q")


def schedule_bare(fleet: Fleet, member: str, due: float) -> None:
    fleet.redis.zadd(fleet.keys.delayed, {member: due})


def make_due(fleet: Fleet, *ids: str) -> None:
    """Change the due times of these scheduled tasks, so that all of them are due, in the given order."""
    fleet.redis.zadd(fleet.keys.delayed, {task_id: 1 + place for place, task_id in enumerate(ids)}, xx=True)


def test_due_tasks_enter_the_delayed_lane_in_order_of_due(fleet: Fleet) -> None:
    fleet.push("a", "b", "c", due="+9000000")
    make_due(fleet, "c", "a", "b")
    assert fleet.promote().moved == {"q": 3}
    assert fleet.delayed_lane() == ["c", "a", "b"]
    assert fleet.redis.hlen(fleet.keys.tickets) == 0


def test_nothing_is_promoted_before_its_time(fleet: Fleet) -> None:
    fleet.push("a", due="+9000000")
    reply = fleet.promote()
    assert reply.moved == {}
    assert reply.next_due_us is not None
    assert reply.next_due_us - reply.now_us > 8 * SECOND_US


def test_a_promoted_entry_has_its_due_and_ready_times(fleet: Fleet) -> None:
    fleet.push("a", due="+9000000")
    make_due(fleet, "a")
    now = fleet.promote().now_us
    entry = fleet.turn(fleet.register(), Q).claims[0].entry
    assert (entry.due_us, entry.ready_us) == (SECOND_US, now)


def test_promotion_works_in_chunks_and_returns_more(fleet: Fleet) -> None:
    fleet.push("a", "b", "c", due="+9000000")
    make_due(fleet, "a", "b", "c")
    assert [fleet.promote(limit=2).more, fleet.promote(limit=2).more] == [True, False]
    assert fleet.delayed_lane() == ["a", "b", "c"]


def test_promotion_rings_each_queue_it_filled(fleet: Fleet) -> None:
    fleet.push("a", due="+9000000")
    fleet.push("b", due="+9000000", queue="p")
    make_due(fleet, "a", "b")
    fleet.promote()
    assert (fleet.bell("q"), fleet.bell("p")) == (1, 1)


def test_a_scheduled_item_pushed_with_zadd_keeps_its_own_id(fleet: Fleet) -> None:
    schedule_bare(fleet, '["u-1", "mail", "send", [1, 2]]', 5)
    assert fleet.promote().moved == {"mail": 1}
    claim = fleet.turn(fleet.register(), one_tier("mail")).claims[0]
    assert (claim.entry.id, claim.entry.due_us) == ("u-1", 5 * SECOND_US)
    assert decode_body(claim.body).args == [1, 2]


def test_garbage_in_the_delayed_set_becomes_dead_with_its_bytes(fleet: Fleet) -> None:
    schedule_bare(fleet, "\x00garbage", 5)
    schedule_bare(fleet, '["u-1","q","send",[]]', 6)
    reply = fleet.promote()
    assert (reply.buried, reply.moved) == (1, {"q": 1})
    dead = fleet.run(fleet.store.dead_page(0, 10)).tasks[0]
    assert dead.body == b"\x00garbage"
    assert json.loads(dead.death_record)["reason"] == "garbage"
    assert {row.queue: row.dead for row in fleet.run(fleet.store.overview(())).queues} == {"q": 0, "unknown": 1}
    assert fleet.run(fleet.store.audit()).missing == 0


@pytest.mark.parametrize("score", ["-inf", -5.0, 0.0])
def test_a_delayed_task_with_a_score_of_zero_or_less_is_due(fleet: Fleet, score: float) -> None:
    fleet.raw("ZADD", fleet.keys.delayed, score, body_of("a"))
    assert fleet.promote().moved == {"q": 1}
    assert fleet.turn(fleet.register(), Q).claims[0].entry.due_us == 0


def test_a_task_whose_ticket_was_deleted_is_promoted_by_its_body(fleet: Fleet) -> None:
    fleet.push("a", due="+9000000")
    fleet.redis.delete(fleet.keys.tickets)
    make_due(fleet, "a")
    assert fleet.promote().moved == {"q": 1}
    assert fleet.claim(fleet.register(), Q) == ["a"]


@pytest.mark.parametrize("score", ["inf", 4e12])
def test_an_infinite_or_huge_due_time_is_never_past(fleet: Fleet, score: float) -> None:
    fleet.raw("ZADD", fleet.keys.delayed, score, body_of("a"))
    reply = fleet.promote()
    assert reply.moved == {}
    assert reply.next_due_us is not None
    assert reply.next_due_us > reply.now_us
    fleet.push("b", due="+9000000")
    assert fleet.redis.llen(fleet.keys.poller_doorbell) == 1


def test_a_dead_task_that_is_added_to_the_delayed_set_stays_dead(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    fleet.turn(owner, Q, (claim, DeadOutcome(b"{}")))
    fleet.redis.zadd(fleet.keys.delayed, {"a": 1})
    assert fleet.promote().moved == {}
    assert fleet.redis.zcard(fleet.keys.delayed) == 0
    assert fleet.run(fleet.store.status("a")).state == "dead"
    assert fleet.run(fleet.store.revive(["a"])) == 1


def test_the_crash_record_of_a_task_that_lost_its_ticket_is_deleted_at_its_end(fleet: Fleet) -> None:
    fleet.push("a")
    owner = fleet.register()
    fleet.turn(owner, Q)
    fleet.exit(owner, ["a"])
    owner = fleet.register()
    fleet.turn(owner, Q, (fleet.turn(owner, Q).claims[0], RetryOutcome(9_000_000)), limit=0)
    fleet.redis.delete(fleet.keys.tickets)
    make_due(fleet, "a")
    fleet.promote()
    owner = fleet.register()
    claim = fleet.turn(owner, Q).claims[0]
    assert claim.entry.last_crash is None  # the kind of the crash was in the deleted ticket
    fleet.turn(owner, Q, (claim, Done()))
    assert not fleet.redis.exists(fleet.keys.epitaphs)


def test_a_task_that_lost_its_ticket_still_frees_its_unique_key(fleet: Fleet) -> None:
    fleet.enqueue(NewTask("a", "q", body_of("a"), "+9000000", "k"))
    fleet.redis.delete(fleet.keys.tickets)
    make_due(fleet, "a")
    fleet.promote()
    owner = fleet.register()
    claim = fleet.turn(owner, Q).claims[0]
    fleet.turn(owner, Q, (claim, Done()))
    assert not fleet.redis.exists(fleet.keys.unique("k"))


# Bare pushes


def test_a_bare_item_in_the_four_element_form_keeps_its_own_id(fleet: Fleet) -> None:
    fleet.redis.rpush(fleet.keys.ready_lane("q"), '["u-1","q","send",["x"]]')
    claim = fleet.turn(fleet.register(), Q).claims[0]
    assert claim.entry.id == "u-1"
    assert decode_body(claim.body).name == "send"
    assert fleet.run(fleet.store.audit()).accepted == 1


def test_a_bare_item_in_the_two_element_form_gets_a_new_id(fleet: Fleet) -> None:
    fleet.redis.rpush(fleet.keys.ready_lane("q"), '["send",["x"]]', '["send",["y"]]')
    owner = fleet.register()
    first, second = fleet.turn(owner, Q, limit=2).claims
    assert first.entry.id != second.entry.id
    assert [decode_body(claim.body).args for claim in (first, second)] == [["x"], ["y"]]


def test_a_bare_item_with_a_live_id_gets_a_new_id(fleet: Fleet) -> None:
    fleet.push("u-1")
    fleet.redis.rpush(fleet.keys.ready_lane("q"), '["u-1","q","send",[]]')
    ids = [claim.entry.id for claim in fleet.turn(fleet.register(), Q, limit=2).claims]
    assert ids[0] == "u-1"
    assert ids[1] != "u-1"


@pytest.mark.parametrize("garbage", ["not json", "", "[" * 3000, '["bad id!","q","send",[]]', "a b c"])
def test_garbage_in_a_lane_reaches_the_worker_with_its_bytes(fleet: Fleet, garbage: str) -> None:
    fleet.redis.rpush(fleet.keys.ready_lane("q"), garbage)
    claim = fleet.turn(fleet.register(), Q).claims[0]
    assert claim.body == (garbage or " ").encode()
    assert claim.entry.id.startswith("adopted-")


def test_an_entry_without_a_task_is_treated_as_a_bare_item(fleet: Fleet) -> None:
    forged = "ghost q i 1 1 0 0 0 0 -"
    fleet.redis.rpush(fleet.keys.ready_lane("q"), forged)
    claim = fleet.turn(fleet.register(), Q).claims[0]
    assert claim.body == forged.encode()
    with pytest.raises(BodyError):
        decode_body(claim.body)


def test_an_empty_bare_item_reaches_a_worker_and_is_not_taken_for_cancelled(fleet: Fleet) -> None:
    fleet.redis.rpush(fleet.keys.ready_lane("q"), "")
    reply = fleet.turn(fleet.register(), Q)
    assert reply.dropped == ()
    assert len(reply.claims) == 1


def test_an_item_with_a_reserved_queue_name_is_garbage(fleet: Fleet) -> None:
    schedule_bare(fleet, '["u-1","email-delayed","send",[]]', 5)
    assert fleet.promote().buried == 1


def test_a_huge_bare_item_is_adopted(fleet: Fleet) -> None:
    giant = "x " * 1_000_000
    fleet.redis.rpush(fleet.keys.ready_lane("q"), giant)
    claim = fleet.turn(fleet.register(), Q).claims[0]
    assert len(claim.body) == len(giant)


def test_a_bare_push_is_claimed_before_any_sweep_has_seen_its_queue(fleet: Fleet) -> None:
    fleet.redis.rpush(fleet.keys.delayed_lane("q"), '["u-1","q","send",[]]')
    assert fleet.claim(fleet.register(), Q) == ["u-1"]
