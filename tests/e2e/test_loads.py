"""The load that a master measures from the slots of its workers agrees with the tasks that the workers run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rota.child.slot_memory import SlotMemory
from rota.protocol.tiers import QueueShare, domain_of
from rota_supervisor.master.core.effects import LagObjective, ScaledPool, ScaledWorker
from rota_supervisor.master.core.scaling_inputs import NodeLoad
from rota_supervisor.master.effects.node_resources import NodeResources
from rota_supervisor.master.effects.scaling_exchange import PoolGauge
from support.fleets import Fleets, RunningFleet
from support.waiting import until

SHORT_SECONDS = 0.1
LONG_SECONDS = 0.3
PAIRS = 10  # each pair has one short and one long task
MEAN_SECONDS = (SHORT_SECONDS + LONG_SECONDS) / 2
VARIATION = 0.25  # the square of the standard deviation (0.1 s) divided by the mean (0.2 s)
FAILURES = 5
TASKS = """

@rota.task(retries=0)
async def nap(seconds: float, fails: bool = False) -> None:
    await asyncio.sleep(seconds)
    if fails:
        raise ValueError("as requested")
"""


class Gauge:
    """The load of one pool of a running fleet, measured with the code and the slots that the fleet's master uses."""

    def __init__(self, fleet: RunningFleet, memory: SlotMemory, pool: str, concurrency: int) -> None:
        self._fleet = fleet
        self._memory = memory
        self._pool = pool
        self._concurrency = concurrency
        self._gauge = PoolGauge()

    def read(self) -> NodeLoad:
        rows = [row for row in self._fleet.children("worker") if row["pool"] == self._pool]
        workers = tuple(
            ScaledWorker(
                row["slot"],
                self._memory.slot(row["slot"]).nonce,
                is_serving=row["state"] == "ready",
                is_starting=False,
                start_seconds=0.1,
            )
            for row in rows
        )
        tiers = (domain_of([QueueShare(self._pool)]),)
        scaled = ScaledPool(
            *(self._pool, tiers, {self._pool: LagObjective(10, 0.99)}, self._concurrency, 1, 8, 8, None),
            is_blocked=False,
            first_crashes=0,
            workers=workers,
        )
        return self._gauge.load("node", scaled, self._memory, NodeResources())


@contextmanager
def slots_of(pid: int) -> Iterator[SlotMemory]:
    """Map the slots of this master into memory, for reading."""
    path, *_ = [each for each in Path(f"/proc/{pid}/fd").iterdir() if "memfd:rota-slots" in str(each.readlink())]
    fd = os.open(path, os.O_RDONLY)
    try:
        yield SlotMemory.to_read(fd)
    finally:
        os.close(fd)


@pytest.fixture
def fleet(fleets: Fleets) -> RunningFleet:
    pools = {
        "one": {"workers": 2, "queues": ["default"]},
        "many": {"workers": 1, "queues": ["many"], "concurrency": 20},
    }
    made = fleets.make(pools=pools, tiers=[["default", "many"]])
    with (made.folder / "tasks.py").open("a") as file:
        file.write(TASKS)
    return made.start()


@pytest.fixture
def gauges(fleet: RunningFleet) -> Iterator[dict[str, Gauge]]:
    with slots_of(fleet.pid) as memory:
        yield {"one": Gauge(fleet, memory, "one", 1), "many": Gauge(fleet, memory, "many", 20)}


def run_tasks(fleet: RunningFleet, *queues: str) -> None:
    """Run the same set of tasks in each of these queues, and wait until all tasks have ended."""
    times = [(SHORT_SECONDS, False), (LONG_SECONDS, False)] * PAIRS + [(MEAN_SECONDS, True)] * FAILURES
    handles = [fleet.client.enqueue("nap", args=list(args), queue=queue) for args in times for queue in queues]
    left = {handle.id: handle for handle in handles}

    def all_ended() -> bool:
        for handle in list(left.values()):
            if handle.status().state not in ("done", "dead"):
                return False
            del left[handle.id]
        return True

    until(all_ended, lambda: [handle.status() for handle in left.values()][:3])


def until_free(gauge: Gauge, slots: int) -> NodeLoad:
    """Wait until this number of task slots is free, and return the load."""

    def is_free() -> NodeLoad | None:
        load = gauge.read()
        return load if load.free_slots == slots else None

    found = until(is_free, f"{slots} free task slots")
    assert found is not None
    return found


def test_the_measured_load_of_a_pool_counts_starts_run_times_and_failures(
    fleet: RunningFleet, gauges: dict[str, Gauge]
) -> None:
    for gauge in gauges.values():
        assert gauge.read().long.starts == 0
    run_tasks(fleet, "default", "many")
    tasks = 2 * PAIRS + FAILURES
    for name, slots in (("one", 2), ("many", 20)):
        load = until_free(gauges[name], slots)
        window = load.long
        assert window.starts == tasks
        assert (window.first_attempts, window.first_failures) == (tasks, FAILURES)
        assert tasks * MEAN_SECONDS <= window.occupied_seconds <= tasks * MEAN_SECONDS * 1.5
        assert window.variation == pytest.approx(VARIATION * 2 * PAIRS / tasks, abs=0.1)
        assert (load.running, load.running_seconds, load.held) == (0, 0, 0)


def test_a_task_that_is_still_running_counts_towards_the_load(fleet: RunningFleet, gauges: dict[str, Gauge]) -> None:
    gauge = gauges["one"]
    gauge.read()
    fleet.hold("a")
    load = until(lambda: found if (found := gauge.read()).running_seconds > 1 else None, "a second")
    assert load is not None
    assert (load.running, load.free_slots, load.long.starts) == (1, 1, 1)
    assert load.long.occupied_seconds == pytest.approx(load.running_seconds, abs=0.2)
    fleet.release("a")


def test_a_worker_that_dies_does_not_reduce_the_measured_load(fleet: RunningFleet, gauges: dict[str, Gauge]) -> None:
    gauge = gauges["one"]
    gauge.read()
    run_tasks(fleet, "default")
    before = gauge.read().long
    assert before.starts == 2 * PAIRS + FAILURES
    fleet.client.enqueue("kill_worker", queue="default")
    until(lambda: fleet.log("task.dead")[FAILURES:], "its last crash")
    fleet.until_workers(3)
    run_tasks(fleet, "default")
    after = gauge.read().long
    assert after.starts >= 2 * before.starts
    assert after.occupied_seconds >= 2 * before.occupied_seconds - 1
