"""The choice of the pollers that sweep for the fleet, and what the scripts do less often in a large fleet."""

from rota.protocol.nodes import heartbeat_of
from rota.protocol.replies import Swept
from support.clock import TimedFleet
from support.protocol import SECOND_US, Fleet, one_tier

PLACES = 8
LEASE_MS = 20_000
SHORT_LEASE_MS = 17_000
PLACE_SECONDS = 5
MANY_OWNERS = 1200


def sweep(fleet: Fleet, poller: str, lease_ms: int = LEASE_MS) -> Swept:
    return fleet.run(fleet.store.sweep(lease_ms, poller))


def reserves(fleet: Fleet, pollers: list[str], lease_ms: int = LEASE_MS) -> list[str]:
    """Let each of these pollers sweep once, and return the pollers that are reserves."""
    return [poller for poller in pollers if sweep(fleet, poller, lease_ms).is_reserve]


def named(*numbers: int) -> list[str]:
    return [f"p{number}" for number in numbers]


def free_places(fleet: Fleet) -> int:
    return int(fleet.redis.hget(fleet.keys.pulse, "free") or 0)


def test_up_to_eight_pollers_sweep_and_the_others_are_reserves(timed: TimedFleet) -> None:
    pollers = named(*range(PLACES + 2))
    assert reserves(timed, pollers) == named(8, 9)
    assert free_places(timed) == 0
    assert reserves(timed, pollers) == named(8, 9)


def test_a_reserve_gets_the_place_of_a_poller_that_no_longer_sweeps(timed: TimedFleet) -> None:
    reserves(timed, named(*range(PLACES)))
    timed.clock_us += PLACE_SECONDS * SECOND_US // 2
    reserves(timed, named(*range(PLACES - 1)))
    assert reserves(timed, named(8)) == named(8)
    timed.clock_us += PLACE_SECONDS * SECOND_US // 2
    assert reserves(timed, named(8, 9)) == named(9)
    assert reserves(timed, named(*range(PLACES - 1))) == []


def test_the_reply_to_a_reserve_has_no_duties(timed: TimedFleet) -> None:
    timed.push("late", due="+1000000")
    reserves(timed, named(*range(PLACES)))
    swept = sweep(timed, "reserve")
    assert swept == Swept(swept.now_us, 0, swept.grace_until_us, (), None, is_reserve=True)


def test_a_reserve_does_not_record_a_sweep(timed: TimedFleet) -> None:
    reserves(timed, named(*range(PLACES)))
    before = timed.redis.hgetall(timed.keys.pulse)
    sweep(timed, "reserve")
    assert timed.redis.hgetall(timed.keys.pulse) == before


def test_every_poller_with_a_short_lease_sweeps(timed: TimedFleet) -> None:
    assert reserves(timed, named(*range(PLACES + 2)), SHORT_LEASE_MS) == []


def test_places_with_an_impossible_end_count_as_free(timed: TimedFleet) -> None:
    """The end of a place may be impossibly late if the clock was set back, or invalid if another program wrote it."""
    ends = str(timed.clock_us + 3600 * SECOND_US)
    for text in (" ".join(f"{poller} {ends}" for poller in named(*range(PLACES))), "p1 p2 p3", "nan"):
        timed.redis.hset(timed.keys.pulse, "sweepers", text)
        assert reserves(timed, ["reserve"]) == []


def test_the_nodes_are_read_once_a_second_and_for_each_new_node(timed: TimedFleet) -> None:
    def alive(node: str, ttl_ms: int = LEASE_MS) -> int:
        return timed.run(timed.store.announce(node, heartbeat_of(1, {}), ttl_ms, ["q"])).nodes

    assert [alive("a"), alive("b", ttl_ms=100), alive("a")] == [1, 2, 2]
    timed.clock_us += SECOND_US // 2
    assert alive("a") == 2
    assert alive("c") == 2
    timed.clock_us += SECOND_US
    timed.redis.hset(timed.keys.pulse, "nodes_at", timed.clock_us + 3600 * SECOND_US)
    assert alive("a") == 2


def test_the_cost_of_an_announcement_does_not_grow_with_the_number_of_nodes(fleet: Fleet) -> None:
    call = fleet.store.announce("node", heartbeat_of(1, {}), LEASE_MS, ["q"])
    fleet.run(call)
    fleet.redis.hset(fleet.keys.pulse, "nodes_at", fleet.now_us() - 1)
    before = fleet.redis.info("commandstats")["cmdstat_hgetall"]["calls"]
    for _ in range(3):
        fleet.run(call)
    # The only remaining HGETALL reads the domains with patterns.
    assert fleet.redis.info("commandstats")["cmdstat_hgetall"]["calls"] == before + 3


def test_running_tasks_of_more_than_a_thousand_owners_are_counted(fleet: Fleet) -> None:
    for first in range(0, MANY_OWNERS, 100):
        fleet.run(fleet.store.register(LEASE_MS, [f"idle:{first + number}" for number in range(100)]))
    fleet.push("a")
    fleet.turn(fleet.register("z:1"), one_tier("q"), limit=1)
    fleet.redis.hset(fleet.keys.counts, "running:q", 7)
    sweep(fleet, "")
    assert fleet.redis.hget(fleet.keys.counts, "running:q") == "1"
