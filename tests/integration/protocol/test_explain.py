"""Explanations. Workers claim exactly the tasks that an explanation predicts, and an explanation changes no data."""

from collections.abc import Iterator

import pytest

from rota.protocol.entry import Entry
from rota.protocol.nodes import NodeReport, heartbeat_of
from rota.protocol.outcome import Done
from rota.protocol.tiers import QueueShare, domain_of, pack_tiers
from rota.protocol.turns import Claim, ClaimOrder
from rota.protocol.wire import Packed
from support.clock import TimedFleet
from support.foreign import TEXTS
from support.protocol import LEASE_MS, tiers
from support.servers import Server
from support.situations import Situation

NEXT = 10
SITUATIONS = 200


@pytest.fixture
def timed(server: Server, namespace: str) -> Iterator[TimedFleet]:
    made = TimedFleet(server, namespace)
    yield made
    made.close()


def explained(fleet: TimedFleet, serving: Packed, count: int = NEXT) -> ClaimOrder:
    return fleet.run(fleet.store.explain(serving, count))


def claimed(fleet: TimedFleet, serving: Packed, count: int = NEXT) -> list[tuple[str, Claim]]:
    """Make up to `count` claims, each by a different worker. Returns each claim with its owner."""
    claims: list[tuple[str, Claim]] = []
    for owner in fleet.run(fleet.store.register(LEASE_MS, ["next:1"] * count)):
        claims += [(owner, claim) for claim in fleet.turn(owner, serving).claims]
    return claims


def known_fields(entry: Entry) -> tuple[object, ...]:
    """Return those fields of an entry that can be predicted before it is claimed. The id of an adopted item is
    replaced, because it depends on the time of the adoption.
    """
    task_id = "adopted" if entry.id.startswith("adopted-") else entry.id
    return task_id, entry.queue, entry.kind, entry.failures, entry.crashes, entry.losses, entry.releases


def left_in(fleet: TimedFleet, queue: str) -> int:
    return len(fleet.lane(queue)) + len(fleet.delayed_lane(queue))


def is_open(fleet: TimedFleet, situation: Situation, queue: str) -> bool:
    """Whether a worker that serves only this queue can claim a task from it. Also returns True if no task is left in
    the queue.
    """
    return bool(claimed(fleet, tiers([situation.share_of(queue)]), 1)) or left_in(fleet, queue) == 0


@pytest.mark.parametrize("first", range(0, SITUATIONS, 50))
def test_workers_claim_tasks_as_explained_in_random_situations(timed: TimedFleet, first: int) -> None:
    for seed in range(first, first + 50):
        situation = Situation.drawn(timed, seed)
        order = explained(timed, situation.tiers)
        claims = [claim for _, claim in claimed(timed, situation.tiers)]
        assert [known_fields(each.entry) for each in order.claims] == [known_fields(claim.entry) for claim in claims], (
            seed
        )
        assert order.is_whole
        for row in order.queues if seed % 4 == 0 else ():
            assert row.left == left_in(timed, row.queue), (seed, row)
            assert not row.left or row.is_open == is_open(timed, situation, row.queue), (seed, row)


def without_clock(fleet: TimedFleet) -> dict[str, str]:
    return {key: digest for key, digest in fleet.snapshot().items() if not key.endswith(":clock")}


def test_explaining_changes_nothing(timed: TimedFleet) -> None:
    for seed in range(20):
        situation = Situation.drawn(timed, seed)
        before = without_clock(timed)
        explained(timed, situation.tiers, 50)
        assert without_clock(timed) == before, seed


def test_a_large_mixed_backlog_is_claimed_exactly_as_explained(timed: TimedFleet) -> None:
    """In each step, the test compares the predicted tasks with the claimed tasks, ends the claimed tasks, and lets time
    pass so that rates permit more starts. It repeats this until no task is left.
    """
    situation = next(drawn for seed in range(1000, 2000) if is_large(drawn := Situation.drawn(timed, seed)))
    drained = 0
    for _ in range(200):
        order = explained(timed, situation.tiers)
        claims = claimed(timed, situation.tiers)
        assert [known_fields(each.entry) for each in order.claims] == [known_fields(claim.entry) for _, claim in claims]
        for owner, claim in claims:
            timed.turn(owner, situation.tiers, (claim, Done()), limit=0)
        drained += len(claims)
        situation.go_on()
        if not any(left_in(timed, queue) for queue in situation.queues):
            break
    assert drained > 40
    assert sum(left_in(timed, queue) for queue in situation.queues) == 0


def is_large(situation: Situation) -> bool:
    """Whether the situation includes everything that this test needs: several tiers, a pattern, a cap and a rate, but
    no queue that stays closed.
    """
    shares = [share for tier in situation.shares for share in tier]
    has_all = any(share.is_pattern for share in shares) and any(share.cap for share in shares)
    is_drained = all(share.condition in {"", "few", "open"} for share in shares)
    return len(situation.shares) > 1 and has_all and is_drained and any(share.interval_us for share in shares)


def test_an_explanation_is_marked_incomplete_if_it_reaches_its_bound(timed: TimedFleet) -> None:
    queues = [QueueShare(f"q{number}") for number in range(100)]
    for share in queues:
        timed.push(*(f"{share.name}.{number}" for number in range(12)), queue=share.name)
    order = explained(timed, tiers(queues), 1000)
    assert not order.is_whole
    assert 50 < len(order.claims) < 1000


def test_explain_and_a_claim_treat_overwritten_values_alike(timed: TimedFleet) -> None:
    serving = tiers([QueueShare("q", cap=3), QueueShare("r", interval_us=1000)])
    timed.push("a", "b", queue="q")
    timed.push("c", "d", queue="r")
    timed.redis.rpush(timed.keys.ready_lane("q"), *(text.decode(errors="replace") for text in TEXTS[:5]))
    timed.redis.hset(timed.keys.counts, "running:q", "nonsense")
    timed.redis.hset(timed.keys.rates, "r", "1e300")
    timed.redis.hset(timed.keys.rotation, "q,r q", "x")
    order = explained(timed, serving)
    assert [known_fields(each.entry) for each in order.claims] == [
        known_fields(claim.entry) for _, claim in claimed(timed, serving)
    ]


def test_a_node_with_an_invalid_heartbeat_is_read_as_having_no_pools(timed: TimedFleet) -> None:
    pools = {"mail": [domain_of([QueueShare("q", 3.0), QueueShare("r")])]}
    timed.run(timed.store.announce("b", heartbeat_of(1, pools), 60_000, ["q", "r"]))
    timed.run(timed.store.announce("gone", heartbeat_of(1, pools), 0, ["q"]))
    for number, said in enumerate(HEARTBEATS):
        timed.run(timed.store.announce(f"foreign{number}", said, 60_000, ["q"]))
    found = {node.name: node for node in timed.run(timed.store.nodes())}
    assert not found.pop("gone").is_alive
    assert found.pop("b").pools == {"mail": pack_tiers(pools["mail"])}
    assert {(len(node.pools), node.report, node.silent_seconds) for node in found.values()} == {(0, NodeReport(), 0.0)}


HEARTBEATS = [
    b"{}",
    b"[]",
    b"\xff",
    b"[" * 20_000,
    b'{"pools":3}',
    b'{"pools":{"p":[]}}',
    b'{"pools":{"p":[1]}}',
    b'{"pools":{"p":["x"]}}',
    b'{"pools":{"p":[1,"q","",-3]}}',
    b'{"pools":{"p":[1e99,"q","",1,"q"]}}',
    b'{"pools":{"p":[2,"q","",1,"q"]}}',
    b'{"pools":{"p":[1,"q",{},1,"q"]}}',
    b'{"report":[],"lease_seconds":"60"}',
    b'{"report":{"state":7,"url":[],"workers":true,"busy":1.5,"late":1e999,"done_per_second":"1"}}',
]
