"""Measurements in rounds. Each round measures every contender, in rotated order, so that other work on the machine
affects all of them alike.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import psutil

from benchmarks.contender import Contender
from benchmarks.effort import Effort
from benchmarks.measures import Measure
from benchmarks.numbers import Result, Values, rotated, shown
from benchmarks.running import running
from benchmarks.testbed import Failed, Testbed


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of a contender in one round of a measurement."""

    measure: str
    round: int
    contender: str
    why: str


def say(text: str) -> None:
    """Print a progress message to standard error. Only the tables go to standard output."""
    print(text, file=sys.stderr, flush=True)


def run_rounds(
    measure: Measure, contenders: Sequence[Contender], testbed: Testbed, effort: Effort
) -> Iterator[Result | Failure]:
    """Measure every contender in every round. A contender that fails is left out of the later rounds."""
    able = {one.name: one for one in contenders if measure.name in one.measures}
    for turn in range(effort.rounds_of(measure.name)):
        for name in rotated(list(able), turn):
            outcome = _run_once(measure, able[name], testbed, effort, turn)
            yield outcome
            if isinstance(outcome, Failure):
                del able[name]


def _run_once(measure: Measure, contender: Contender, testbed: Testbed, effort: Effort, turn: int) -> Result | Failure:
    began = time.monotonic()
    try:
        with running(contender, testbed, measure.workers) as run:
            values = measure.run(run, effort)
    # These exceptions mean that one contender has failed, so the others are still measured.
    except (Failed, OSError, psutil.Error) as failure:
        say(f"  {measure.name} {turn + 1}: {contender.name}: FAILED: {failure}")
        return Failure(measure.name, turn, contender.name, str(failure) or repr(failure))
    say(f"  {measure.name} {turn + 1}: {contender.name}: {_told(measure, values)}  [{time.monotonic() - began:.0f} s]")
    return Result(measure.name, turn, contender.name, values)


def _told(measure: Measure, values: Values) -> str:
    return ", ".join(f"{one.title} {shown(values.get(one.key), one.digits)} {one.unit}" for one in measure.metrics)
