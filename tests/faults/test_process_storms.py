"""Stops at bad moments: at any instant of the start, twice in a row, together with the loss of the terminal, or during
a reload, a worker's start or an outage. The fleet always exits cleanly. It leaves nothing behind and loses no task.
"""

import os
import pty
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from support.fleets import Fleets, RunningFleet
from support.masters import ON_ONE_SERVER
from support.server_fixtures import SHORT_LEASE, Shaken
from support.waiting import until

pytestmark = ON_ONE_SERVER

TRIES = 12
LONGEST_START_SECONDS = 0.5
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)


def leaves_nothing(fleet: RunningFleet) -> None:
    """Check that no process, control socket or pid file is left."""
    assert fleet.processes() == []
    assert {entry.name for entry in fleet.folder.iterdir()} & {"control", "pid"} == set()


def drained_once(fleet: RunningFleet) -> bool:
    """Whether the log shows exactly one drain, and no immediate stop."""
    return [line["at_once"] for line in fleet.log("fleet.draining")] == [False] and len(fleet.log("fleet.stopped")) == 1


def test_a_stop_at_any_moment_of_the_start_leaves_no_processes_or_files(fleets: Fleets) -> None:
    fleet = fleets.make()
    places = {"socket": str(fleet.folder / "control"), "pid_file": str(fleet.folder / "pid")}
    fleet.edit(control=places)
    chance = random.Random(18)
    for number in range(TRIES):
        stop = STOPS[number % len(STOPS)]
        fleet.launch()
        # Wait, so that the signal comes at a different moment in each try.
        time.sleep(chance.uniform(0, LONGEST_START_SECONDS))
        fleet.signal(stop)
        # If the first line of the process has not run yet, the signal itself ends the process.
        assert fleet.exit_code() in (0, -stop)
        leaves_nothing(fleet)
        assert not fleet.log("fleet.failed")
    assert fleet.books_balance()


def test_a_second_sigint_stops_at_once_and_charges_no_task_with_a_crash(fleets: Fleets) -> None:
    fleet = fleets.start()
    held = [fleet.hold("a"), fleet.hold("b")]
    fleet.signal(signal.SIGINT)
    until(lambda: fleet.log("fleet.draining"), "the drain")
    time.sleep(2)  # two stop signals within a second would count as one request
    assert fleet.log("fleet.draining") == fleet.log("fleet.draining")[:1]
    fleet.signal(signal.SIGINT)
    assert fleet.exit_code() == 0
    assert [line["at_once"] for line in fleet.log("fleet.draining")] == [False, True]
    leaves_nothing(fleet)
    assert {fleet.client.status(line.id).state for line in held} == {"ready"}
    fleet.start()
    again = [fleet.wait_for("start", 2, label=label)[1] for label in ("a", "b")]
    assert [line.crashes for line in again] == [0, 0]
    for label in ("a", "b"):
        fleet.release(label)
    fleet.wait_for("end", 2)
    assert fleet.books_balance()


# If a session leader without a controlling terminal opens a terminal, that terminal becomes its controlling terminal.
ON_A_TERMINAL = """
import os, sys
os.setsid()
terminal = os.open(sys.argv[1], os.O_RDWR)
for fd in map(int, sys.argv[2].split(",")):
    os.dup2(terminal, fd)
os.execv(sys.argv[3], sys.argv[3:])
"""


@contextmanager
def terminal_of(fleet: RunningFleet, streams: str) -> Iterator[Callable[[], None]]:
    """Let the fleet run with a controlling terminal, and connect these standard streams of the master to the terminal.
    Yields a function that hangs up the terminal.
    """
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    fleet.prefix = [sys.executable, "-c", ON_A_TERMINAL, os.ttyname(theirs), streams]
    is_open = True

    def hang_up() -> None:
        nonlocal is_open
        is_open = False
        os.close(ours)

    yield hang_up
    os.close(theirs)
    if is_open:
        hang_up()


@pytest.mark.parametrize("streams", ["0", "0,1,2"], ids=["log elsewhere", "log on the terminal"])
def test_sighup_reloads_but_the_loss_of_the_terminal_drains_the_fleet(fleets: Fleets, streams: str) -> None:
    fleet = fleets.make()
    with terminal_of(fleet, streams) as hang_up:
        fleet.start()
        fleet.hold("a")
        fleet.edit(workers=3)
        fleet.hup()
        fleet.until_workers(3)
        hang_up()
        until(lambda: fleet.status()["state"] == "draining", "the drain")
        fleet.release("a")
        assert fleet.exit_code() == 0
    fleet.wait_for("end", label="a")
    leaves_nothing(fleet)
    if streams == "0":
        assert drained_once(fleet)
    assert fleet.books_balance()


IMPORTS_FOR_EVER = "import time\nopen('begun', 'w').close()\ntime.sleep(600)\n"
STARTS_FOR_EVER = (
    "import time, rota\n@rota.on_worker_start\ndef start():\n    open('begun', 'w').close()\n    time.sleep(600)\n"
)


@pytest.mark.parametrize("module", [IMPORTS_FOR_EVER, STARTS_FOR_EVER], ids=["imports", "starts its workers"])
def test_sigterm_during_a_reload_stops_both_generations(fleets: Fleets, module: str) -> None:
    fleet = fleets.start(limits={"drain_seconds": 3})
    fleet.hold("a")
    (fleet.folder / "slow.py").write_text(module)
    fleet.edit(imports=["tasks", "slow"])
    fleet.hup()
    until((fleet.folder / "begun").exists, "the new generation loads")
    fleet.term()
    until(lambda: fleet.log("fleet.draining"), "the drain")
    fleet.release("a")
    assert fleet.exit_code() == 0
    assert fleet.journal("end", label="a")
    assert drained_once(fleet)
    leaves_nothing(fleet)
    assert fleet.books_balance()


def test_sigterm_during_the_first_worker_start_ends_within_the_drain(fleets: Fleets) -> None:
    fleet = fleets.make(imports=["tasks", "slow"], limits={"drain_seconds": 1})
    (fleet.folder / "slow.py").write_text(STARTS_FOR_EVER)
    fleet.launch()
    until((fleet.folder / "begun").exists, "a worker starts")
    fleet.term()
    assert fleet.exit_code() == 0
    assert drained_once(fleet)
    leaves_nothing(fleet)


@pytest.mark.parametrize("how", ["refused", "silent"])
def test_a_stop_without_the_server_ends_in_time_and_loses_no_task(shaken: Shaken, how: str) -> None:
    fleet = shaken.start_behind_link(workers=3, lease=SHORT_LEASE, limits={"drain_seconds": 1})
    for label in ("a", "b"):
        fleet.hold(label)
    if how == "refused":
        shaken.lose_link()
    else:
        os.kill(shaken.server.pid, signal.SIGSTOP)
    until(lambda: any(line["role"] == "master" for line in fleet.log("redis.lost")), "the master has noticed")
    began = time.monotonic()
    fleet.term()
    fleet.release("a")
    assert fleet.exit_code() == 0
    # The terms are the limit for the drain, the limit for the steps after the drain, and extra time for a slow machine.
    assert time.monotonic() - began < 1 + 5 + 5 + 15
    assert drained_once(fleet)
    leaves_nothing(fleet)
    os.kill(shaken.server.pid, signal.SIGCONT)
    shaken.link.heal()
    fleet.release("b")
    fleet.start()
    fleet.wait_for("end", label="b")
    fleet.wait_until_nothing_waits(30)
    # If the server received the first end of the task, the task does not run again.
    assert len(fleet.journal("end", label="a")) <= 2
    assert fleet.books_balance()
