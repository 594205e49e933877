"""Children that cannot be forked, and children that die while they start. The fleet never hangs, and nothing is left
behind.
"""

import os
import random
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from rota.protocol.keys import Keys
from support.cgroups import group
from support.fleets import Fleets, Measure, RunningFleet
from support.masters import ON_ONE_SERVER
from support.processes import descendants, is_alive
from support.waiting import seconds_until, until

pytestmark = ON_ONE_SERVER

QUICK_RESTARTS = {"restarts": {"backoff_seconds": 0.05, "backoff_max_seconds": 0.5}}
HUNT_SECONDS = 5.0
HUNT_MAX_SECONDS = 60.0  # long enough for machines on which a worker is seldom seen before its start is reported


@contextmanager
def without_forks(pid: int) -> Iterator[None]:
    """During the block, make every fork of this process fail with EAGAIN. This is done with the limit on the user's
    processes or, for root, with the limit of a control group.
    """
    if os.geteuid() != 0:
        before = resource.prlimit(pid, resource.RLIMIT_NPROC)
        resource.prlimit(pid, resource.RLIMIT_NPROC, (0, before[1]))
        yield
        resource.prlimit(pid, resource.RLIMIT_NPROC, before)
        return
    with group("pids") as alone:
        alone.take([pid])
        alone.set("pids.max", 1)
        yield
        alone.set("pids.max", "max")


def owners(redis_client: "redis.Redis", fleet: RunningFleet) -> int:
    return redis_client.zcard(Keys(fleet.namespace).owners)


def zombies_of(fleet: RunningFleet) -> list[int]:
    return [pid for pid in descendants(fleet.pid) if not is_alive(pid)]


def nothing_is_left_over(fleet: RunningFleet, redis_client: "redis.Redis", workers: int) -> None:
    """Wait until the fleet has exactly this number of workers, and no owner, zombie or unknown process remains."""
    fleet.until_workers(workers)
    until(lambda: owners(redis_client, fleet) == workers, "the owners of the dead are reaped")
    until(lambda: not zombies_of(fleet), "the zombies are reaped")
    known = fleet.pids()
    until(lambda: descendants(fleet.pid) <= known, "there is no unknown process")
    assert len(fleet.children()) == workers + 3


def test_a_pool_recovers_after_forks_of_workers_failed(fleets: Fleets, redis_client: "redis.Redis") -> None:
    fleet = fleets.start(workers=3, **QUICK_RESTARTS)
    [zygote] = fleet.pids("zygote", "ready")
    held = [fleet.hold(label) for label in ("a", "b")]
    [idle] = fleet.workers() - {line.pid for line in held}
    with without_forks(zygote):
        os.kill(idle, signal.SIGKILL)
        os.kill(held[0].pid, signal.SIGKILL)
        until(lambda: len(fleet.log("fleet.call_failed")) >= 3, "forks that failed")
        failures = [line["error"] for line in fleet.log("fleet.call_failed")]
        assert all("Resource temporarily unavailable" in error for error in failures)
        assert len(failures) < 30  # if there were no pauses between the attempts, there would be thousands of failures
        fleet.release("b")
        fleet.wait_for("end", label="b")
        fleet.release("a")
        fleet.wait_for("end", label="a")  # the remaining worker runs this task
        assert fleet.workers() == {held[1].pid}
        until(lambda: fleet.metrics().total("rota_workers", state="backoff") > 0, "workers in back-off")
    until(fleet.is_whole, "a whole pool")
    nothing_is_left_over(fleet, redis_client, 3)
    assert fleet.books_balance()


def test_fleet_that_cannot_fork_is_not_ready(fleets: Fleets) -> None:
    fleet = fleets.start(workers=2, **QUICK_RESTARTS)
    [zygote] = fleet.pids("zygote", "ready")
    with without_forks(zygote):
        for pid in fleet.workers():
            os.kill(pid, signal.SIGKILL)
        until(lambda: fleet.get("/readyz")[0] == 503, "the fleet reports that it is not ready")
        assert fleet.get("/livez")[0] == 200
    until(fleet.is_whole, "a whole pool")


@contextmanager
def busy_machine(processes: int) -> Iterator[None]:
    """Use up most of the processor time of the machine during the block."""
    spinning = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def kill_workers(fleet: RunningFleet) -> int:
    """Send SIGKILL to every worker that has a process, including workers that are still starting. Returns the number of
    workers that were killed.
    """
    pids = [child["pid"] for child in fleet.children("worker") if child["pid"]]
    return sum(kill(pid) for pid in pids)


def kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("spinning", [0, 4], ids=["idle machine", "busy machine"])
def test_fifty_workers_killed_at_once_are_replaced(
    fleets: Fleets, redis_client: "redis.Redis", measured: Measure, spinning: int
) -> None:
    fleet = fleets.start(workers=50, restarts={"crash_limit": 100})
    for number in range(50):
        fleet.client.enqueue("hold", args=[f"{number}"], queue="default")
    fleet.wait_for("start", 50)
    with busy_machine(spinning):
        at = time.time()
        assert kill_workers(fleet) == 50
        again = fleet.wait_for("start", 100)[50:]
        measured("seconds until all 50 tasks run again", max(line.at for line in again) - at)
        # Each time, some workers are starting, some are waiting for a task, and some are running one.
        for _ in range(5):
            time.sleep(random.uniform(0, 0.1))
            kill_workers(fleet)
        measured("seconds until it is whole", seconds_until(fleet.is_whole, "a whole fleet"))
    for number in range(50):
        fleet.release(f"{number}")
    fleet.wait_until_nothing_waits(60)
    nothing_is_left_over(fleet, redis_client, 50)
    assert fleet.log("task.dead") == []
    assert fleet.books_balance()


def children_of(pid: int) -> list[int]:
    """Return the pids of the children of a process with a single thread. If the process has ended, return an empty
    list.
    """
    try:
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except OSError:
        return []


def test_processes_killed_before_their_pid_is_known_are_replaced(
    fleets: Fleets, redis_client: "redis.Redis", measured: Measure
) -> None:
    fleet = fleets.start(workers=4, **QUICK_RESTARTS)
    [zygote] = fleet.pids("zygote", "ready")
    chance = random.Random(49)
    intermediates = 0
    unreported = 0
    began = time.monotonic()
    while (spent := time.monotonic() - began) < HUNT_SECONDS or (not unreported and spent < HUNT_MAX_SECONDS):
        if not kill_workers(fleet):  # every worker is still starting, or its start is delayed
            time.sleep(0.01)
        for _ in range(500):
            for born in children_of(zygote):
                spared = chance.random() < 0.5  # if the worker is not spared, it is killed as soon as it exists
                for worker in children_of(born) if spared else []:
                    unreported += kill(worker)
                intermediates += 0 if spared else kill(born)
    measured("intermediates killed", intermediates)
    measured("workers killed before they were reported", unreported)
    assert intermediates
    assert unreported
    until(fleet.is_whole, "a whole fleet")
    nothing_is_left_over(fleet, redis_client, 4)
    assert fleet.books_balance()


@pytest.mark.parametrize(
    "fault",
    ["import os; os._exit(1)", "import os, rota\n@rota.on_worker_start\ndef start(): os._exit(3)"],
    ids=["at import", "in a hook"],
)
def test_a_reload_of_code_that_crashes_at_import_keeps_the_workers(fleets: Fleets, fault: str) -> None:
    fleet = fleets.start(workers=2, **QUICK_RESTARTS)
    workers = fleet.workers()
    (fleet.folder / "broken.py").write_text(fault)
    fleet.edit(imports=["tasks", "broken"])
    assert fleet.rota("reload").returncode != 0
    assert fleet.log("config.rejected")
    assert fleet.workers() == workers
    fleet.client.enqueue("note", args=["after"], queue="default")
    fleet.wait_for("end", label="after")


def test_workers_that_die_in_a_hook_are_restarted_with_back_off(fleets: Fleets) -> None:
    fleet = fleets.make(workers=2, restarts={"backoff_seconds": 0.1, "backoff_max_seconds": 0.8})
    (fleet.folder / "moody.py").write_text(
        "import os, rota\n@rota.on_worker_start\ndef start():\n    if os.path.exists('broken'): os._exit(3)\n"
    )
    fleet.edit(imports=["tasks", "moody"])
    fleet.start()
    (fleet.folder / "broken").touch()
    began = time.monotonic()
    kill_workers(fleet)
    until(lambda: fleet.get("/readyz")[0] == 503, "the fleet reports that it is not ready")
    # Ten workers exit. Two were killed, and two replaced them. The other six were started one by one, after 0.1 s, 0.2
    # s, 0.4 s and three times 0.8 s.
    until(lambda: len(fleet.log("worker.exited")) >= 2 + 2 + 6, "further attempts")
    assert time.monotonic() - began > 2.5
    assert fleet.get("/livez")[0] == 200
    (fleet.folder / "broken").unlink()
    until(fleet.is_whole, "a whole fleet")
