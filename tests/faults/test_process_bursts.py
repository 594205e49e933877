"""Bursts of different signals, either all pending at the same instant or sent as a random storm. No interpreter
crashes. If one of the signals requests a stop, the fleet stops once and cleanly.
"""

import contextlib
import itertools
import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import psutil
import pytest

from rota.child.child_process import IGNORED_SIGNALS, SOFT_LIMIT_SIGNAL, STACK_SIGNAL, WAKE_SIGNAL
from rota.telemetry import log_events
from rota_supervisor.__main__ import MASTER_SIGNALS
from support.fleets import Fleets, RunningFleet
from support.masters import ON_ONE_SERVER
from support.waiting import repeating, until

pytestmark = ON_ONE_SERVER

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
NO_STOPS = tuple(sorted(MASTER_SIGNALS - set(STOPS)))
NO_DEATH_BY_DEFAULT = (signal.SIGCHLD, signal.SIGCONT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
AS_FILED = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGCHLD)
TO_CHILDREN = (*IGNORED_SIGNALS, signal.SIGCHLD, signal.SIGWINCH, STACK_SIGNAL)
TO_WORKERS = (*TO_CHILDREN, WAKE_SIGNAL, SOFT_LIMIT_SIGNAL)
EVERY_SECONDS = 0.001
SEED = os.environ.get("BURST_SEED") or os.urandom(4).hex()


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Return a random generator. Its seed is shown if the test fails."""
    request.node.add_report_section("call", "seed", f"BURST_SEED={SEED}")
    return random.Random(f"{SEED} {request.node.name}")


def send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def burst(pid: int, numbers: Iterable[int]) -> None:
    """Send all these signals while the process is stopped, so that all of them are pending when it continues."""
    process = psutil.Process(pid)
    process.suspend()
    until(lambda: process.status() == psutil.STATUS_STOPPED, "the process is stopped")
    for number in numbers:
        send(pid, number)
    process.resume()


def shuffled(chance: random.Random, numbers: Iterable[int]) -> list[int]:
    return chance.sample(drawn := list(numbers), len(drawn))


def every_set(numbers: Iterable[int]) -> Iterator[tuple[int, ...]]:
    """Return all combinations of at least two of these signals."""
    drawn = list(numbers)
    return itertools.chain.from_iterable(itertools.combinations(drawn, size) for size in range(2, len(drawn) + 1))


def storm(
    targets: Callable[[], Iterable[int]], numbers: Iterable[int], chance: random.Random
) -> AbstractContextManager[None]:
    """During the block, send a randomly chosen signal to each of these processes every millisecond."""
    kinds = list(numbers)

    def blow() -> None:
        for pid in targets():
            send(pid, chance.choice(kinds))

    return repeating(blow, EVERY_SECONDS)


def blocks_terms(fleet: RunningFleet) -> bool:
    """Whether the master blocks TERM. If so, its first line has run."""
    status = Path(f"/proc/{fleet.pid}/status").read_text()
    blocked = next(line for line in status.splitlines() if line.startswith("SigBlk:"))
    return bool(int(blocked.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def ended_in_order(fleet: RunningFleet) -> bool:
    """Whether the fleet has stopped exactly once, with exit code 0, and has left nothing behind."""
    return fleet.exit_code() == 0 and len(fleet.log("fleet.stopped")) == 1 and fleet.processes() == []


def ended_by_signals(fleet: RunningFleet) -> list[dict[str, object]]:
    """Return the log lines about children that were ended by a signal other than SIGKILL. SIGKILL does not count,
    because the master sends it to children that it no longer wants.
    """
    deaths = [line for event in log_events.DEATHS for line in fleet.log(event)]
    return [line for line in deaths if line.get("signal") not in (None, "SIGKILL")]


def test_pending_signals_that_include_no_stop_keep_the_master_running(fleets: Fleets, chance: random.Random) -> None:
    fleet = fleets.start(workers=1)
    sets = list(every_set(NO_STOPS))
    for numbers in chance.sample(sets, len(sets)):
        burst(fleet.pid, shuffled(chance, numbers))
        assert fleet.status()
    send(fleet.pid, signal.SIGCONT)  # the last TSTP may have made the fleet quiet; this signal resumes it
    assert fleet.rota("scale", "1").returncode == 0  # TTOU may have reduced the number of workers to 0
    fleet.client.enqueue("note", args=["after"], queue="default")
    fleet.wait_for("end", label="after")
    assert ended_by_signals(fleet) == []
    fleet.term()
    assert ended_in_order(fleet)


def test_pending_signals_that_include_a_stop_end_the_master_cleanly(fleets: Fleets, chance: random.Random) -> None:
    fleet = fleets.make(workers=1)
    drawn = [[stop, *chance.sample(NO_STOPS, chance.randint(1, 7))] for stop in STOPS]
    as_filed: list[int] = [*AS_FILED, signal.SIGCONT]
    for numbers in [as_filed, *(shuffled(chance, each) for each in [MASTER_SIGNALS, *drawn])]:
        (fleet.folder / "fleet.log").unlink(missing_ok=True)
        fleet.start()
        burst(fleet.pid, numbers)
        assert ended_in_order(fleet), numbers
    assert fleet.books_balance()


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.3, 0.6, 1.0])
def test_a_fleet_under_a_signal_storm_from_its_start_stops_cleanly(
    fleets: Fleets, chance: random.Random, seconds: float
) -> None:
    fleet = fleets.make(workers=1)
    fleet.launch()
    with storm(lambda: [fleet.pid], NO_DEATH_BY_DEFAULT, chance):
        until(
            lambda: blocks_terms(fleet), "its first line has run: until then other signals have their default effects"
        )
    with storm(lambda: [fleet.pid], NO_STOPS, chance):
        time.sleep(seconds)  # wait, so that the stop comes at a different moment in each round
        assert not fleet.has_ended()
    with storm(lambda: [fleet.pid], MASTER_SIGNALS, chance):
        until(fleet.has_ended, "its end")
    assert ended_in_order(fleet)
    assert ended_by_signals(fleet) == []


def test_signal_storms_do_not_disturb_reload_or_stop(fleets: Fleets, chance: random.Random) -> None:
    fleet = fleets.start(workers=2)
    fleet.hold("a")
    fleet.edit(limits={"max_tasks": 1000})
    with storm(lambda: [fleet.pid], NO_STOPS, chance):
        until(lambda: len(fleet.log("fleet.status")) > 5, "it has received many requests and signals")
    fleet.hup()  # this is the last reload, so no later reload can replace it
    until(lambda: fleet.log("config.reloaded"), "the last of its reloads counts")
    send(fleet.pid, signal.SIGCONT)
    until(fleet.is_whole, "a whole fleet")
    with storm(lambda: [fleet.pid], [signal.SIGTERM, *NO_STOPS], chance):
        until(lambda: fleet.log("fleet.draining"), "the drain")
        fleet.release("a")
        until(fleet.has_ended, "its end")
    assert ended_in_order(fleet)
    assert ended_by_signals(fleet) == []


@pytest.mark.parametrize("role", ["worker", "zygote", "poller", "exporter"])
def test_a_burst_of_signals_ends_a_child_only_if_it_includes_a_stop(
    fleets: Fleets, chance: random.Random, role: str
) -> None:
    fleet = fleets.start(workers=1)
    [pid] = fleet.pids(role, "ready")
    numbers = TO_WORKERS if role == "worker" else TO_CHILDREN
    for _ in range(20):
        burst(pid, shuffled(chance, numbers))
    assert fleet.pids(role, "ready") == {pid}
    burst(pid, shuffled(chance, [signal.SIGTERM, signal.SIGINT, *numbers]))
    if role != "zygote":  # the zygote blocks both of these signals
        until(lambda: fleet.pids(role, "ready") - {pid}, "another one")
    until(fleet.is_whole, "a whole fleet")
    fleet.client.enqueue("note", args=["after"], queue="default")
    fleet.wait_for("end", label="after")
    assert ended_by_signals(fleet) == []


def test_signals_sent_to_the_whole_service_end_no_child_that_is_starting(fleets: Fleets, chance: random.Random) -> None:
    fleet = fleets.start(workers=2)
    others = [*fleet.pids("poller", "ready"), *fleet.pids("exporter", "ready")]
    master = psutil.Process(fleet.pid)
    with storm(lambda: [child.pid for child in master.children(recursive=True)], IGNORED_SIGNALS, chance):
        for pid in others:
            send(pid, signal.SIGKILL)
        send(master.pid, signal.SIGUSR2)
        until(lambda: fleet.log("code.reloaded") or fleet.log("config.reloaded"), "a generation of new code")
        until(lambda: fleet.is_whole() and not set(others) & {each.pid for each in fleet.processes()}, "new ones")
    assert ended_by_signals(fleet) == []


def test_a_frozen_node_with_pending_signals_exits_cleanly_when_it_continues(
    fleets: Fleets, chance: random.Random
) -> None:
    fleet = fleets.start(workers=2)
    fleet.hold("a")
    fleet.freeze()
    for process in fleet.processes():
        for number in shuffled(chance, [*AS_FILED, signal.SIGUSR2]):
            send(process.pid, number)
    fleet.thaw()
    until(lambda: fleet.log("fleet.draining"), "the drain")
    fleet.release("a")
    assert ended_in_order(fleet)
    assert ended_by_signals(fleet) == []
    assert len(fleet.journal("end", label="a")) == len(fleet.journal("start", label="a")) == 1
    assert fleet.books_balance()
