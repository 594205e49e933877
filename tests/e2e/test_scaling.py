"""Pools with a range of workers in real fleets: which situations add workers and which do not, and how several nodes
decide on one number of workers.
"""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from statistics import quantiles
from typing import Any, Final

import pytest
import redis

import rota
from rota.protocol.keys import Keys
from support.fleets import UNSIGNED, Fleets, RunningFleet
from support.masters import ON_ONE_SERVER
from support.waiting import until

pytestmark = [ON_ONE_SERVER, pytest.mark.timeout(180)]

OBJECTIVE_SECONDS: Final = 2.0
ANY_CPU: Final = {"max_cpu": 1}  # permits growth even if other tests keep the processors busy
FIRST_FAILING: Final = 10
FAILING: Final = 400
BACKLOG: Final = 100_000
A_BATCH: Final = 1000
WAVES: Final = 3
PHASE_SECONDS: Final = 30.0
RISE_SECONDS: Final = 2.0  # how long tasks may be late after the load has risen
ROUNDS_SECONDS: Final = 3.0  # six rounds of decisions, in which a wrong rule would add workers
TASKS: Final = """

@rota.task(retries=0)
def nap(seconds: float = 0.02, fails: bool = False) -> None:
    time.sleep(seconds)
    if fails:
        raise ValueError("as requested")
"""


def scaled(fleet: RunningFleet, pool: str = "default") -> int:
    """Return the number of workers that the master currently wants for this pool."""
    return int(next(row["desired"] for row in fleet.status()["pools"] if row["name"] == pool))


def explained(fleet: RunningFleet, pool: str = "default") -> dict[str, Any]:
    found: dict[str, Any] = fleet.rota_json("explain", "scaling", pool)
    return found


def ranged(fleets: Fleets, **settings: Any) -> RunningFleet:
    queues = {"default": {"lag_objective_seconds": OBJECTIVE_SECONDS}}
    size = {} if "pools" in settings else {"workers": "0..8"}
    made = fleets.make(**{**size, "queues": queues, "scaling": ANY_CPU, **settings})
    with (made.folder / "tasks.py").open("a") as file:
        file.write(TASKS)
    return made.start()


def pass_seconds(seconds: float) -> None:
    """Wait for this many seconds while the load continues."""
    begun = time.monotonic()
    until(lambda: time.monotonic() - begun > seconds, "the end of a phase", 2 * seconds)


def started_at(line: dict[str, Any]) -> float:
    """Return the time at which the attempt in this log line started."""
    return datetime.fromisoformat(line["timestamp"]).timestamp() - float(line["runtime_seconds"])


@contextmanager
def rate(fleet: RunningFleet, per_second: float) -> Iterator[None]:
    """Enqueue this many tasks per second during the block."""
    stop = threading.Event()

    def produce() -> None:
        begun, sent = time.monotonic(), 0
        while not stop.wait(0.02):
            due = int((time.monotonic() - begun) * per_second) - sent
            if due > 0:
                fleet.client.enqueue_many([rota.Call("nap", queue="default") for _ in range(due)])
                sent += due

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_the_first_task_starts_a_worker_however_it_arrives(fleets: Fleets) -> None:
    schedules = {"soon": {"task": "note", "every": 3600, "args": ["scheduled"]}}
    fleet = ranged(fleets, schedules=schedules, signing=UNSIGNED)
    assert scaled(fleet) == 0
    fleet.client.enqueue("note", args=["enqueued"], queue="default")
    fleet.wait_for("start", label="enqueued")
    assert scaled(fleet) >= 1
    fleet.rota("scale", "0")
    until(lambda: not fleet.workers(), "no worker is left")
    fleet.rota("scale", "auto")
    keys = Keys(fleet.namespace)
    with redis.Redis.from_url(fleet.url) as server:
        server.rpush(keys.ready_lane("default"), json.dumps(["raw-1", "default", "note", ["pushed"]]))
    fleet.wait_for("start", label="pushed")
    fleet.rota("scale", "0")
    until(lambda: not fleet.workers(), "no worker is left")
    fleet.rota("scale", "auto")
    assert fleet.rota("cron", "run", "soon").returncode == 0
    fleet.wait_for("start", label="scheduled")


def test_no_workers_are_added_if_they_would_not_help(fleets: Fleets) -> None:
    queues = {
        "default": {"lag_objective_seconds": OBJECTIVE_SECONDS},
        "rated": {"lag_objective_seconds": OBJECTIVE_SECONDS, "rate": "10/s"},
        "paused": {"lag_objective_seconds": OBJECTIVE_SECONDS},
    }
    pools = {
        "poisoned": {"workers": "1..8", "queues": ["default"]},
        "limited": {"workers": "1..8", "queues": ["rated", "paused"]},
    }
    fleet = ranged(fleets, pools=pools, queues=queues, tiers=[list(queues)])
    assert fleet.rota("queue", "pause", "paused").returncode == 0
    client = fleet.client
    for at in range(0, BACKLOG, A_BATCH):
        client.enqueue_many([rota.Call("nap", queue="rated") for _ in range(at, at + A_BATCH)])
    client.enqueue_many([rota.Call("nap", queue="paused") for _ in range(A_BATCH)])
    failing = rota.Call("nap", kwargs={"fails": True}, queue="default")
    client.enqueue_many([failing] * FIRST_FAILING)
    until(lambda: len(fleet.log("task.dead")) >= FIRST_FAILING, "a pool that is known to fail")
    client.enqueue_many([failing] * FAILING)
    until(lambda: "failing" in explained(fleet, "poisoned").get("limited_by", ()), "the guard against failing tasks")
    until(lambda: not explained(fleet, "poisoned")["limited_by"], "the end of the failing tasks", 30)
    pass_seconds(ROUNDS_SECONDS)
    assert [step["reason"] for step in fleet.log("fleet.autoscaled")] == []
    assert [scaled(fleet, pool) for pool in pools] == [1, 1]


def test_lag_stays_within_its_objective_when_the_load_rises_at_once(fleets: Fleets) -> None:
    fleet = ranged(fleets, workers="1..12")
    with rate(fleet, 20):
        until(lambda: explained(fleet).get("steady"), "a first decision")
    with rate(fleet, 400):
        until(lambda: scaled(fleet) >= 9, "workers for eight busy slots", 20)
        pass_seconds(5)
    fleet.wait_until_nothing_waits(30)
    steps = fleet.log("fleet.autoscaled")
    assert all(step["workers"] > step["before"] for step in steps)
    assert all(": " in step["reason"] for step in steps)
    assert fleet.metrics().total("rota_process_restarts_total", role="worker") == 0
    assert fleet.books_balance()


@pytest.mark.skipif("WATCH_SECONDS" not in os.environ, reason="takes ten minutes: run `make watched`")
@pytest.mark.timeout(1500)
def test_autoscaling_keeps_up_with_repeated_load_and_then_shrinks_to_one_worker(
    fleets: Fleets, record_property: Callable[[str, object], None]
) -> None:
    fleet = ranged(fleets, workers="1..12")
    rises = []
    with rate(fleet, 20):
        until(lambda: explained(fleet).get("steady"), "a first decision")
        for _ in range(WAVES):
            rises.append(time.time())
            with rate(fleet, 380):
                pass_seconds(PHASE_SECONDS)
            pass_seconds(PHASE_SECONDS)
        until(lambda: scaled(fleet) == 1, "one worker again", 900)
    fleet.wait_until_nothing_waits(30)
    lines = fleet.log("task.done")
    lags = [line["lag_seconds"] for line in lines if all(not 0 <= started_at(line) - at < RISE_SECONDS for at in rises)]
    p99 = quantiles(lags, n=100)[98]
    record_property("tasks", len(lags))
    record_property("lag_p99_seconds", p99)
    assert p99 <= OBJECTIVE_SECONDS
    assert fleet.metrics().total("rota_process_restarts_total", role="worker") == 0
    assert fleet.books_balance()


def test_a_manual_number_of_workers_applies_until_scale_auto(fleets: Fleets) -> None:
    fleet = ranged(fleets, workers="1..8")
    assert fleet.rota("scale", "2").returncode == 0
    fleet.client.enqueue_many([rota.Call("nap", queue="default") for _ in range(A_BATCH)])
    until(lambda: "operator" in explained(fleet).get("limited_by", ()), "a decision that needs more")
    assert scaled(fleet) == 2
    assert fleet.rota("scale", "auto").returncode == 0
    until(lambda: scaled(fleet) > 2, "the rule goes on")


def test_two_nodes_share_the_workers_of_a_pool_even_if_the_leader_changes(fleets: Fleets) -> None:
    settings: dict[str, Any] = {
        "workers": "1..6",
        "queues": {"default": {"lag_objective_seconds": OBJECTIVE_SECONDS}},
        "lease": {"seconds": 2.0, "renew_seconds": 0.5},
        "scaling": ANY_CPU,
    }
    nodes = {name: fleets.node(name, **settings) for name in ("a", "b")}
    for node in nodes.values():
        with (node.folder / "tasks.py").open("a") as file:
            file.write(TASKS)
        node.start()
    one, other = nodes.values()
    until(lambda: len(explained(one).get("shares", ())) == 2, "a decision for both nodes")
    leader, follower = (one, other) if "nodes" in explained(one) else (other, one)
    one.client.enqueue_many([rota.Call("nap", queue="default") for _ in range(2 * A_BATCH)])
    until(lambda: scaled(one) > 1 and scaled(other) > 1, "both nodes grow")
    os.kill(leader.pid, signal.SIGKILL)
    until(lambda: "nodes" in explained(follower), "the lead moves", 20)
