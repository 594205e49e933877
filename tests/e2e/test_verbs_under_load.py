"""An operator's commands to a fleet under load. No task is lost or runs twice, and at most one worker is unavailable at
any time.
"""

import random
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import rota
from support.fleets import Fleets, RunningFleet
from support.masters import ON_ONE_SERVER
from support.server_fixtures import Producer, extra_runs, wait_until_all_ran
from support.waiting import repeating, until

pytestmark = ON_ONE_SERVER

WORKERS = 4
HUPS = 20
MANY_TASKS = 300
REPORT_VERSION = """
import rota, tasks, version

@rota.task
def report_version() -> None:
    tasks.write("version", str(version.NUMBER))
"""


class Watching:
    """A reader of the status, which a thread calls repeatedly. `fewest` is the lowest number of READY workers that it
    has seen.
    """

    def __init__(self, fleet: RunningFleet) -> None:
        self.fewest, self.looks = WORKERS, 0
        self._fleet = fleet

    def look(self) -> None:
        self.fewest = min(self.fewest, len(self._fleet.workers()))
        self.looks += 1


@contextmanager
def load(fleet: RunningFleet) -> Iterator[Producer]:
    """Enqueue tasks continuously during the block, and check afterwards that each task ran exactly once."""
    with Producer(fleet.url, fleet.namespace, **fleet.signing_options) as producer:
        producer.wait_for(MANY_TASKS // 10)
        yield producer
    wait_until_all_ran(fleet, producer)
    assert extra_runs(fleet) == {}
    # No task was lost, not even a task that was claimed for a worker that was leaving.
    assert fleet.log("task.recovered") == []


def versioned(fleets: Fleets) -> RunningFleet:
    """Return a fleet whose code contains a version number that the test can increase."""
    fleet = fleets.make(workers=WORKERS, imports=["tasks", "versioned"])
    (fleet.folder / "versioned.py").write_text(REPORT_VERSION)
    return write_version(fleet, 0)


def write_version(fleet: RunningFleet, number: int) -> RunningFleet:
    # The file has a different length for each version, so that Python loads the new version even if it is written
    # within the same second.
    (fleet.folder / "version.py").write_text(f"NUMBER = {number}\n" + "#" * number)
    return fleet


def all_workers_run(fleet: RunningFleet, number: int) -> None:
    """Wait until every worker runs this version of the code."""
    for _ in range(10 * WORKERS):
        fleet.client.enqueue("report_version", queue="default")
    assert {line.label for line in fleet.wait_for("version", 10 * WORKERS)[-10 * WORKERS :]} == {str(number)}


@pytest.mark.parametrize("how", ["verb", "signal"])
def test_a_rolling_restart_loses_no_task_and_keeps_all_but_one_worker_ready(fleets: Fleets, how: str) -> None:
    fleet = versioned(fleets).start()
    before = fleet.workers()
    write_version(fleet, 1)
    watching = Watching(fleet)
    with load(fleet) as producer, repeating(watching.look, 0.001):
        if how == "verb":
            assert fleet.rota("restart").returncode == 0
        else:
            fleet.signal(signal.SIGUSR2)
        until(lambda: not fleet.workers() & before and fleet.is_whole(), "only new workers")
        until(lambda: len(producer.accepted) > MANY_TASKS, "load meanwhile")
    assert watching.looks > 50
    assert watching.fewest >= WORKERS - 1
    all_workers_run(fleet, 1)


def test_of_many_reloads_the_last_takes_effect_and_the_pool_stays_ready(
    fleets: Fleets,
) -> None:
    fleet = versioned(fleets).start()
    before = fleet.workers()
    chance = random.Random(19)
    watching = Watching(fleet)
    with load(fleet) as producer, repeating(watching.look, 0.001):
        for number in range(1, HUPS + 1):
            write_version(fleet, number)
            (fleet.folder / f"more{number}.py").touch()
            fleet.edit(imports=["tasks", "versioned", f"more{number}"], tiers=[["default", f"q{number}"]])
            fleet.hup()
            # The operator may give the next command while the previous one is still in progress.
            time.sleep(chance.uniform(0, 0.15))
        until(
            lambda: not fleet.status()["loading"] and not fleet.workers() & before and fleet.is_whole(),
            "only new workers",
        )
        until(lambda: len(producer.accepted) > MANY_TASKS, "load meanwhile")
    assert watching.fewest >= WORKERS - 1
    all_workers_run(fleet, HUPS)
    with warnings.catch_warnings():
        # A master publishes the queues that it serves only when it renews its leases, so this queue may still seem
        # unserved.
        warnings.simplefilter("ignore", rota.UnservedQueue)
        fleet.client.enqueue("note", args=["last"], queue=f"q{HUPS}")
    fleet.wait_for("end", label="last")


def test_no_task_is_lost_or_repeated_by_quiet_resume_and_scale_under_load(fleets: Fleets) -> None:
    fleet = fleets.start(workers=WORKERS)
    with load(fleet) as producer:
        for count in (1, 6, 2, 8, WORKERS):
            assert fleet.rota("scale", str(count)).returncode == 0
            fleet.until_workers(count)
        assert fleet.rota("quiet").returncode == 0
        until(lambda: all(pool["busy"] == 0 for pool in fleet.status()["pools"]), "no worker is busy")
        ran, accepted = len(fleet.journal("start")), len(producer.accepted)
        until(lambda: len(producer.accepted) > accepted + 20, "tasks come in")
        assert len(fleet.journal("start")) == ran
        assert fleet.rota("resume").returncode == 0
        until(lambda: len(fleet.journal("start")) > ran, "they are taken up")
        # Each signal is sent after the previous one has taken effect, because the kernel drops a pending CONT if a stop
        # signal follows.
        for _ in range(3):
            for number, state in ((signal.SIGTSTP, "quiet"), (signal.SIGCONT, "running")):
                fleet.signal(number)
                until(lambda state=state: fleet.status()["state"] == state, state)  # type: ignore[misc]
            for number, count in ((signal.SIGTTIN, WORKERS + 1), (signal.SIGTTOU, WORKERS)):
                fleet.signal(number)
                fleet.until_workers(count)
        until(lambda: len(producer.accepted) > MANY_TASKS, "load meanwhile")
