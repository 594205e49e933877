"""A stopped master, a frozen node, or a lost node. There are two nodes with short leases. If one node fails, the other
one takes over its tasks, and late calls of the failed node change nothing.
"""

import os
import signal
import time

import pytest
import redis

from rota.protocol.keys import Keys
from support.fleet_readings import Line
from support.fleets import Fleets, Measure, RunningFleet
from support.masters import ON_ONE_SERVER
from support.waiting import until

pytestmark = ON_ONE_SERVER

LEASE_SECONDS = 2.0
SETTINGS = {"lease": {"seconds": LEASE_SECONDS, "renew_seconds": 0.5}}
RECOVERED_WITHIN_SECONDS = LEASE_SECONDS + 2


@pytest.fixture
def nodes(fleets: Fleets) -> tuple[RunningFleet, RunningFleet]:
    """Start the nodes a and b. Both workers of node a are running a task, and node b is idle."""
    a = fleets.node("a", **SETTINGS).start()
    b = fleets.node("b", **SETTINGS)
    for label in ("one", "two"):
        a.hold(label)
    return a, b.start()


def taken_over(b: RunningFleet, since: float, measured: Measure) -> list[Line]:
    """Wait until node b has started both tasks of node a, and check that it has done so in time. Returns the journal
    lines of these second starts.
    """
    again = [b.wait_for("start", 2, label=label)[1] for label in ("one", "two")]
    assert {line.pid for line in again} <= {process.pid for process in b.processes()}
    took = max(line.at for line in again) - since
    measured("seconds from the fault to the second start, lease of 2 s", took)
    assert took < RECOVERED_WITHIN_SECONDS
    assert [line.crashes for line in again] == [0, 0]  # the loss of a node does not count as a crash
    return again


def finish(b: RunningFleet, redis_client: "redis.Redis") -> None:
    """Let all runs end, and check the result: each task was started twice, only one end of each task counts, and no
    owner holds a task.
    """
    for label in ("one", "two"):
        b.release(label)
    for label in ("one", "two"):
        b.wait_for("end", label=label)
    b.wait_until_nothing_waits(30)
    until(lambda: not list(redis_client.scan_iter(match=Keys(b.namespace).inflight("*"), count=1000)))
    totals = redis_client.hgetall(Keys(b.namespace).totals)
    assert int(totals[b"done"]) == len({line.id for line in b.journal("start")})
    assert [len(b.journal("start", label=label)) for label in ("one", "two")] == [2, 2]
    assert b.books_balance()


def is_of_service(fleet: RunningFleet) -> None:
    fleet.client.enqueue("note", args=["after"], queue="default")
    fleet.wait_for("end", label="after")


def test_workers_of_a_stopped_master_claim_nothing_after_their_lease(
    nodes: tuple[RunningFleet, RunningFleet], redis_client: "redis.Redis", measured: Measure
) -> None:
    a, b = nodes
    workers = a.workers()
    fault = time.time()
    a.signal(signal.SIGSTOP)
    taken_over(b, fault, measured)
    b.release("one")
    b.wait_for("end", 2, label="one")  # two ends: one of the old run and one of the new run
    until(lambda: len(a.log("task.stale")) == 1, "the old run's outcome came too late")
    b.client.enqueue("note", args=["meanwhile"], queue="default")
    [meanwhile] = b.wait_for("end", label="meanwhile")
    assert meanwhile.pid not in workers
    time.sleep(max(0.0, fault + 2 * LEASE_SECONDS - time.time()))  # waits until the node has been frozen for two leases
    a.signal(signal.SIGCONT)
    b.release("two")
    until(lambda: len(a.log("task.stale")) == 2)
    until(lambda: a.is_whole() and not workers & a.workers(), "new workers in place of those that were lost")
    finish(b, redis_client)
    assert {line["reason"] for line in a.log("worker.exited")} == {"lost"}
    assert a.metrics().total("rota_claims_refused_total") == len(workers)
    is_of_service(a)


def test_a_frozen_node_changes_nothing_when_it_continues(
    nodes: tuple[RunningFleet, RunningFleet], redis_client: "redis.Redis", measured: Measure
) -> None:
    a, b = nodes
    a_workers = a.workers()
    fault = time.time()
    a.freeze()
    taken_over(b, fault, measured)
    for label in ("one", "two"):
        b.release(label)
        b.wait_for("end", label=label)
    b.wait_until_nothing_waits(30)
    before = redis_client.hgetall(Keys(b.namespace).totals)
    a.thaw()
    until(lambda: len(a.log("task.stale")) == 2, "the outcomes of the continued node are stale")
    until(lambda: a.is_whole() and not a_workers & a.workers(), "node a is whole again, with new workers")
    assert redis_client.hgetall(Keys(b.namespace).totals) == before
    finish(b, redis_client)
    assert b.log("task.stale") == b.log("worker.exited") == []
    is_of_service(a)


def test_tasks_of_a_lost_node_run_elsewhere_after_the_lease(
    nodes: tuple[RunningFleet, RunningFleet], redis_client: "redis.Redis", measured: Measure
) -> None:
    a, b = nodes
    fault = time.time()
    a.kill_all()
    taken_over(b, fault, measured)
    finish(b, redis_client)


def test_tasks_held_before_a_node_restart_are_recovered(
    fleets: Fleets, redis_client: "redis.Redis", measured: Measure
) -> None:
    a = fleets.node("a", **SETTINGS).start()
    for label in ("one", "two"):
        a.hold(label)
    name = a.status()["node"]
    a.kill_all()
    a.start()
    back = time.time()
    assert a.status()["node"] != name
    assert a.status()["node"].partition(".")[0] == name.partition(".")[0] == os.uname().nodename.partition(".")[0]
    taken_over(a, back, measured)
    finish(a, redis_client)
