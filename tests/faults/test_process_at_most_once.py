"""Tasks with `crash_limit=0`, which may be started only once. The tests cause all the faults after which any other task
would be started again. The tasks write each start to a journal.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import redis

from rota import Call
from rota.protocol.keys import Keys
from support.fleets import Fleets, Measure, RunningFleet
from support.masters import ON_ONE_SERVER
from support.waiting import until

KILLS = 500  # the number of kills with each of the two kinds of server
AT_ONCE = 5
WORKERS = 10
TASKS_A_ROUND = 40
BUSY_SECONDS = 120.0  # the time limit of a test on a busy machine
LABELS = ("one", "two")
LEASE_SECONDS = 2.0
NODE = {"lease": {"seconds": LEASE_SECONDS, "renew_seconds": 0.5}}


def _ids(fleet: RunningFleet, event: str) -> list[str]:
    return [line.id for line in fleet.journal(event)]


def _dead(fleet: RunningFleet) -> dict[str, dict[str, Any]]:
    """Return the death record of each dead task, by task id."""
    return {dead["id"]: dead["death"] for dead in fleet.rota_json("dead", "ls", "--limit", "100000")}


def _give_work(fleet: RunningFleet, count: int, drawn: random.Random) -> set[str]:
    """Enqueue this many tasks, each of which runs for a few milliseconds. Returns their ids."""
    calls = [Call("once", ["", drawn.uniform(0, 0.01)], queue="default") for _ in range(count)]
    return {handle.id for handle in fleet.client.enqueue_many(calls)}


def _nothing_waits(redis_client: "redis.Redis", fleet: RunningFleet) -> Callable[[], bool]:
    """Return a condition to wait for: no task waits or runs, so the remaining tasks are all dead."""
    keys = Keys(fleet.namespace)
    return lambda: redis_client.hlen(keys.tasks) == redis_client.zcard(keys.dead)


def _each_started_once_and_ended_or_is_dead(fleet: RunningFleet, accepted: set[str]) -> dict[str, dict[str, Any]]:
    """Check that no task was started twice, and that each task has ended or is dead. Returns the death records by task
    id.
    """
    starts = Counter(_ids(fleet, "start"))
    ended = set(_ids(fleet, "end"))
    dead = _dead(fleet)
    assert max(starts.values()) == 1
    assert ended | dead.keys() == accepted
    assert {record["reason"] for record in dead.values()} <= {"at_most_once"}
    assert fleet.books_balance()
    return dead


def test_at_most_once_tasks_never_start_twice_despite_kills(
    fleets: Fleets, redis_client: "redis.Redis", measured: Measure
) -> None:
    # Workers count as healthy immediately. Otherwise the master would slow the pool down after more than a hundred
    # sudden deaths per minute.
    restarts = {"crash_limit": 50, "healthy_seconds": 0.01}
    fleet = fleets.start(workers=WORKERS, restarts=restarts, log={"tasks": "failures"})
    drawn = random.Random(KILLS)
    accepted: set[str] = set()
    killed: set[int] = set()

    def kill_some() -> bool:
        accepted.update(_give_work(fleet, TASKS_A_ROUND, drawn))
        time.sleep(drawn.uniform(0, 0.02))  # a random pause, so that the kill finds the workers in any possible state
        victims = drawn.sample(sorted(until(lambda: _at_least(fleet.workers() - killed, AT_ONCE))), AT_ONCE)
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        killed.update(victims)
        return len(killed) >= KILLS

    began = time.monotonic()
    until(kill_some, "the kills", BUSY_SECONDS)
    measured("kills a second", KILLS / (time.monotonic() - began))
    until(_nothing_waits(redis_client, fleet), "the end of every task", BUSY_SECONDS)
    dead = _each_started_once_and_ended_or_is_dead(fleet, accepted)
    assert {record["cause"] for record in dead.values()} == {"signal"}
    assert {record["signal"] for record in dead.values()} == {"SIGKILL"}
    measured("of so many tasks", len(accepted))
    measured("dead in the hands of a killed worker", len(dead))
    measured(
        "dead and not started: killed between the record and the call", len(dead.keys() - set(_ids(fleet, "start")))
    )


def _at_least(pids: set[int], count: int) -> set[int]:
    return pids if len(pids) >= count else set()


@ON_ONE_SERVER
def test_an_at_most_once_task_cut_off_by_sigquit_is_dead_without_a_crash(fleets: Fleets) -> None:
    fleet = fleets.start()
    held = fleet.client.enqueue("hold_once", args=["a"], queue="default").id
    fleet.wait_for("start", label="a")
    fleet.signal(signal.SIGQUIT)
    fleet.exit_code()
    found = fleet.client.status(held)
    assert (found.state, found.crashes) == ("dead", 0)
    fleet.start()
    dead = _each_started_once_and_ended_or_is_dead(fleet, {held})
    assert dead[held]["cause"] == "stop"


@pytest.fixture
def nodes(fleets: Fleets) -> tuple[RunningFleet, RunningFleet, set[str]]:
    """Return two nodes and the ids of all tasks. Both workers of node a are running a task. The other tasks wait, and
    either node may run them.
    """
    a = fleets.node("a", **NODE).start()
    b = fleets.node("b", **NODE)
    held = {a.client.enqueue("hold_once", args=[label], queue="default").id for label in LABELS}
    for label in LABELS:
        a.wait_for("start", label=label)
    b.start()
    return a, b, held


def _are_dead(b: RunningFleet, held: set[str]) -> Callable[[], bool]:
    return lambda: all(b.client.status(task_id).state == "dead" for task_id in held)


@ON_ONE_SERVER
def test_started_at_most_once_tasks_of_a_lost_node_become_dead(
    nodes: tuple[RunningFleet, RunningFleet, set[str]], redis_client: "redis.Redis"
) -> None:
    a, b, held = nodes
    accepted = held | _give_work(a, 100, random.Random(1))
    a.kill_all()
    until(_are_dead(b, held), "the lease of the lost node has expired")
    until(_nothing_waits(redis_client, b))
    dead = _each_started_once_and_ended_or_is_dead(b, accepted)
    assert held <= dead.keys()
    assert all("lease" in dead[task_id]["error"] for task_id in held)
    assert b.metrics().total("rota_tasks_dead_total", reason="at_most_once") == len(dead)


@ON_ONE_SERVER
def test_at_most_once_tasks_stay_dead_after_a_late_outcome(
    nodes: tuple[RunningFleet, RunningFleet, set[str]], redis_client: "redis.Redis"
) -> None:
    a, b, held = nodes
    a.freeze()
    until(_are_dead(b, held), "the lease of the frozen node has expired")
    totals = redis_client.hgetall(Keys(b.namespace).totals)
    for label in LABELS:
        a.release(label)
    a.thaw()
    for label in LABELS:
        a.wait_for("end", label=label)
    until(lambda: len(a.log("task.stale")) == len(held), "the outcomes of the continued node are stale")
    assert redis_client.hgetall(Keys(b.namespace).totals) == totals
    assert _are_dead(b, held)()
    until(a.is_whole)
    accepted = held | _give_work(a, 20, random.Random(2))
    until(_nothing_waits(redis_client, a))
    assert _each_started_once_and_ended_or_is_dead(b, accepted).keys() == held
