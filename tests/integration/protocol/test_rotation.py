"""The fair rotation among the queues of one tier."""

import pytest

from rota.protocol.outcome import Release
from rota.protocol.tiers import QueueShare
from rota.protocol.wire import Packed
from support.protocol import Fleet, one_tier, tiers

pytestmark = pytest.mark.usefixtures("picks")


def flood(fleet: Fleet, *queues: str, each: int = 40) -> None:
    for queue in queues:
        fleet.push(*(f"{queue}{number}" for number in range(each)), queue=queue)


def serve(fleet: Fleet, serving: Packed, times: int, owners: int = 1) -> list[str]:
    """Register this many owners, and let them claim this many tasks. Returns the queues of the claims, in order."""
    return fleet.served(serving, times, *(fleet.register(f"node:{place}") for place in range(owners)))


@pytest.mark.parametrize("owners", [1, 3])
def test_equally_loaded_queues_of_a_tier_are_served_in_strict_turn(fleet: Fleet, owners: int) -> None:
    flood(fleet, "x", "y", "z")
    order = serve(fleet, one_tier("x", "y", "z"), 30, owners)
    for at in range(len(order) - 2):
        assert set(order[at : at + 3]) == {"x", "y", "z"}


def test_weights_three_to_one_give_three_claims_to_one(fleet: Fleet) -> None:
    flood(fleet, "x", "y")
    order = serve(fleet, tiers([QueueShare("x", weight=3), QueueShare("y")]), 40)
    for at in range(0, 40, 4):
        assert order[at : at + 4].count("x") == 3


def test_a_flooded_queue_does_not_delay_the_short_queues_of_its_tier(fleet: Fleet) -> None:
    flood(fleet, "x", each=400)
    flood(fleet, "y", "z", each=5)
    order = serve(fleet, one_tier("x", "y", "z"), 15)
    assert order.count("y") == order.count("z") == 5


def test_a_refilled_queue_is_served_at_once_and_then_equally(fleet: Fleet) -> None:
    flood(fleet, "x")
    serving = one_tier("x", "y")
    serve(fleet, serving, 20)
    flood(fleet, "y")
    order = serve(fleet, serving, 10)
    assert order[0] == "y"
    assert order.count("y") == 5


def test_queues_are_served_in_turn_even_if_each_claim_is_by_a_new_worker(fleet: Fleet) -> None:
    flood(fleet, "x", "y", "z")
    serving = one_tier("x", "y", "z")
    order = [serve(fleet, serving, 1)[0] for _ in range(9)]
    for at in range(7):
        assert len(set(order[at : at + 3])) == 3


def test_pools_that_serve_the_same_queues_share_one_rotation(fleet: Fleet) -> None:
    flood(fleet, "x", "y")
    order = [serve(fleet, one_tier("x", "y"), 1)[0], serve(fleet, one_tier("y", "x"), 1)[0]]
    assert set(order) == {"x", "y"}


def test_a_claim_of_several_tasks_counts_against_their_queue_for_each(fleet: Fleet) -> None:
    flood(fleet, "x", "y")
    serving = one_tier("x", "y")
    owner = fleet.register()
    first = fleet.claim(owner, serving, limit=4)[0][0]
    other = fleet.register("node:2")
    order = [fleet.claim(fleet.register(f"node:{place}"), serving)[0][0] for place in range(3, 7)]
    assert order == [{"x": "y", "y": "x"}[first]] * 4
    assert fleet.inflight(other) == []


def test_a_released_entry_is_credited_to_its_queue(fleet: Fleet) -> None:
    flood(fleet, "x", "y")
    serving = one_tier("x", "y")
    owner = fleet.register()
    claims = fleet.turn(owner, serving, limit=4).claims
    fleet.turn(owner, serving, *((claim, Release()) for claim in claims), limit=0)
    order = serve(fleet, serving, 8)
    assert order.count("x") == order.count("y") == 4


def test_the_rotation_stays_fair_after_very_many_claims(fleet: Fleet) -> None:
    """Virtual times are compared as text that is padded to a fixed length, so they must never have more digits than
    this length.
    """
    late = f"{10**16 - 300_000:020d} {5:012d}"
    fleet.redis.hset(fleet.keys.rotation, mapping={"x,y": late, "x,y x": late, "x,y y": late})
    flood(fleet, "x", "y")
    order = serve(fleet, one_tier("x", "y"), 20)
    assert order.count("x") == order.count("y") == 10


def test_the_rotation_stays_fair_if_its_stored_times_have_another_format(fleet: Fleet) -> None:
    fleet.redis.hset(fleet.keys.rotation, mapping={"x,y": "1441440 3", "x,y x": "1441440 3", "x,y y": "720720 2"})
    flood(fleet, "x", "y")
    order = serve(fleet, one_tier("x", "y"), 20)
    assert order.count("x") == order.count("y") == 10


def test_a_queue_alone_in_its_tier_leaves_no_rotation_key(fleet: Fleet) -> None:
    flood(fleet, "x")
    owner = fleet.register()
    [claim] = fleet.turn(owner, one_tier("x")).claims
    fleet.turn(owner, one_tier("x"), (claim, Release()))
    assert serve(fleet, one_tier("x"), 3) == ["x"] * 3
    assert not fleet.redis.exists(fleet.keys.rotation)
