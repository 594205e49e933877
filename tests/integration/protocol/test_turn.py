"""Turns. Each turn settles finished tasks and claims new ones."""

import pytest

from rota.protocol.entry import Kind
from rota.protocol.outcome import CancelledOutcome, DeadOutcome, Done, Expired, Release, RetryOutcome, Settlement
from rota.protocol.store import Blame
from rota.protocol.tiers import QueueShare, pack_limits
from rota.protocol.turns import Turn, TurnStatus
from rota.protocol.wire import Packed
from rota.server.server_errors import Refused
from support.protocol import SECOND_US, Fleet, body_of, one_tier, pack_settlements, tiers

Q = one_tier("q")


def test_tasks_are_claimed_in_the_order_they_were_pushed(fleet: Fleet) -> None:
    fleet.push("a", "b", "c")
    owner = fleet.register()
    assert fleet.claim(owner, Q, limit=2) == ["a", "b"]
    assert fleet.inflight(owner) == ["a", "b"]
    assert fleet.lane() == ["c"]


def test_the_delayed_lane_is_claimed_before_the_ready_lane(fleet: Fleet) -> None:
    fleet.push("ready1", "ready2")
    fleet.redis.zadd(fleet.keys.delayed, {body_of("due").decode(): 1})
    fleet.promote()
    assert fleet.claim(fleet.register(), Q, limit=2) == ["due", "ready1"]


def test_an_unregistered_owner_claims_nothing(fleet: Fleet) -> None:
    fleet.push("a")
    reply = fleet.turn("node:1:999", Q)
    assert (reply.status, reply.claims) == (TurnStatus.LOST, ())
    assert fleet.lane() == ["a"]


def test_a_claim_of_a_reaped_owner_takes_no_task(fleet: Fleet) -> None:
    fleet.push("a")
    owner = fleet.register()
    fleet.exit(owner)
    assert fleet.turn(owner, Q).status is TurnStatus.LOST
    assert fleet.lane() == ["a"]
    assert not fleet.redis.exists(fleet.keys.inflight(owner))


def test_a_lost_reply_is_repeated_with_the_same_entries(fleet: Fleet) -> None:
    fleet.push("a", "b", "c")
    owner = fleet.register()
    lost = fleet.turn(owner, Q, limit=2)
    again = fleet.turn(owner, Q, limit=2)
    assert again.status is TurnStatus.AGAIN
    assert again.claims == lost.claims
    assert fleet.lane() == ["c"]


def test_a_claim_does_not_repeat_held_tasks_that_the_worker_names(fleet: Fleet) -> None:
    fleet.push("a", "b")
    owner = fleet.register()
    fleet.turn(owner, Q)
    reply = fleet.turn(owner, Q, held=["a"])
    assert (reply.status, [claim.entry.id for claim in reply.claims]) == (TurnStatus.OK, ["b"])


def test_settling_and_claiming_are_one_call(fleet: Fleet) -> None:
    owner, first = fleet.claimed("a", "b")
    second = fleet.turn(owner, Q, (first, Done()))
    assert second.claims[0].entry.id == "b"
    assert fleet.inflight(owner) == ["b"]
    assert fleet.redis.hexists(fleet.keys.tasks, "a") is False


def test_settling_one_task_and_claiming_another_keeps_the_running_count(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a", "b")
    [claim] = fleet.turn(owner, Q, (claim, Done())).claims
    assert fleet.redis.hget(fleet.keys.counts, "running:q") == "1"
    fleet.turn(owner, Q, (claim, Done()))
    assert fleet.redis.hget(fleet.keys.counts, "running:q") == "0"


def test_an_outcome_settled_twice_counts_once(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    assert fleet.turn(owner, Q, (claim, Done())).stale == ()
    assert fleet.turn(owner, Q, (claim, Done())).stale == (claim.entry.text,)
    assert fleet.redis.hget(fleet.keys.totals, "done") == "1"


def test_a_late_settle_after_lease_loss_changes_nothing(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    fleet.exit(owner, ["a"])
    before = fleet.snapshot()
    reply = fleet.turn(owner, Q, (claim, Done()))
    assert (reply.status, reply.stale) == (TurnStatus.LOST, (claim.entry.text,))
    assert fleet.snapshot() == before


def test_an_unregistered_worker_can_still_settle_the_tasks_in_its_list(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    fleet.redis.zrem(fleet.keys.owners, owner)
    reply = fleet.turn(owner, Q, (claim, Done()))
    assert (reply.status, reply.stale) == (TurnStatus.LOST, ())
    assert fleet.redis.hget(fleet.keys.totals, "done") == "1"


def test_a_repeated_release_does_not_affect_the_next_claim(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    fleet.turn(owner, Q, (claim, Release()), limit=0)
    second = fleet.turn(owner, Q).claims[0]
    assert second.entry.text != claim.entry.text
    reply = fleet.turn(owner, Q, (claim, Release()), held=["a"], limit=0)
    assert reply.stale == (claim.entry.text,)
    assert fleet.inflight(owner) == ["a"]


def test_a_retried_task_waits_until_its_time_and_counts_a_failure(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    before = fleet.now_us()
    fleet.turn(owner, Q, (claim, RetryOutcome(30 * SECOND_US)))
    assert fleet.score(fleet.keys.delayed, "a") * 1e6 >= before + 30 * SECOND_US
    fleet.redis.zadd(fleet.keys.delayed, {"a": 5})
    fleet.promote()
    entry = fleet.turn(owner, Q).claims[0].entry
    assert (entry.kind, entry.failures, entry.attempt, entry.due_us) == (Kind.RETRY, 1, 2, 5 * SECOND_US)


def test_a_dead_task_is_set_aside_with_its_death_record(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    fleet.turn(owner, Q, (claim, DeadOutcome(b'{"reason":"raised"}')))
    page = fleet.run(fleet.store.dead_page(0, 10))
    assert (page.total, page.tasks[0].id, page.tasks[0].death_record) == (1, "a", b'{"reason":"raised"}')
    assert page.tasks[0].body == body_of("a")


def test_a_released_task_returns_to_the_head_and_counts_no_failure(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a", "b")
    fleet.turn(owner, Q, (claim, Release()), limit=0)
    assert fleet.lane() == ["a", "b"]
    entry = fleet.turn(owner, Q).claims[0].entry
    assert (entry.releases, entry.crashes, entry.losses, entry.attempt) == (1, 0, 0, 1)


def test_cancelled_and_expired_outcomes_end_a_task(fleet: Fleet) -> None:
    fleet.push("a", "b")
    owner = fleet.register()
    first, second = fleet.turn(owner, Q, limit=2).claims
    fleet.turn(owner, Q, (first, CancelledOutcome()), (second, Expired()))
    audit = fleet.run(fleet.store.audit())
    assert (audit.ended["cancelled"], audit.ended["expired"], audit.live, audit.missing) == (1, 1, 0, 0)


def test_a_task_cancelled_while_it_runs_has_no_next_attempt(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    fleet.run(fleet.store.cancel("a"))
    fleet.turn(owner, Q, (claim, RetryOutcome(0)))
    assert fleet.redis.zcard(fleet.keys.delayed) == 0
    assert fleet.run(fleet.store.audit()).ended["cancelled"] == 1


def test_a_result_is_stored_only_with_a_ttl(fleet: Fleet) -> None:
    fleet.push("a", "b")
    owner = fleet.register()
    first, second = fleet.turn(owner, Q, limit=2).claims
    fleet.turn(owner, Q, (first, Done(b"42", 60_000)), (second, Done()))
    assert fleet.redis.get(fleet.keys.result("a")) == "42"
    assert fleet.redis.get(fleet.keys.result("b")) is None


def test_waiting_tasks_that_were_cancelled_are_dropped_at_the_claim(fleet: Fleet) -> None:
    fleet.push("a", "b", "c")
    fleet.run(fleet.store.cancel("a"))
    reply = fleet.turn(fleet.register(), Q)
    assert [entry.id for entry in reply.dropped] == ["a"]
    assert [claim.entry.id for claim in reply.claims] == ["b"]


def test_a_turn_that_reaches_its_bound_asks_to_be_repeated(fleet: Fleet) -> None:
    ids = [f"t{number}" for number in range(500)]
    fleet.push(*ids)
    fleet.push("last")
    for task_id in ids:
        fleet.redis.hset(fleet.keys.tasks, task_id, "")
    fleet.silence()
    owner = fleet.register()
    reply = fleet.turn(owner, Q, tokens=["q"])
    assert (reply.status, len(reply.dropped)) == (TurnStatus.MORE, 500)
    assert fleet.turn(owner, Q, tokens=["q"]).claims[0].entry.id == "last"


def test_a_task_that_crashed_is_claimed_alone(fleet: Fleet) -> None:
    fleet.push("guilty", "b", "c")
    crashed = fleet.register()
    fleet.turn(crashed, Q, limit=1)
    fleet.exit(crashed, ["guilty"])
    owner = fleet.register()
    assert fleet.claim(owner, Q, limit=3) == ["guilty"]


def test_a_claim_of_several_tasks_stops_before_one_that_crashed(fleet: Fleet) -> None:
    fleet.push("a", "guilty", "c")
    owner, crashed = fleet.register(), fleet.register()
    fleet.turn(owner, Q)
    fleet.turn(crashed, Q)
    fleet.exit(crashed, ["guilty"])
    fleet.exit(owner, blame=Blame(ran=(("a", b""),)))
    assert fleet.claim(fleet.register(), Q, limit=3) == ["a"]


def test_a_worker_that_holds_a_task_that_crashed_claims_no_other(fleet: Fleet) -> None:
    fleet.push("guilty", "b")
    crashed = fleet.register()
    fleet.turn(crashed, Q)
    fleet.exit(crashed, ["guilty"])
    owner = fleet.register()
    assert fleet.claim(owner, Q) == ["guilty"]
    assert fleet.turn(owner, Q, held=["guilty"]).claims == ()


def test_a_worker_that_holds_a_task_does_not_claim_one_that_crashed(fleet: Fleet) -> None:
    fleet.push("a", "guilty")
    owner, crashed = fleet.register(), fleet.register()
    assert fleet.claim(owner, Q) == ["a"]
    fleet.turn(crashed, Q)
    fleet.exit(crashed, ["guilty"])
    assert fleet.turn(owner, Q, held=["a"]).claims == ()
    assert fleet.claim(fleet.register(), Q) == ["guilty"]


def test_a_lower_tier_is_served_only_when_the_higher_is_empty(fleet: Fleet) -> None:
    serving = tiers([QueueShare("high")], [QueueShare("low")])
    fleet.push("l1", "l2", queue="low")
    fleet.push("h1", "h2", queue="high")
    owner = fleet.register()
    assert [fleet.claim(owner, serving)[0] for _ in range(1)] == ["h1"]
    claimed = fleet.inflight(owner)
    assert claimed == ["h1"]


def test_strict_tiers_hold_over_many_claims(fleet: Fleet) -> None:
    serving = tiers([QueueShare("high")], [QueueShare("low")])
    fleet.push("l1", "l2", queue="low")
    fleet.push("h1", "h2", queue="high")
    order = [fleet.claim(fleet.register(f"node:{place}"), serving)[0] for place in range(4)]
    assert order == ["h1", "h2", "l1", "l2"]


def test_a_turn_with_one_pick_claims_from_one_queue(fleet: Fleet) -> None:
    fleet.push("a", queue="x")
    fleet.push("b", queue="y")
    assert len(fleet.claim(fleet.register(), one_tier("x", "y"), limit=5)) == 1


def test_a_paused_queue_is_not_claimed_from_until_it_is_resumed(fleet: Fleet) -> None:
    fleet.push("a")
    fleet.run(fleet.store.pause("q"))
    owner = fleet.register()
    assert fleet.claim(owner, Q) == []
    fleet.silence()
    fleet.run(fleet.store.resume("q"))
    assert fleet.bell() == 1
    assert fleet.claim(owner, Q) == ["a"]


def test_a_cap_limits_running_tasks_over_all_owners(fleet: Fleet) -> None:
    capped = tiers([QueueShare("q", cap=2)])
    fleet.push("a", "b", "c")
    one, other = fleet.register("node:1"), fleet.register("node:2")
    assert fleet.claim(one, capped) == ["a"]
    first = fleet.turn(other, capped, limit=5)
    assert [claim.entry.id for claim in first.claims] == ["b"]
    third = fleet.register("node:3")
    assert fleet.claim(third, capped) == []
    fleet.silence()
    fleet.turn(other, capped, (first.claims[0], Done()), limit=0)
    assert fleet.bell() == 1
    assert fleet.claim(third, capped) == ["c"]


def test_a_rate_limit_returns_how_long_to_wait(fleet: Fleet) -> None:
    limited = tiers([QueueShare("q", interval_us=60 * SECOND_US, burst=2)])
    fleet.push("a", "b", "c")
    owner = fleet.register()
    assert fleet.claim(owner, limited, limit=5) == ["a", "b"]
    reply = fleet.turn(owner, limited, held=["a", "b"])
    assert reply.claims == ()
    assert 0 < reply.wait_us <= 60 * SECOND_US


def test_a_clock_set_back_delays_a_rate_limited_queue_by_at_most_one_burst(fleet: Fleet) -> None:
    limited = tiers([QueueShare("q", interval_us=SECOND_US, burst=2)])
    fleet.push("a")
    fleet.redis.hset(fleet.keys.rates, "q", fleet.now_us() + 3600 * SECOND_US)
    reply = fleet.turn(fleet.register(), limited)
    assert 0 < reply.wait_us <= 2 * SECOND_US


def test_a_negative_running_count_does_not_raise_the_cap(fleet: Fleet) -> None:
    capped = tiers([QueueShare("q", cap=1)])
    fleet.push("a", "b")
    fleet.redis.hset(fleet.keys.counts, "running:q", -5)
    assert len(fleet.turn(fleet.register(), capped, limit=5).claims) == 1


def test_a_lower_tier_is_served_while_the_higher_is_closed(fleet: Fleet) -> None:
    serving = tiers([QueueShare("high", cap=1)], [QueueShare("low")])
    fleet.push("h1", "h2", queue="high")
    fleet.push("l1", queue="low")
    order = [fleet.claim(fleet.register(f"node:{place}"), serving) for place in range(2)]
    assert order == [["h1"], ["l1"]]


# Doorbells


def test_a_claim_that_leaves_tasks_wakes_the_next_worker(fleet: Fleet) -> None:
    fleet.push("a", "b")
    fleet.silence()
    owner = fleet.register()
    fleet.turn(owner, Q)
    assert fleet.bell() == 1
    fleet.silence()
    fleet.turn(owner, Q, held=["a"])
    assert fleet.bell() == 0


def test_a_worker_that_served_another_queue_passes_its_wake_up_on(fleet: Fleet) -> None:
    serving = tiers([QueueShare("high")], [QueueShare("low")])
    fleet.push("l1", queue="low")
    fleet.push("h1", queue="high")
    fleet.silence("low")
    fleet.turn(fleet.register(), serving, tokens=["low"])
    assert fleet.bell("low") == 1


def test_a_worker_that_gets_a_repeated_reply_passes_its_wake_up_on(fleet: Fleet) -> None:
    fleet.push("a", "b")
    owner = fleet.register()
    fleet.turn(owner, Q)
    fleet.silence()
    assert fleet.turn(owner, Q, tokens=["q"]).status is TurnStatus.AGAIN
    assert fleet.bell() == 1


def test_the_wake_up_taken_by_a_worker_without_a_lease_is_passed_on(fleet: Fleet) -> None:
    fleet.push("a")
    fleet.silence()
    assert fleet.turn("node:1:999", Q, tokens=["q"]).status is TurnStatus.LOST
    assert fleet.bell() == 1


def test_a_call_of_a_reaped_worker_wakes_others_for_its_waiting_tasks(fleet: Fleet) -> None:
    serving = one_tier("x", "y", "empty")
    fleet.push("a", queue="x")
    fleet.push("b", queue="y")
    for queue in ("x", "y", "empty"):
        fleet.silence(queue)
    assert fleet.turn("node:1:999", serving).status is TurnStatus.LOST
    assert [fleet.bell(queue) for queue in ("x", "y", "empty")] == [1, 1, 0]


def test_a_capped_turn_is_refused_if_the_counts_key_has_the_wrong_type(fleet: Fleet) -> None:
    capped = tiers([QueueShare("q", cap=2)])
    fleet.push("a", "b")
    owner = fleet.register()
    claim = fleet.turn(owner, capped).claims[0]
    fleet.redis.set(fleet.keys.counts, "overwritten")
    before = fleet.snapshot()
    with pytest.raises(Refused, match="WRONGTYPE"):
        fleet.turn(owner, capped, (claim, Done()))
    assert fleet.snapshot() == before


def test_the_claim_limit_of_a_queue_overrides_the_limit_of_the_turn(fleet: Fleet) -> None:
    fleet.push("a", "b", "c", queue="5")
    fleet.push("d", "e", "f", queue="7")
    owner = fleet.register()
    limits = pack_limits({"x5": 3, "5": 2})
    claims = [
        fleet.run(fleet.store.turn(owner, one_tier(queue), Turn(1, held, limits=limits))).claims
        for queue, held in (("5", ()), ("7", ("a", "b")))
    ]
    assert [[claim.entry.id for claim in each] for each in claims] == [["a", "b"], ["d"]]


def test_a_worker_can_claim_more_without_naming_held_tasks(fleet: Fleet) -> None:
    fleet.push("a", "b", "c")
    owner = fleet.register()
    done, *_ = fleet.turn(owner, Q, limit=2).claims
    told = Turn(1, None, settlements=pack_settlements([Settlement(done.entry, Done())]))
    reply = fleet.run(fleet.store.turn(owner, Q, told))
    assert (reply.status, [claim.entry.id for claim in reply.claims]) == (TurnStatus.OK, ["c"])
    assert fleet.inflight(owner) == ["b", "c"]


def test_a_turn_that_arrives_too_late_settles_tasks_but_claims_none(fleet: Fleet) -> None:
    fleet.push("done", "running", "next")
    owner = fleet.register()
    first = fleet.turn(owner, Q, limit=2)
    done = pack_settlements([Settlement(first.claims[0].entry, Done())])
    late = Turn(1, None, settlements=done, claim_by_us=first.now_us + 1)
    reply = fleet.run(fleet.store.turn(owner, Q, late))
    assert (reply.status, reply.claims, fleet.inflight(owner)) == (TurnStatus.MORE, (), ["running"])
    in_time = Turn(1, None, claim_by_us=reply.now_us + 60 * SECOND_US)
    assert [claim.entry.id for claim in fleet.run(fleet.store.turn(owner, Q, in_time)).claims] == ["next"]


@pytest.mark.parametrize(("waiting", "status"), [(9, TurnStatus.BACKLOGGED), (8, TurnStatus.OK)])
@pytest.mark.parametrize("due", ["", "0"])
def test_four_tasks_left_for_each_worker_count_as_a_backlog(
    fleet: Fleet, waiting: int, status: TurnStatus, due: str
) -> None:
    fleet.push(*map(str, range(waiting)), due=due)
    fleet.promote()
    owner, _ = fleet.register(), fleet.register("node:2")
    assert fleet.turn(owner, Q).status is status


@pytest.mark.parametrize(
    ("serving", "status"),
    [
        (tiers([QueueShare("q", weight=2), QueueShare("p")], [QueueShare("low", cap=3)]), TurnStatus.BACKLOGGED),
        (tiers([QueueShare("high")], [QueueShare("q")]), TurnStatus.OK),
        (tiers([QueueShare("q", cap=20)]), TurnStatus.OK),
        (tiers([QueueShare("q"), QueueShare("p", cap=3)]), TurnStatus.OK),
        (tiers([QueueShare("q"), QueueShare("p", interval_us=1000)]), TurnStatus.OK),
        (tiers([QueueShare("q"), QueueShare("p", condition="shut")]), TurnStatus.OK),
    ],
)
def test_a_backlog_is_reported_only_if_the_top_tier_has_no_limits(
    fleet: Fleet, serving: Packed, status: TurnStatus
) -> None:
    fleet.push(*map(str, range(30)))
    assert fleet.turn(fleet.register(), serving).status is status


def test_no_backlog_is_reported_for_several_picks_or_a_task_that_crashed(fleet: Fleet) -> None:
    crasher = fleet.register()
    fleet.push(*map(str, range(30)))
    fleet.claim(crasher, Q)
    fleet.exit(crasher, ["0"])
    owner = fleet.register()
    alone = fleet.turn(owner, Q)
    assert (alone.status, [claim.entry.id for claim in alone.claims]) == (TurnStatus.OK, ["0"])
    several = fleet.run(fleet.store.turn(fleet.register(), Q, Turn(1, picks=2)))
    assert (several.status, len(several.claims)) == (TurnStatus.OK, 2)


def test_the_wake_up_for_an_empty_queue_is_not_passed_on(fleet: Fleet) -> None:
    fleet.turn(fleet.register(), Q, tokens=["q"])
    assert fleet.bell() == 0


def test_no_worker_is_woken_for_a_queue_that_is_paused_or_at_its_cap(fleet: Fleet) -> None:
    capped = tiers([QueueShare("q", cap=1), QueueShare("p")])
    fleet.push("a", "b")
    fleet.push("c", queue="p")
    fleet.run(fleet.store.pause("p"))
    owner = fleet.register()
    fleet.turn(owner, capped)
    fleet.silence("q")
    fleet.silence("p")
    fleet.turn(owner, capped, held=["a"], tokens=["q", "p"])
    assert (fleet.bell("q"), fleet.bell("p")) == (0, 0)


def test_a_released_task_wakes_a_worker_of_its_queue(fleet: Fleet) -> None:
    owner, claim = fleet.claimed("a")
    fleet.silence()
    fleet.turn(owner, Q, (claim, Release()), limit=0)
    assert fleet.bell() == 1


def test_tasks_are_claimed_and_settled_although_a_doorbell_has_the_wrong_type(fleet: Fleet) -> None:
    fleet.push("a", "b")
    fleet.silence()
    fleet.redis.set(fleet.keys.doorbell("q"), "text")
    owner = fleet.register()
    claim = fleet.turn(owner, Q).claims[0]
    assert fleet.turn(owner, Q, (claim, Done())).claims[0].entry.id == "b"


def test_a_lane_of_the_wrong_type_stops_only_its_own_queue(fleet: Fleet) -> None:
    fleet.push("a")
    fleet.redis.set(fleet.keys.ready_lane("bad"), "text")
    fleet.redis.sadd(fleet.keys.ready, "bad")
    owner = fleet.register()
    serving = tiers([QueueShare("bad")], [QueueShare("q")])
    claim = fleet.turn(owner, serving).claims[0]
    assert claim.entry.id == "a"
    assert fleet.turn(owner, serving, (claim, Done())).stale == ()


def test_tasks_are_claimed_and_settled_although_counts_are_overwritten(fleet: Fleet) -> None:
    fleet.push("a")
    fleet.redis.hset(fleet.keys.counts, "running:q", "many")
    fleet.redis.hset(fleet.keys.totals, "done", "lots")
    owner = fleet.register()
    claim = fleet.turn(owner, Q).claims[0]
    fleet.turn(owner, Q, (claim, Done()))
    assert fleet.inflight(owner) == []
    assert fleet.redis.hlen(fleet.keys.tasks) == 0


@pytest.mark.parametrize("share", [QueueShare("q", cap=4), QueueShare("q", interval_us=1, burst=50)])
def test_a_queue_with_a_cap_or_rate_is_claimed_one_task_at_a_time(fleet: Fleet, share: QueueShare) -> None:
    fleet.push("a", "b", "c")
    owner, limits = fleet.register(), pack_limits({"q": 3})
    reply = fleet.run(fleet.store.turn(owner, tiers([share]), Turn(1, limits=limits)))
    assert [claim.entry.id for claim in reply.claims] == ["a"]


def test_a_turn_that_finds_no_task_needs_few_commands(fleet: Fleet) -> None:
    owner = fleet.register()
    queues, costs = one_tier("a", "b", "c"), []
    for _ in range(2):  # one of the two turns may have to load the script
        before = fleet.commands()
        assert fleet.turn(owner, queues).status is TurnStatus.OK
        costs.append(fleet.commands() - before)
    assert min(costs) <= 6  # this includes the command that reads the number of commands
