"""Claims about explanations: what is said to be claimed next is claimed next, and nothing is changed by saying it."""

from collections.abc import Iterator

import pytest

from clock import TimedFleet
from protocol import LEASE_MS, tiers
from rota.protocol.entry import Entry
from rota.protocol.order import Order
from rota.protocol.replies import Claim
from rota.protocol.wire import Packed
from servers import Server
from situations import Situation

NEXT = 10
SITUATIONS = 200


@pytest.fixture
def timed(server: Server, namespace: str) -> Iterator[TimedFleet]:
    made = TimedFleet(server, namespace)
    yield made
    made.close()


def explained(fleet: TimedFleet, serving: Packed, count: int = NEXT) -> Order:
    return fleet.run(fleet.store.explain(serving, count))


def claimed(fleet: TimedFleet, serving: Packed, count: int = NEXT) -> list[tuple[str, Claim]]:
    """The next claims of as many workers, each with its owner."""
    claims: list[tuple[str, Claim]] = []
    for owner in fleet.run(fleet.store.register(LEASE_MS, ["next:1"] * count)):
        claims += [(owner, claim) for claim in fleet.turn(owner, serving).claims]
    return claims


def told_of(entry: Entry) -> tuple[object, ...]:
    """What is known of an entry before it is claimed: of a bare item not the instant at which it is adopted."""
    task_id = "adopted" if entry.id.startswith("adopted-") else entry.id
    return task_id, entry.queue, entry.kind, entry.failures, entry.crashes, entry.losses, entry.releases


def left_in(fleet: TimedFleet, queue: str) -> int:
    return len(fleet.lane(queue)) + len(fleet.delayed_lane(queue))


def is_open(fleet: TimedFleet, situation: Situation, queue: str) -> bool:
    """Whether a worker that serves this queue alone gets something of it, or leaves nothing behind."""
    return bool(claimed(fleet, tiers([situation.share_of(queue)]), 1)) or left_in(fleet, queue) == 0


@pytest.mark.parametrize("first", range(0, SITUATIONS, 50))
def test_the_next_ten_claims_of_200_random_situations_are_those_explained(timed: TimedFleet, first: int) -> None:
    for seed in range(first, first + 50):
        situation = Situation.drawn(timed, seed)
        order = explained(timed, situation.tiers)
        claims = [claim for _, claim in claimed(timed, situation.tiers)]
        assert [told_of(each.entry) for each in order.claims] == [told_of(claim.entry) for claim in claims], seed
        assert order.is_whole
        for row in order.queues:
            assert row.left == left_in(timed, row.queue), (seed, row)
            assert not row.left or row.is_open == is_open(timed, situation, row.queue), (seed, row)
