"""A master is killed while one of its children is stopped by SIGSTOP. No process of its fleet survives, no matter which
child was stopped and when.
"""

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from rota_supervisor.child_start import MODULES
from rota_supervisor.layout import Role
from support.fleets import Fleets, RunningFleet
from support.masters import ON_ONE_SERVER
from support.processes import is_alive
from support.waiting import seconds_until, until

pytestmark = ON_ONE_SERVER

GONE_WITHIN_SECONDS = 2.0
# Each new interpreter runs this code before the first line of Rota's code. If it was started with the given module, it
# stops itself.
STOPS_AT_ITS_START = """
import os, signal, sys
if sys.orig_argv[-1] == {module!r}:
    os.kill(os.getpid(), signal.SIGSTOP)
"""
# Each process that the zygote or one of its descendants forks runs this code before the first line of Rota's code.
STOPS_AT_ITS_BIRTH = """
import os, signal
zygote = os.getpid()

def stop():
    if os.path.exists("stop") and (os.getppid() == zygote) is {of_zygote}:
        os.kill(os.getpid(), signal.SIGSTOP)

os.register_at_fork(after_in_child=stop)
"""
# The first process is in the zygote's process group, and the second one is in a worker's process group.
LEAVES_SLEEPERS = """
import subprocess, sys
import rota
from tasks import write

def sleeper():
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid

SLEEPER = sleeper()

@rota.task
def leave_sleeper():
    write("sleepers", f"{SLEEPER} {sleeper()}")
"""


def is_stopped(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_STOPPED
    return False


def everybody(fleet: RunningFleet) -> set[int]:
    return {process.pid for process in fleet.processes()}


def kill_master(fleet: RunningFleet) -> set[int]:
    """Kill only the master, and return the pids of all other processes."""
    there = everybody(fleet)
    fleet.signal(signal.SIGKILL)
    fleet.exit_code()
    return there


def assert_gone(there: set[int], measured: Callable[[str, float], None]) -> None:
    took = seconds_until(lambda: not any(map(is_alive, there)), f"the end of {there}")
    measured("seconds until nothing was left", took)
    assert took < GONE_WITHIN_SECONDS


def start_with_sleepers(fleet: RunningFleet) -> None:
    """Start a fleet in which application code has started two more processes: one in the zygote's process group, and
    one in a worker's process group.
    """
    (fleet.folder / "sleepers.py").write_text(LEAVES_SLEEPERS)
    fleet.edit(imports=[*fleet.settings["imports"], "sleepers"])
    fleet.start()
    fleet.client.enqueue("leave_sleeper", queue="default")
    [line] = fleet.wait_for("sleepers")
    assert {int(pid) for pid in line.label.split()} < everybody(fleet)


@pytest.mark.parametrize("role", ["zygote", "poller", "exporter", "worker"])
def test_a_stopped_child_does_not_outlive_a_killed_master(
    fleets: Fleets, measured: Callable[[str, float], None], role: str
) -> None:
    fleet = fleets.make()
    start_with_sleepers(fleet)
    for pid in fleet.pids(role, "ready"):
        psutil.Process(pid).suspend()
    assert_gone(kill_master(fleet), measured)


@pytest.mark.parametrize("child", ["zygote", "poller", "exporter"])
def test_child_stopped_at_its_start_dies_with_the_master(
    fleets: Fleets, measured: Callable[[str, float], None], child: str
) -> None:
    fleet = fleets.make()
    (fleet.folder / "sitecustomize.py").write_text(STOPS_AT_ITS_START.format(module=MODULES[Role(child)]))
    fleet.environment["PYTHONPATH"] = str(fleet.folder)
    fleet.launch()
    until(lambda: any(map(is_stopped, fleet.processes())), f"the {child} is stopped")
    assert_gone(kill_master(fleet), measured)


@pytest.mark.parametrize("of_zygote", [True, False], ids=["intermediate", "worker"])
def test_a_forked_process_stopped_at_its_start_dies_with_the_master(
    fleets: Fleets, measured: Callable[[str, float], None], of_zygote: bool
) -> None:
    fleet = fleets.make(imports=["tasks", "stops"])
    (fleet.folder / "stops.py").write_text(STOPS_AT_ITS_BIRTH.format(of_zygote=of_zygote))
    start_with_sleepers(fleet)
    (fleet.folder / "stop").touch()
    fleet.edit(workers=3)
    fleet.hup()
    until(lambda: any(map(is_stopped, fleet.processes())), "the process is stopped")
    assert_gone(kill_master(fleet), measured)


def test_a_killed_master_with_frozen_children_leaves_no_process(
    fleets: Fleets, measured: Callable[[str, float], None]
) -> None:
    fleet = fleets.start(workers=4)
    fleet.hold("a")
    fleet.freeze()
    assert_gone(kill_master(fleet), measured)


def stopped_before_exec(fleet: RunningFleet) -> psutil.Process | None:
    """Kill the poller. Stop its replacement before it calls exec, while it is still a copy of the master. Returns None
    if the replacement was stopped too late.
    """
    children = Path(f"/proc/{fleet.pid}/task/{fleet.pid}/children")
    master = Path(f"/proc/{fleet.pid}/cmdline").read_bytes()
    [poller] = fleet.pids("poller", "ready")
    known = set(children.read_text().split())
    os.kill(poller, signal.SIGKILL)
    while not (new := set(children.read_text().split()) - known):
        pass  # polls without a pause, because this state lasts for less than a millisecond
    stopped = psutil.Process(int(new.pop()))
    stopped.suspend()
    until(lambda: is_stopped(stopped), "the process is stopped")
    if Path(f"/proc/{stopped.pid}/cmdline").read_bytes() == master:
        return stopped
    stopped.resume()
    until(fleet.is_whole, "the next try")
    return None


def test_a_child_stopped_before_exec_keeps_no_other_process_alive(
    fleets: Fleets, measured: Callable[[str, float], None]
) -> None:
    """The stopped child has copies of all the master's descriptors. Therefore these descriptors stay open when the
    master dies, and other processes cannot notice the death by a closed pipe. The stopped child cannot end itself yet.
    """
    fleet = fleets.start()
    stopped = until(lambda: stopped_before_exec(fleet), "a child caught in time")
    assert stopped is not None
    try:
        assert_gone(kill_master(fleet) - {stopped.pid}, measured)
    finally:
        stopped.kill()
        until(lambda: not is_alive(stopped.pid), "its end")
