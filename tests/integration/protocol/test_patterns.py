"""Queues that belong to a pattern: which workers serve them, in which order, and which keys they leave behind."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from rota.protocol.new_tasks import NewTask
from rota.protocol.nodes import Announced
from rota.protocol.outcome import Done, Release
from rota.protocol.tiers import Domain, QueueShare, domain_of, pack_tiers
from rota.protocol.turns import Claim, TurnStatus
from rota.protocol.wire import Packed
from support.clock import TimedFleet
from support.foreign import Place, plant
from support.protocol import LEASE_MS, SECOND_US, Fleet, body_of
from support.servers import Server

HOUR_MS = 3_600_000
TENANTS = QueueShare("t-*")


@pytest.fixture
def fleet(server: Server, namespace: str) -> Iterator[TimedFleet]:
    timed = TimedFleet(server, namespace)
    yield timed
    timed.close()


def serve(fleet: TimedFleet, *domains: Domain) -> Packed:
    """Announce these tiers as a master does. Returns them in the format in which a worker sends them with a turn."""
    names = [share.name for domain in domains for share in domain.queues]
    with_patterns = tuple(domain for domain in domains if domain.has_patterns)
    fleet.run(fleet.store.announce("node", b"{}", HOUR_MS, names, Announced(domains=with_patterns)))
    return pack_tiers(domains)


def flood(fleet: TimedFleet, *queues: str, each: int = 10) -> None:
    for queue in queues:
        fleet.push(*(f"{queue}.{number}" for number in range(each)), queue=queue)


def order_of(fleet: TimedFleet, serving: Packed, times: int, owner: str | None = None) -> list[str]:
    """Make this many claims, and return their queues in order. "" stands for a claim that found no task."""
    order = fleet.served(serving, times, owner or fleet.register())
    return order + [""] * (times - len(order))


@pytest.mark.usefixtures("picks")
def test_queues_of_a_pattern_are_served_in_turn(fleet: TimedFleet) -> None:
    serving = serve(fleet, domain_of([TENANTS]))
    flood(fleet, "t-1", "t-2", "t-3")
    order = order_of(fleet, serving, 30)
    for at in range(0, 30, 3):
        assert sorted(order[at : at + 3]) == ["t-1", "t-2", "t-3"]
    assert order_of(fleet, serving, 1) == [""]


@pytest.mark.usefixtures("picks")
def test_a_flooded_tenant_queue_gets_no_more_turns_than_the_others(fleet: TimedFleet) -> None:
    serving = serve(fleet, domain_of([TENANTS]))
    for number in range(40):
        fleet.push(*(f"{number}.{at}" for at in range(500)), queue="t-large")
    order_of(fleet, serving, 20)
    flood(fleet, "t-1", "t-2")
    order = order_of(fleet, serving, 30)
    for at in range(0, 30, 3):
        assert sorted(order[at : at + 3]) == ["t-1", "t-2", "t-large"]


@pytest.mark.usefixtures("picks")
def test_an_empty_queue_gains_no_claims_in_advance(fleet: TimedFleet) -> None:
    serving = serve(fleet, domain_of([TENANTS]))
    flood(fleet, "t-1", each=60)
    flood(fleet, "t-2", each=1)
    order_of(fleet, serving, 20)
    flood(fleet, "t-2", each=20)
    order = order_of(fleet, serving, 10)
    assert order.count("t-2") == 5


def test_a_queue_that_is_refilled_at_once_is_not_served_more_often(fleet: TimedFleet) -> None:
    """A queue that becomes empty keeps its virtual time, which is its place in the rotation, until the virtual clock of
    the rotation has reached that time. An emptied queue is therefore not first again as soon as it has a task.
    """
    serving = serve(fleet, domain_of([TENANTS]))
    flood(fleet, "t-1", "t-2", "t-3")
    served = []
    for number in range(9):
        fleet.push(f"again{number}", queue="t-0")
        served += order_of(fleet, serving, 1)
    assert served.count("t-0") <= 3


@pytest.mark.usefixtures("picks")
def test_weights_of_patterns_divide_the_claims(fleet: TimedFleet) -> None:
    serving = serve(fleet, domain_of([QueueShare("gold-*", weight=3), QueueShare("t-*")]))
    flood(fleet, "gold-1", "t-1", each=40)
    order = order_of(fleet, serving, 40)
    for at in range(0, 40, 4):
        assert order[at : at + 4].count("gold-1") == 3


@pytest.mark.usefixtures("picks")
def test_an_exact_name_wins_and_then_the_longest_pattern(fleet: TimedFleet) -> None:
    names = ["t-vip", "t-big-*", "t-*"]
    tier = [domain_of([QueueShare(name)], names) for name in names]
    high, middle, low = (serve(fleet, domain) for domain in tier)
    serve(fleet, *tier)
    flood(fleet, "t-1", "t-big-1", "t-vip", each=1)
    assert order_of(fleet, low, 2) == ["t-1", ""]
    assert order_of(fleet, middle, 2) == ["t-big-1", ""]
    assert order_of(fleet, high, 2) == ["t-vip", ""]


@pytest.mark.usefixtures("picks")
def test_a_pattern_and_a_named_queue_in_one_tier_are_served_in_turn(fleet: TimedFleet) -> None:
    serving = serve(fleet, domain_of([TENANTS, QueueShare("default")]))
    flood(fleet, "default", "t-1", each=10)
    assert sorted(order_of(fleet, serving, 2)) == ["default", "t-1"]


def test_a_pattern_announced_later_serves_tasks_that_already_wait(fleet: TimedFleet) -> None:
    flood(fleet, "t-1", "t-2", "other", each=1)
    serving = serve(fleet, domain_of([TENANTS]))
    assert order_of(fleet, serving, 3) == ["t-1", "t-2", ""]


def test_an_enqueue_wakes_workers_of_the_pattern_and_not_of_the_queue(fleet: TimedFleet) -> None:
    serve(fleet, domain_of([TENANTS]))
    fleet.push("1", queue="t-1")
    assert (fleet.bell("t-*"), fleet.bell("t-1")) == (1, 0)


def test_an_enqueue_also_wakes_a_consumer_of_that_one_queue(fleet: TimedFleet) -> None:
    serve(fleet, domain_of([TENANTS]))
    fleet.run(fleet.store.attend(60_000, fleet.register("consumer:1"), ["t-1"]))
    fleet.push("1", queue="t-1")
    assert (fleet.bell("t-*"), fleet.bell("t-1")) == (1, 1)


def test_the_wake_up_of_a_pattern_is_passed_on_while_tasks_wait(fleet: TimedFleet) -> None:
    serving = serve(fleet, domain_of([TENANTS]))
    flood(fleet, "t-1", each=2)
    fleet.silence("t-*")
    owner = fleet.register()
    fleet.turn(owner, serving, limit=0, tokens=["t-*"])
    assert fleet.bell("t-*") == 1
    fleet.silence("t-*")
    fleet.turn(owner, serving, limit=2)
    assert fleet.bell("t-*") == 0


def test_a_queue_of_a_served_pattern_counts_as_served(fleet: TimedFleet) -> None:
    serve(fleet, domain_of([TENANTS]))
    enqueued = fleet.enqueue(NewTask("1", "t-1", body_of("1", "t-1")), NewTask("2", "u-1", body_of("2", "u-1")))
    assert [reply.unserved for reply in enqueued] == [False, True]


def closed_until(fleet: TimedFleet) -> list[float]:
    """Return, for each queue of the pattern, the time until which claims skip the queue. Claims check the queue if its
    time is 0 or less.
    """
    found: Any = fleet.redis.zrange(fleet.keys.turns("t-*"), 0, -1, withscores=True)
    return [score for _, score in found]


def test_a_queue_of_a_pattern_at_its_cap_is_served_again_when_a_task_ends(fleet: TimedFleet) -> None:
    serving = serve(fleet, domain_of([QueueShare("t-*", cap=1)]))
    flood(fleet, "t-1", "t-2", each=2)
    owner, other = fleet.register(), fleet.register("node:2")
    [claim] = fleet.turn(owner, serving).claims
    assert order_of(fleet, serving, 3, other) == ["t-2", "t-2", ""]
    assert min(closed_until(fleet)) > 0
    assert order_of(fleet, serving, 1, other) == [""]
    fleet.silence("t-*")
    fleet.turn(owner, serving, (claim, Done()), limit=0)
    assert (min(closed_until(fleet)), fleet.bell("t-*")) == (-1, 1)
    assert order_of(fleet, serving, 2, other) == ["t-1", ""]


@pytest.mark.usefixtures("picks")
def test_the_rate_of_a_pattern_applies_to_each_queue(fleet: TimedFleet) -> None:
    serving = serve(fleet, domain_of([QueueShare("t-*", interval_us=SECOND_US)]))
    flood(fleet, "t-1", "t-2", each=2)
    owner = fleet.register()
    assert order_of(fleet, serving, 3, owner) == ["t-1", "t-2", ""]
    wait = fleet.turn(owner, serving).wait_us
    assert 0 < wait < SECOND_US
    fleet.clock_us += wait
    assert order_of(fleet, serving, 3, owner) == ["t-1", "t-2", ""]


def test_a_paused_queue_is_served_after_it_is_resumed(fleet: TimedFleet) -> None:
    serving = serve(fleet, domain_of([TENANTS]))
    flood(fleet, "t-1", "t-2", each=1)
    fleet.run(fleet.store.pause("t-1"))
    assert order_of(fleet, serving, 3) == ["t-2", "", ""]
    assert min(closed_until(fleet)) > 0
    fleet.silence("t-*")
    fleet.run(fleet.store.resume("t-1"))
    assert fleet.bell("t-*") == 1
    assert order_of(fleet, serving, 2) == ["t-1", ""]


def test_a_released_entry_is_credited_to_its_queue(fleet: TimedFleet) -> None:
    serving = serve(fleet, domain_of([TENANTS]))
    flood(fleet, "t-1", "t-2")
    owner = fleet.register()
    claims = fleet.turn(owner, serving, limit=4).claims
    fleet.turn(owner, serving, *((claim, Release()) for claim in claims), limit=0)
    order = order_of(fleet, serving, 8, owner)
    assert order.count("t-1") == order.count("t-2") == 4


def test_tasks_of_a_dead_worker_in_a_pattern_queue_are_claimed_again(fleet: TimedFleet) -> None:
    serving = serve(fleet, domain_of([TENANTS]))
    flood(fleet, "t-1", each=1)
    owner = fleet.register()
    fleet.claim(owner, serving)
    fleet.silence("t-*")
    fleet.exit(owner)
    assert fleet.bell("t-*") == 1
    assert order_of(fleet, serving, 2) == ["t-1", ""]


def test_a_sweep_marks_queues_with_bare_pushes_as_ready(fleet: TimedFleet) -> None:
    """Such a sweep is necessary if another program has pushed to a known queue without the client, or has deleted the
    key that holds the order of the pattern's queues.
    """
    serving = serve(fleet, domain_of([TENANTS]))
    fleet.redis.sadd(fleet.keys.queues, "t-1")
    fleet.redis.rpush(fleet.keys.ready_lane("t-1"), '["a","t-1","work",[]]')
    assert order_of(fleet, serving, 1) == [""]
    fleet.silence("t-*")
    assert fleet.run(fleet.store.sweep(LEASE_MS)).rescues == 1
    assert order_of(fleet, serving, 1) == ["t-1"]


def test_new_queues_of_a_pattern_are_all_served_even_if_there_are_many(fleet: TimedFleet) -> None:
    serving = serve(fleet, domain_of([TENANTS]))
    flood(fleet, *(f"t-{number}" for number in range(120)), each=1)
    order = order_of(fleet, serving, 121)
    assert (len(set(order)), order[-1]) == (121, "")


def fields(fleet: Fleet) -> dict[str, object]:
    """Return each key of the namespace with the names of its fields or members, or with its type if it has neither.
    Keys that an enqueue creates for only a minute are left out.
    """
    reading = {"hash": "HKEYS", "set": "SMEMBERS"}
    found = fleet.redis.scan_iter(match=f"{{{fleet.keys.namespace}}}:*", count=1000)
    kinds = {key: fleet.redis.type(key) for key in found if ":sent:" not in key}
    return {key: sorted(fleet.raw(reading[kind], key)) if kind in reading else kind for key, kind in kinds.items()}


def sweep_all(fleet: Fleet, forget_seconds: float) -> None:
    """Sweep until each queue has been checked once."""
    while True:
        fleet.run(fleet.store.sweep(LEASE_MS, forget_seconds=forget_seconds))
        if fleet.redis.hget(fleet.keys.pulse, "from") == "0":
            return


def come_and_go(fleet: Fleet, domain: Domain, owner: str, queues: list[str]) -> None:
    """Run one task in each of these queues, and then sweep until the empty queues are forgotten."""
    for at in range(0, len(queues), 500):
        fleet.enqueue(*(NewTask(f"a{queue}", queue, body_of(f"a{queue}", queue)) for queue in queues[at : at + 500]))
    serving = pack_tiers([domain])
    settled: list[tuple[Claim, Done]] = []
    while (reply := fleet.turn(owner, serving, *settled)).claims or reply.status is TurnStatus.MORE:
        settled = [(claim, Done()) for claim in reply.claims]
    sweep_all(fleet, 0.0)  # the first round of sweeps only records that the queues are empty
    sweep_all(fleet, 0.0)


def test_twelve_hundred_temporary_queues_leave_no_keys(server: Server, namespace: str) -> None:
    fleet, domain = Fleet(server, namespace), domain_of([QueueShare("t-*", cap=5, interval_us=1, burst=5)])
    fleet.run(fleet.store.announce("node", b"{}", HOUR_MS, ["t-*"], Announced(0, domains=(domain,))))
    owner = fleet.register()
    come_and_go(fleet, domain, owner, ["t-first"])
    before = fields(fleet)
    come_and_go(fleet, domain, owner, [f"t-{number}" for number in range(1_200)])
    assert fields(fleet) == before
    assert fleet.run(fleet.store.audit()).accepted == 1_201
    fleet.close()


def test_a_queue_in_use_or_paused_is_not_forgotten(fleet: TimedFleet) -> None:
    serving = serve(fleet, domain_of([TENANTS]))
    flood(fleet, "t-waits", "t-runs", "t-paused", "t-goes", each=1)
    owner = fleet.register()
    fleet.run(fleet.store.pause("t-waits"))
    fleet.run(fleet.store.pause("t-paused"))
    order_of(fleet, serving, 2, owner)
    for _ in range(2):
        sweep_all(fleet, 60.0)
        fleet.clock_us += 60 * SECOND_US
    assert fleet.redis.smembers(fleet.keys.queues) == {"t-waits", "t-paused"}


def test_a_consumer_receives_the_settings_of_its_pattern(fleet: TimedFleet) -> None:
    share = QueueShare("t-*", weight=2.0, cap=3)
    announced = Announced(shares=(share,), domains=(domain_of([share]),))
    fleet.run(fleet.store.announce("node", b"{}", HOUR_MS, ["t-*"], announced))
    told = fleet.run(fleet.store.attend(60_000, fleet.register("consumer:1"), ["t-1"]))
    assert told.shares == (QueueShare("t-1", weight=2.0, cap=3),)


@pytest.mark.parametrize("seed", range(3))
def test_overwritten_rotation_values_stop_no_queue_of_a_pattern(fleet: TimedFleet, seed: int) -> None:
    serving, owner = serve(fleet, domain_of([TENANTS])), fleet.register()
    flood(fleet, "t-1", "t-2", each=2)
    order_of(fleet, serving, 1, owner)
    for key, kind in (
        (fleet.keys.turns("t-*"), "zset"),
        (fleet.keys.times("t-*"), "hash"),
        (fleet.keys.patterns, "hash"),
        (fleet.keys.idle, "zset"),
    ):
        plant(fleet.redis, Place("", key, kind), random.Random(seed))
    serve(fleet, domain_of([TENANTS]))
    fleet.run(fleet.store.sweep(LEASE_MS, forget_seconds=0.0))
    flood(fleet, "t-3", each=1)
    order = order_of(fleet, serving, 8, owner)
    assert sorted(filter(None, order)) == ["t-1", "t-2", "t-2", "t-3"]
    fleet.run(fleet.store.sweep(LEASE_MS, forget_seconds=0.0))


@pytest.mark.parametrize("name", ["patterns", "idle"])
def test_no_call_fails_if_a_key_of_the_patterns_has_the_wrong_type(fleet: TimedFleet, name: str) -> None:
    serving = serve(fleet, domain_of([TENANTS, QueueShare("default")]))
    fleet.redis.delete(getattr(fleet.keys, name))
    fleet.redis.set(getattr(fleet.keys, name), "x")
    flood(fleet, "default", "t-1", each=1)
    serve(fleet, domain_of([TENANTS, QueueShare("default")]))
    fleet.run(fleet.store.sweep(LEASE_MS))
    order_of(fleet, serving, 3)
    fleet.redis.delete(getattr(fleet.keys, name))
    serve(fleet, domain_of([TENANTS, QueueShare("default")]))
    order_of(fleet, serving, 3)
    assert fleet.run(fleet.store.audit()).live == 0


def test_the_patterns_of_an_expired_master_leave_no_keys(fleet: TimedFleet) -> None:
    serve(fleet, domain_of([TENANTS]))
    flood(fleet, "t-1", each=1)
    fleet.clock_us += 2 * HOUR_MS * 1000
    fleet.run(fleet.store.announce("other", b"{}", HOUR_MS, ["default"]))
    assert not fleet.redis.exists(fleet.keys.patterns, fleet.keys.turns("t-*"), fleet.keys.times("t-*"))
