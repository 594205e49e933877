"""The deterministic simulation of whole fleets. It runs thousands of seeds, each with a sequence of faults.

SIMULATION_SEEDS sets the number of seeds, and SIMULATION_FIRST_SEED sets the first seed.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, NoReturn
from unittest import mock

import pytest

from simulation.run import Run, simulate

SEEDS: Final = int(os.environ.get("SIMULATION_SEEDS", "1000"))
FIRST_SEED: Final = int(os.environ.get("SIMULATION_FIRST_SEED", "0"))
SEEDS_A_TEST: Final = 100
SHOWN_FAILURES: Final = 3
# Events that must occur in the traces of the first seeds. Without them, the other seeds would prove little.
MET: Final = (
    "reaped  a:8:1 expired",
    "reaped  a:8:1 exited",
    "Abandon",
    "Kill  zygote",
    "Kill  poller",
    "Interrupt  worker",
    "Dump  worker",
    "Dump  zygote",
    "max_tasks",
    "max_rss",
    "reason=hung",
    "reason=timeout",
    "task.cancel_requested",
    "reason=cancelled",
    "reason=boot",
    "reason=stop",
    "reason=lost",
    "config.reloaded",
    "condition.failed",
    "condition.works",
    "removed  nightly",
    "died 5 times before being ready",
    "no tier serves queue",
    "gave up",
    "its zygote died",
    "the intermediate ended",
)


# Seeds with rare events: an owner that is abandoned before its worker starts, and many deaths in a row.
RARE: Final = (1252, 861)
TRACED_SEEDS: Final = frozenset([*range(220), *RARE])
"""The seeds whose traces are searched for these events."""
_told_before: dict[int, Run] = {}


def lived(seed: int) -> Run:
    """Return the result of a seed. Simulations are slow, so this function caches the results, which several tests
    use.
    """
    if seed not in TRACED_SEEDS:
        return simulate(seed)
    if seed not in _told_before:
        _told_before[seed] = simulate(seed)
    return _told_before[seed]


@pytest.mark.parametrize("first", range(FIRST_SEED, FIRST_SEED + SEEDS, SEEDS_A_TEST))
def test_fleet_recovers_from_any_faults_and_repeats_nothing(first: int) -> None:
    seeds = range(first, min(first + SEEDS_A_TEST, FIRST_SEED + SEEDS))
    failed = [run for run in map(lived, seeds) if run.fault]
    if failed:
        pytest.fail(_report_of(failed), pytrace=False)


def _report_of(failed: list[Run]) -> str:
    shown = "\n\n".join(run.report for run in failed[:SHOWN_FAILURES])
    return f"{shown}\n\nfailing seeds: {[run.seed for run in failed]}"


def test_a_simulation_with_the_same_seed_runs_identically() -> None:
    for seed in range(40):
        assert "\n".join(simulate(seed).trace).encode() == "\n".join(lived(seed).trace).encode()


def test_the_simulated_seeds_reach_every_listed_situation() -> None:
    text = "\n".join(line for seed in sorted(TRACED_SEEDS) for line in lived(seed).trace)
    assert [what for what in MET if what not in text] == []


def test_simulation_uses_no_clock_process_or_thread() -> None:
    with _without_the_world():
        runs = [simulate(seed) for seed in range(20)]
    assert [run.report for run in runs if run.fault] == []


@contextmanager
def _without_the_world() -> Iterator[None]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise RuntimeError("the simulation reached for the real world")

    with ExitStack() as stack:
        for name in ("time", "time_ns", "monotonic", "monotonic_ns", "clock_gettime", "clock_gettime_ns", "sleep"):
            stack.enter_context(mock.patch.object(time, name, refuse))
        for name in ("fork", "posix_spawn", "kill", "killpg", "waitid", "wait4"):
            stack.enter_context(mock.patch.object(os, name, refuse))
        stack.enter_context(mock.patch.object(threading.Thread, "start", refuse))
        yield


def test_failing_seed_reports_how_to_replay_it() -> None:
    report = Run(17, "two workers in one slot", ("0.1 a Start", "0.2 a Start")).report
    assert report.splitlines()[0] == "seed 17: two workers in one slot"
    assert "SIMULATION_FIRST_SEED=17 SIMULATION_SEEDS=1" in report
    assert report.endswith("0.1 a Start\n0.2 a Start")
