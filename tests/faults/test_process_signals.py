"""Signals to a master: many at once, too early, or while the master is process 1 of a PID namespace."""

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from support.fleets import Fleets, RunningFleet
from support.masters import ON_ONE_SERVER
from support.waiting import until

pytestmark = ON_ONE_SERVER

TERMS = 100
IMPORT_SECONDS = 1.0
SLOW_MODULE = f"import time\nopen('importing', 'w').close()\ntime.sleep({IMPORT_SECONDS})\n"
AS_FIRST_PROCESS = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


def enqueue_notes(fleet: RunningFleet, count: int) -> None:
    for number in range(count):
        fleet.client.enqueue("note", args=[f"{number}"], queue="default")


def left_in_order(fleet: RunningFleet) -> bool:
    """Whether the log shows exactly one drain, and no immediate stop."""
    return [line["at_once"] for line in fleet.log("fleet.draining")] == [False] and len(fleet.log("fleet.stopped")) == 1


def test_a_hundred_sigterms_within_a_second_count_as_one_stop(fleets: Fleets) -> None:
    fleet = fleets.start()
    for label in ("a", "b"):
        fleet.hold(label)
    enqueue_notes(fleet, 10)
    began = time.monotonic()
    for number in range(TERMS):  # signals that arrive within a second of each other belong to the same request
        time.sleep(max(0.0, began + number * 0.8 / TERMS - time.monotonic()))
        if time.monotonic() - began < 0.9:  # on a slow machine, fewer signals are sent within this time
            fleet.term()
    for label in ("a", "b"):
        fleet.release(label)
    assert fleet.exit_code() == 0
    assert left_in_order(fleet)
    assert fleet.processes() == []
    assert {line.label for line in fleet.journal("end")} == {"a", "b"}
    assert fleet.log("task.recovered") == []
    fleet.start()
    fleet.wait_for("end", 12)
    assert fleet.books_balance()


def test_the_exit_code_is_0_even_if_sigterms_arrive_until_the_end(fleets: Fleets) -> None:
    for _ in range(3):
        fleet = fleets.start()
        while not fleet.has_ended():
            fleet.term()
            time.sleep(0.0005)
        assert fleet.exit_code() == 0
        assert not (fleet.folder / "control").exists()
        assert fleet.processes() == []


def first_process(fleet: RunningFleet) -> psutil.Process:
    """Return the process of a master that is process 1 of a PID namespace. The returned process has the pid that is
    valid outside of that namespace.
    """
    [master] = until(psutil.Process(fleet.pid).children, "the master")
    return master


def keeps_terms(process: psutil.Process) -> bool:
    """Whether a TERM to this process stays pending. This is the case between the first line of the process, which
    blocks TERM, and the start of its loop, which reads the signal. Before that line, process 1 would lose the signal,
    because the kernel drops signals that process 1 does not handle. The program `unshare`, which starts the master,
    also blocks TERM, so it does not count.
    """
    if process.name() == "unshare":
        return False
    status = Path(f"/proc/{process.pid}/status").read_text()
    blocked, caught = (
        bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
        for line in status.splitlines()
        if line.startswith(("SigBlk:", "SigCgt:"))
    )
    return blocked and not caught


@pytest.fixture
def contained(fleets: Fleets) -> RunningFleet:
    """Return a fleet that has not been started yet. Its master will be process 1, as in a container without an init."""
    if os.geteuid() != 0:
        pytest.skip("only root makes a process namespace")
    fleet = fleets.make()
    fleet.prefix = AS_FIRST_PROCESS
    return fleet


@pytest.mark.parametrize("after_seconds", [0.0, 0.05, 0.15, 0.3, 0.6])
def test_sigterm_during_the_start_as_process_1_is_not_lost(contained: RunningFleet, after_seconds: float) -> None:
    (contained.folder / "slow.py").write_text(SLOW_MODULE)
    contained.edit(imports=["slow", "tasks"])
    contained.launch()
    master = first_process(contained)
    until(lambda: keeps_terms(master), "its first line has run")
    time.sleep(after_seconds)  # wait, so that the signal comes at a different moment in each case
    began = time.monotonic()
    for _ in range(3):
        master.terminate()
    assert contained.exit_code() == 0
    assert time.monotonic() - began < 30
    assert contained.processes() == []


def test_many_sigterms_during_imports_count_as_one_stop(fleets: Fleets) -> None:
    fleet = fleets.make()
    (fleet.folder / "slow.py").write_text(SLOW_MODULE)
    fleet.edit(imports=["slow", "tasks"])
    fleet.launch()
    until((fleet.folder / "importing").exists, "the imports have begun")
    for _ in range(TERMS):
        fleet.signal(signal.SIGTERM)
    assert fleet.exit_code() == 0
    assert left_in_order(fleet)
    assert fleet.processes() == []
