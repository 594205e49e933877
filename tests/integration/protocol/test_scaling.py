"""The data that masters exchange about pools with a range of workers: the leader of each pool, its loads, decisions and
backlogs.
"""

from collections.abc import Iterator

import pytest

from rota.protocol.nodes import Announced
from rota.protocol.scaling import NO_DECISION, Backlog, PoolExchange, ScalingReply, ScalingStore
from rota.protocol.tiers import Domain, QueueCondition, QueueShare, domain_of, pack_tiers
from rota.server.server_errors import Refused
from support.clock import TimedFleet
from support.protocol import SECOND_US, one_tier
from support.servers import Server

TTL_MS = 20_000
HOUR_MS = 3_600_000
TENANTS = domain_of([QueueShare("t-*")])


@pytest.fixture
def fleet(server: Server, namespace: str) -> Iterator[TimedFleet]:
    timed = TimedFleet(server, namespace)
    yield timed
    timed.close()


def exchange(
    fleet: TimedFleet,
    node: str,
    *,
    pool: str = "main",
    load: bytes = b"",
    known: int = NO_DECISION,
    decision: bytes = b"",
    tiers: tuple[Domain, ...] | None = None,
) -> ScalingReply:
    store = ScalingStore(fleet.keys.namespace)
    sent = PoolExchange(pool, load or f"load of {node}".encode(), known, decision, tiers)
    return fleet.run(store.exchange(node, TTL_MS, sent))


def advance(fleet: TimedFleet, seconds: float) -> None:
    fleet.clock_us += round(seconds * SECOND_US)


def backlog(fleet: TimedFleet, *tiers: Domain) -> dict[str, Backlog]:
    return {row.queue: row for row in exchange(fleet, "leader", tiers=tiers).backlog}


def announce(fleet: TimedFleet, *domains: Domain) -> None:
    """Announce these tiers and the settings of their queues, as a master does."""
    shares = tuple(share for domain in domains for share in domain.queues)
    with_patterns = tuple(domain for domain in domains if domain.has_patterns)
    announced = Announced(shares=shares, domains=with_patterns)
    fleet.run(fleet.store.announce("node", b"{}", HOUR_MS, [share.name for share in shares], announced))


# Leaders and loads of pools


def test_the_first_node_leads_each_pool_until_it_is_silent(fleet: TimedFleet) -> None:
    assert exchange(fleet, "a").leader == "a"
    assert exchange(fleet, "b").leader == "a"
    assert exchange(fleet, "b", pool="other").leader == "b"
    advance(fleet, TTL_MS / 1000 - 1)
    assert exchange(fleet, "b").leader == "a"
    advance(fleet, 2)
    assert exchange(fleet, "b").leader == "b"
    assert exchange(fleet, "a").leader == "b"


def test_a_node_leads_a_pool_for_as_long_as_it_keeps_calling(fleet: TimedFleet) -> None:
    for _ in range(4):
        assert exchange(fleet, "a").leader == "a"
        advance(fleet, TTL_MS / 2000)
        assert exchange(fleet, "b").leader == "a"


def test_only_the_leader_receives_the_loads_of_live_nodes(fleet: TimedFleet) -> None:
    for node in ("a", "b", "c"):
        exchange(fleet, node)
    assert exchange(fleet, "b").loads == {}
    assert exchange(fleet, "a").loads == {"b": b"load of b", "c": b"load of c"}
    advance(fleet, TTL_MS / 1000 - 1)
    exchange(fleet, "a")
    exchange(fleet, "b", load=b"new")
    advance(fleet, 2)
    assert exchange(fleet, "a").loads == {"b": b"new"}
    assert fleet.redis.hkeys(fleet.keys.loads("main")) == ["a", "b"]


def test_a_node_that_withdraws_from_a_pool_gives_up_its_load_and_its_lead(fleet: TimedFleet) -> None:
    store = ScalingStore(fleet.keys.namespace)
    for node in ("a", "b"):
        exchange(fleet, node)
    fleet.run(store.withdraw("b", "main"))
    assert exchange(fleet, "a").loads == {}
    fleet.run(store.withdraw("a", "main"))
    assert exchange(fleet, "b").leader == "b"
    fleet.run(store.withdraw("b", "main"))
    assert fleet.redis.exists(fleet.keys.loads("main")) == 0


def test_scaling_keys_expire_when_no_node_scales_the_pool(fleet: TimedFleet) -> None:
    exchange(fleet, "a", decision=b"3")
    keys = fleet.keys.scaling("main"), fleet.keys.loads("main")
    for key in keys:
        assert 0 < fleet.redis.pttl(key) <= TTL_MS
        fleet.redis.pexpire(key, 1000)
    exchange(fleet, "b")
    assert all(fleet.redis.pttl(key) > 1000 for key in keys), "as long as any node calls"


# Decisions


def test_only_the_decision_of_the_leader_takes_effect(fleet: TimedFleet) -> None:
    assert exchange(fleet, "a")[1:3] == (NO_DECISION, b"")
    made = exchange(fleet, "a", decision=b"\xff three")
    assert made.decision == b"\xff three"
    assert exchange(fleet, "b", decision=b"four")[1:3] == (made.number, b"\xff three")
    assert exchange(fleet, "b", known=made.number)[1:3] == (made.number, b"")


def test_each_scaling_decision_gets_a_new_number(fleet: TimedFleet) -> None:
    numbers = [exchange(fleet, "a", decision=text).number for text in (b"one", b"two", b"two")]
    assert numbers == sorted(set(numbers))
    assert exchange(fleet, "b", known=numbers[0])[1:3] == (numbers[2], b"two")


def test_a_decision_stays_in_force_when_the_lead_moves(fleet: TimedFleet) -> None:
    exchange(fleet, "a", decision=b"three")
    advance(fleet, TTL_MS / 1000 + 1)
    moved = exchange(fleet, "b")
    assert (moved.leader, moved.decision) == ("b", b"three")


# The backlog


def test_the_leader_gets_the_backlog_of_each_named_queue_with_tasks(fleet: TimedFleet) -> None:
    fleet.push("1", "2", queue="mail")
    advance(fleet, 3)
    fleet.push("3", queue="mail")
    fleet.push("4", queue="other")
    fleet.run(fleet.store.promote())
    named = domain_of([QueueShare("mail"), QueueShare("empty")])
    found = backlog(fleet, named)
    assert found.keys() == {"mail"}
    assert found["mail"].oldest_seconds == pytest.approx(3, abs=0.5)
    assert found["mail"]._replace(oldest_seconds=0) == Backlog("mail", 1, 3, 0, 0, is_open=True)
    assert exchange(fleet, "follower", tiers=(named,)).backlog == ()
    assert exchange(fleet, "leader").backlog == ()


def test_running_tasks_of_a_queue_with_entries_are_counted(fleet: TimedFleet) -> None:
    fleet.push("1", "2", "3", queue="mail")
    owner = fleet.register()
    fleet.claim(owner, one_tier("mail"))
    row = backlog(fleet, domain_of([QueueShare("mail")]))["mail"]
    assert (row.ready, row.running) == (2, 1)


def test_bare_pushes_to_a_named_queue_count_as_backlog_at_once(fleet: TimedFleet) -> None:
    fleet.redis.rpush(fleet.keys.ready_lane("mail"), '["work",[]]', "garbage")
    row = backlog(fleet, domain_of([QueueShare("mail")]))["mail"]
    assert (row.ready, row.oldest_seconds) == (2, 0)


def test_a_queue_that_is_paused_or_has_a_false_condition_is_not_open(fleet: TimedFleet) -> None:
    domain = domain_of([QueueShare("a"), QueueShare("b", condition="never"), QueueShare("c", condition="always")])
    announce(fleet, domain)
    conditions = [QueueCondition("never", "lua", "return false"), QueueCondition("always", "lua", "return true")]
    fleet.run(fleet.store.check_conditions(HOUR_MS, conditions))
    for queue in ("a", "b", "c"):
        fleet.push(queue, queue=queue)
    fleet.run(fleet.store.pause("a"))
    assert {name: row.is_open for name, row in backlog(fleet, domain).items()} == {"a": False, "b": False, "c": True}


def test_the_backlog_lists_each_queue_of_a_pattern(fleet: TimedFleet) -> None:
    mixed = domain_of([QueueShare("t-*"), QueueShare("t-named")], ["t-other", "t-other-*"])
    announce(fleet, mixed)
    for queue in ("t-1", "t-2", "t-named", "t-other", "t-other-1", "u-1"):
        fleet.push(f"{queue}.1", f"{queue}.2", queue=queue)
    found = backlog(fleet, mixed)
    assert {name: row.ready for name, row in found.items()} == {"t-1": 2, "t-2": 2, "t-named": 2}
    assert {row.queues for row in found.values()} == {1}


def test_the_backlog_of_a_pattern_is_estimated_beyond_200_queues(fleet: TimedFleet) -> None:
    announce(fleet, TENANTS)
    for number in range(300):
        fleet.push(f"{number}.1", f"{number}.2", queue=f"t-{number}")
    found = backlog(fleet, TENANTS)
    assert len(found) == 201
    assert found["t-*"] == Backlog("t-*", 100, 200, 0, 0, is_open=True)
    assert sum(row.ready for row in found.values()) == 600


def test_paused_queues_of_a_pattern_are_not_estimated_as_open(fleet: TimedFleet) -> None:
    announce(fleet, TENANTS)
    for number in range(300):
        fleet.push(f"{number}", queue=f"t-{number}")
        fleet.run(fleet.store.pause(f"t-{number}"))
    assert not any(row.is_open for row in backlog(fleet, TENANTS).values())


@pytest.mark.parametrize("others", [300, 1200])
def test_other_queues_do_not_hide_queues_of_a_pattern(fleet: TimedFleet, others: int) -> None:
    """When a pattern is announced for the first time, every queue with entries is marked in the order of the pattern's
    queues, even if its name does not match. The first claims remove the marks of queues that do not match.
    """
    fleet.redis.zadd(fleet.keys.turns(TENANTS.name), {f"a-{number}": -1 for number in range(others)})
    announce(fleet, TENANTS)
    fleet.push("1", queue="t-1")
    expected = "t-1" if others < 1000 else "t-*"
    assert {name: row.ready for name, row in backlog(fleet, TENANTS).items()} == {expected: 1}


def test_queues_that_wait_for_a_cap_or_a_rate_are_in_the_backlog(fleet: TimedFleet) -> None:
    domain = domain_of([QueueShare("t-*", interval_us=60 * SECOND_US), QueueShare("capped", cap=1)])
    announce(fleet, domain)
    fleet.push("1", "2", queue="t-1")
    fleet.push("3", "4", queue="capped")
    for number in range(4):
        fleet.claim(fleet.register(f"node:{number}"), pack_tiers([domain]))
    assert {name: row.ready for name, row in backlog(fleet, domain).items()} == {"t-1": 1, "capped": 1}


# Foreign values


def test_overwritten_scaling_values_stop_neither_leaders_nor_loads(fleet: TimedFleet) -> None:
    fleet.redis.hset(fleet.keys.scaling("main"), mapping={"lead": "x", "number": "nan", "decision": "three"})
    fleet.redis.hset(fleet.keys.loads("main"), mapping={"x": "y", "z": "99999999999999999999 load"})
    reply = exchange(fleet, "a")
    assert (reply.leader, reply.number, reply.loads) == ("a", NO_DECISION, {})
    assert exchange(fleet, "a", decision=b"four").decision == b"four"


@pytest.mark.parametrize("queue", ["q", "t-1"])
def test_a_lane_of_another_type_counts_as_empty(fleet: TimedFleet, queue: str) -> None:
    domain = domain_of([QueueShare("q"), QueueShare("t-*")])
    announce(fleet, domain)
    fleet.push("1", queue="t-1")
    fleet.push("2", queue="q")
    fleet.redis.delete(fleet.keys.ready_lane(queue))
    fleet.redis.set(fleet.keys.ready_lane(queue), "garbage")
    assert backlog(fleet, domain).keys() == {"q", "t-1"} - {queue}


@pytest.mark.parametrize("key", ["scaling", "loads"])
def test_a_scaling_key_of_the_wrong_type_affects_only_its_own_pool(fleet: TimedFleet, key: str) -> None:
    fleet.redis.set(getattr(fleet.keys, key)("main"), "garbage")
    with pytest.raises(Refused):
        exchange(fleet, "a")
    assert exchange(fleet, "a", pool="other").leader == "a"
    assert fleet.redis.get(getattr(fleet.keys, key)("main")) == "garbage"
