"""Turns with several picks. For each pick, a turn chooses a queue and claims one of its tasks. One turn with several
picks claims the same tasks as several turns with one pick each, and leaves the same state.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from rota.protocol.new_tasks import NewTask
from rota.protocol.nodes import Announced
from rota.protocol.outcome import DONE, Outcome, RetryOutcome, Settlement
from rota.protocol.tiers import Domain, QueueCondition, QueueShare, domain_of, pack_tiers
from rota.protocol.turns import Claim, Turn, TurnReply, TurnStatus
from rota.protocol.wire import Packed
from support.clock import TimedFleet
from support.protocol import SECOND_US, Fleet, body_of, one_tier, tiers, turn_of
from support.servers import Server

TTL_MS = 600_000
MOST = 50
Q = one_tier("q")


@pytest.fixture
def fleets(server: Server, namespace: str) -> Iterator[tuple[TimedFleet, TimedFleet]]:
    pair = TimedFleet(server, namespace), TimedFleet(server, f"{namespace}-twin")
    yield pair
    for fleet in pair:
        fleet.forget()
        fleet.close()


def flood(fleet: Fleet, each: int, *queues: str) -> None:
    for queue in queues:
        fleet.push(*(f"{queue}.{number}" for number in range(each)), queue=queue)


def tiers_and_weights(fleet: Fleet) -> None:
    flood(fleet, 4, "high")
    flood(fleet, 20, "x", "y", "z")


def cancelled_delayed_and_bare(fleet: Fleet) -> None:
    flood(fleet, 6, "high", "x", "y")
    for task_id in ("high.0", "x.1", "x.2", "x.3", "x.4", "x.5", "y.5"):
        fleet.run(fleet.store.cancel(task_id))
    fleet.enqueue(NewTask("soon", "y", body_of("soon", "y"), "+1"), NewTask("soon.too", "x", b"[]", "+1"))
    fleet.promote()
    fleet.redis.rpush(fleet.keys.ready_lane("z"), '["bare","z","work",[]]', "no name")


def bounded(fleet: Fleet) -> None:
    flood(fleet, 20, "capped", "rated", "few", "plain")


def one_bounded(fleet: Fleet) -> None:
    flood(fleet, 20, "capped")


def paused(fleet: Fleet) -> None:
    flood(fleet, 5, "high", "x", "y")
    fleet.run(fleet.store.pause("high"))


def a_tenant(fleet: Fleet) -> None:
    flood(fleet, 30, "t-1")


def tenants(fleet: Fleet) -> None:
    flood(fleet, 9, "t-1", "t-2", "t-big-1", "t-big-2", "named")
    fleet.run(fleet.store.cancel("t-2.0"))


NAMED = (
    domain_of([QueueShare("high")]),
    domain_of([QueueShare("x", weight=3), QueueShare("y"), QueueShare("z", weight=2)]),
)
BOUNDED = (
    domain_of([QueueShare("capped", cap=3), QueueShare("rated", interval_us=SECOND_US, burst=4)]),
    domain_of([QueueShare("few", condition="few"), QueueShare("plain", weight=2)]),
)
TENANTS = (
    domain_of([QueueShare("t-*"), QueueShare("t-big-*", weight=2, cap=3, condition="few"), QueueShare("named")]),
)


SCENES = [
    (NAMED, tiers_and_weights),
    (NAMED, cancelled_delayed_and_bare),
    (NAMED, paused),
    (BOUNDED, bounded),
    (BOUNDED, one_bounded),
    (TENANTS, a_tenant),
    (TENANTS, tenants),
]


def claimed_by(fleet: TimedFleet, serving: Packed, picks: int) -> tuple[list[str], int]:
    """Let a worker claim tasks until it has 50 or finds no more: in a single turn with many picks, or in many turns
    with one pick. The clock stands still. Returns the ids of the claimed tasks, and how many microseconds the worker
    may sleep afterwards.
    """
    claimed: list[str] = []
    owner, moment = fleet.register(), fleet.clock_us
    while True:
        fleet.clock_us = moment
        reply = fleet.run(fleet.store.turn(owner, serving, Turn(1, claimed, picks=picks)))
        claimed += [claim.entry.id for claim in reply.claims]
        if picks > 1 or not reply.claims or len(claimed) == MOST:
            return claimed, reply.wait_us


def left_in(fleet: Fleet) -> dict[str, str]:
    """Return all keys of the namespace with their values. The doorbells are left out, because a single turn rings a
    doorbell once, but several turns ring it several times.
    """
    prefix = f"{{{fleet.keys.namespace}}}:"
    found = {key.removeprefix(prefix): value for key, value in fleet.snapshot().items()}
    return {key: value for key, value in found.items() if not key.startswith(("doorbell", "sent:"))}


@pytest.mark.parametrize(("domains", "fill"), SCENES, ids=[fill.__name__ for _, fill in SCENES])
def test_a_turn_with_many_picks_has_the_effect_of_many_turns(
    fleets: tuple[TimedFleet, TimedFleet], domains: tuple[Domain, ...], fill: Callable[[Fleet], None]
) -> None:
    found = []
    for fleet, picks in zip(fleets, (1, MOST), strict=True):
        with_patterns = tuple(domain for domain in domains if domain.has_patterns)
        fleet.run(fleet.store.announce("node", b"{}", TTL_MS, [], Announced(domains=with_patterns)))
        fleet.run(fleet.store.check_conditions(TTL_MS, [QueueCondition("few", "lua", "return running < 4")]))
        fill(fleet)
        found.append((claimed_by(fleet, pack_tiers(domains), picks), left_in(fleet)))
    assert found[0] == found[1]
    assert len(found[0][0][0]) > 1


@pytest.mark.parametrize("picks", [2, 3, 4, 5])
def test_a_turn_with_many_picks_returns_the_wait_of_the_last_one(
    fleets: tuple[TimedFleet, TimedFleet], picks: int
) -> None:
    serving = pack_tiers((domain_of([QueueShare("rated", interval_us=SECOND_US, burst=2), QueueShare("plain")]),))
    by_one, by_many = fleets
    for fleet in fleets:
        flood(fleet, 5, "rated", "plain")
    owner = by_one.register()
    held: list[str] = []
    by_one.clock_us = moment = by_one.clock_us
    for _ in range(picks):
        by_one.clock_us = moment
        one = by_one.run(by_one.store.turn(owner, serving, Turn(1, held)))
        held += [claim.entry.id for claim in one.claims]
    many = by_many.run(by_many.store.turn(by_many.register(), serving, Turn(1, picks=picks)))
    assert ([claim.entry.id for claim in many.claims], many.wait_us) == (held, one.wait_us)


def test_a_turn_returns_fewer_tasks_than_picks_only_if_no_more_are_left(fleet: Fleet) -> None:
    flood(fleet, 300, "q")
    # Cancel 290 of these tasks by writing their state.
    fleet.redis.hset(fleet.keys.tasks, mapping={f"q.{number}": "" for number in range(290)})
    reply = fleet.run(fleet.store.turn(fleet.register(), Q, Turn(1, picks=50)))
    assert (reply.status, len(reply.claims), len(reply.dropped)) == (TurnStatus.OK, 10, 290)


def test_a_turn_of_many_picks_stops_at_its_bound_and_asks_to_be_repeated(fleet: Fleet) -> None:
    for at in range(0, 900, 300):
        fleet.push(*(str(number) for number in range(at, at + 300)))
    # Cancel these tasks by writing their state.
    fleet.redis.hset(fleet.keys.tasks, mapping={str(number): "" for number in range(5, 600)})
    owner = fleet.register()
    first = fleet.run(fleet.store.turn(owner, Q, Turn(1, tokens=["q"], picks=50)))
    assert (first.status, len(first.claims)) == (TurnStatus.MORE, 5)
    held = [claim.entry.id for claim in first.claims]
    rest = fleet.run(fleet.store.turn(owner, Q, Turn(1, held, tokens=["q"], picks=45)))
    assert (rest.status, len(rest.claims), rest.claims[0].entry.id) == (TurnStatus.OK, 45, "600")


def test_turns_with_the_most_picks_get_past_many_cancelled_entries(fleet: Fleet) -> None:
    """Both queues have more cancelled entries than one call may check."""
    serving = one_tier("x", "y")
    for at in range(0, 900, 450):
        for queue in ("x", "y"):
            fleet.push(*(f"{queue}.{number}" for number in range(at, at + 450)), queue=queue)
    for task_id in ("x.0", "y.0", "x.7"):
        fleet.run(fleet.store.cancel(task_id))
    owner, claimed = fleet.register(), 0
    while claimed < 512:
        reply = fleet.run(fleet.store.turn(owner, serving, Turn(1, None, picks=512 - claimed)))
        assert reply.claims or reply.dropped
        claimed += len(reply.claims)
    assert fleet.inflight(owner)[:6] == ["x.1", "y.1", "x.2", "y.2", "x.3", "y.3"]


def test_a_turn_with_many_picks_is_repeated_after_a_lost_reply(fleet: Fleet) -> None:
    flood(fleet, 5, "x", "y")
    owner, serving = fleet.register(), one_tier("x", "y")
    claims = fleet.run(fleet.store.turn(owner, serving, Turn(1, picks=50))).claims
    again = fleet.run(fleet.store.turn(owner, serving, Turn(1, picks=50)))
    assert (again.status, again.claims, len(claims)) == (TurnStatus.AGAIN, claims, 10)


def test_a_turn_wakes_workers_only_for_queues_that_still_have_tasks(fleet: Fleet) -> None:
    flood(fleet, 4, "x")
    flood(fleet, 2, "y")
    for queue in ("x", "y"):
        fleet.silence(queue)
    fleet.run(fleet.store.turn(fleet.register(), one_tier("x", "y"), Turn(1, picks=5)))
    assert (fleet.bell("x"), fleet.bell("y")) == (1, 0)


def test_a_turn_that_does_not_name_held_tasks_gets_only_new_ones(fleet: Fleet) -> None:
    flood(fleet, 9, "q")
    owner = fleet.register()
    fleet.claim(owner, Q, limit=3)
    reply = fleet.run(fleet.store.turn(owner, Q, Turn(1, None, picks=50)))
    assert (reply.status, len(reply.claims)) == (TurnStatus.OK, 6)


# Entries that must run alone


def crashed(fleet: Fleet, task_id: str, queue: str = "q") -> bytes:
    """Put a task that has crashed at the head of its queue. Returns the entry of the task."""
    fleet.push(task_id, queue=queue)
    owner = fleet.register("node:crash")
    while fleet.claim(owner, one_tier(queue)) != [task_id]:
        pass
    fleet.exit(owner, [task_id])
    return str(fleet.redis.lindex(fleet.keys.delayed_lane(queue), 0)).encode()


def test_a_task_that_crashed_is_claimed_only_by_an_idle_worker(fleet: Fleet) -> None:
    guilty = crashed(fleet, "guilty")
    serving = tiers([QueueShare("high")], [QueueShare("q"), QueueShare("r")])
    flood(fleet, 2, "high", "q", "r")
    owner = fleet.register()

    def turn(*held: Claim, settled: Claim | None = None, quarantined: bytes = b"") -> TurnReply:
        turn = turn_of([Settlement(settled.entry, DONE)] if settled else [], 1, [claim.entry.id for claim in held])
        return fleet.run(fleet.store.turn(owner, serving, replace(turn, picks=50, quarantined=quarantined)))

    first = turn()
    assert (first.status, first.quarantined) == (TurnStatus.QUARANTINE, guilty)
    assert [claim.entry.id for claim in first.claims] == ["high.0", "high.1"]
    fleet.push("high.2", queue="high")  # the next task in order, which must not be claimed either
    one, other = first.claims
    fewer = turn(other, settled=one, quarantined=first.quarantined)
    assert (fewer.status, fewer.claims, fewer.quarantined) == (TurnStatus.QUARANTINE, (), guilty)
    then = turn(settled=other, quarantined=fewer.quarantined)
    assert (then.status, [claim.entry.id for claim in then.claims]) == (TurnStatus.QUARANTINE, ["guilty"])
    beside = turn(*then.claims, quarantined=then.quarantined)
    assert (beside.status, beside.claims) == (TurnStatus.QUARANTINE, ())
    last = turn(settled=then.claims[0], quarantined=beside.quarantined)
    assert (last.status, len(last.claims), last.claims[0].entry.id) == (TurnStatus.OK, 5, "high.2")


@pytest.mark.parametrize("held", [None, ["guilty"]], ids=["unnamed", "named"])
def test_a_worker_claims_nothing_else_with_a_task_that_crashed(fleet: Fleet, held: list[str] | None) -> None:
    guilty = crashed(fleet, "guilty")
    fleet.push("a")
    owner = fleet.register()
    assert fleet.claim(owner, Q) == ["guilty"]
    reply = fleet.run(fleet.store.turn(owner, Q, Turn(1, held, picks=50)))
    assert (reply.status, reply.claims, reply.quarantined) == (TurnStatus.QUARANTINE, (), guilty)


def test_a_crashed_task_can_be_claimed_by_an_idle_worker_in_the_meantime(fleet: Fleet) -> None:
    fleet.push("a")
    owner = fleet.register()
    held = fleet.claim(owner, Q)
    guilty = crashed(fleet, "guilty")
    fleet.push("b")
    fleet.silence()
    blocked = fleet.run(fleet.store.turn(owner, Q, Turn(1, held, picks=50)))
    assert (blocked.status, blocked.quarantined, fleet.bell()) == (TurnStatus.QUARANTINE, guilty, 1)
    assert fleet.claim(fleet.register("node:2"), Q) == ["guilty"]
    reply = fleet.run(fleet.store.turn(owner, Q, Turn(1, held, picks=50, quarantined=guilty)))
    assert (reply.status, [claim.entry.id for claim in reply.claims]) == (TurnStatus.OK, ["b"])


def test_a_crashed_task_of_a_paused_queue_does_not_block_other_claims(fleet: Fleet) -> None:
    serving = one_tier("q", "r")
    fleet.push("a", queue="r")
    owner = fleet.register()
    held = fleet.claim(owner, serving)
    guilty = crashed(fleet, "guilty")
    fleet.push("b", queue="r")
    fleet.run(fleet.store.pause("q"))
    reply = fleet.run(fleet.store.turn(owner, serving, Turn(1, held, picks=50, quarantined=guilty)))
    assert (reply.status, [claim.entry.id for claim in reply.claims]) == (TurnStatus.OK, ["b"])


def test_five_hundred_tasks_of_a_dead_owner_are_charged_and_requeued(fleet: Fleet) -> None:
    """A single call requeues all of them. Afterwards each task has one crash, so each must run alone in its next
    worker.
    """
    ids = [f"t{number}" for number in range(500)]
    fleet.push(*ids)
    owner = fleet.register()
    assert len(fleet.run(fleet.store.turn(owner, Q, Turn(1, picks=500))).claims) == 500
    reaped = fleet.exit(owner, ids, Q)
    assert [(entry.id, entry.crashes, entry.releases) for entry in reaped.requeued] == [(id_, 1, 0) for id_ in ids]
    assert fleet.delayed_lane() == ids
    alone = fleet.run(fleet.store.turn(fleet.register(), Q, Turn(1, picks=50)))
    assert (alone.status, len(alone.claims)) == (TurnStatus.QUARANTINE, 1)
    audit = fleet.run(fleet.store.audit())
    assert (audit.live, audit.missing) == (500, 0)


@pytest.mark.parametrize("outcome", [DONE, RetryOutcome(0)], ids=["done", "retry"])
def test_a_worker_can_settle_its_tasks_in_any_order(fleet: Fleet, outcome: Outcome) -> None:
    flood(fleet, 200, "q")
    owner = fleet.register()
    claims = list(fleet.run(fleet.store.turn(owner, Q, Turn(1, picks=200))).claims)
    random.Random(3).shuffle(claims)
    for _ in range(4):
        ended, claims = claims[:50], claims[50:]
        reply = fleet.turn(owner, Q, *((claim, outcome) for claim in ended), limit=0)
        assert (reply.stale, set(fleet.inflight(owner))) == ((), {claim.entry.id for claim in claims})
    assert fleet.redis.hget(fleet.keys.counts, "running:q") == "0"
