"""A trial: one run of the test that should catch a bug, on a copy of the product with or without that bug."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mutations.catalogue import Mutation
from mutations.catchers import Catcher, Result
from mutations.changes import Change, Stale
from mutations.tree import make_copy

# Ten times the duration of the slowest trial on an idle machine with two cores, so that no trial fails because the
# machine is slow.
BUDGET_SECONDS: Final = 300.0
CONTROL_BUDGET_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class Trial:
    """A mutation with its catcher. If the trial is a control, there is no bug, and the catcher must find nothing."""

    name: str
    change: Change | None
    catcher: Catcher

    @property
    def is_control(self) -> bool:
        return self.change is None

    @property
    def budget_seconds(self) -> float:
        return CONTROL_BUDGET_SECONDS if self.is_control else BUDGET_SECONDS


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a trial."""

    trial: Trial
    is_well: bool
    words: str  # a description of the finding, or the reason why the trial failed
    seconds: float
    said: str = ""  # the end of the catcher's output, if the trial failed


def trials_of(mutations: Sequence[Mutation]) -> list[Trial]:
    """Return a trial for each mutation, and a control for each different catcher."""
    controls = dict.fromkeys(each.catcher.control for each in mutations)
    return [
        *(Trial(each.name, each.change, each.catcher) for each in mutations),
        *(Trial("control", None, catcher) for catcher in controls),
    ]


def perform(trial: Trial) -> Outcome:
    """Create the copy, run the catcher, and evaluate its result."""
    began = time.monotonic()
    try:
        result = _run_within_budget(trial, began + trial.budget_seconds)
    except Stale as stale:
        return Outcome(trial, is_well=False, words=f"stale: {stale}", seconds=0.0)
    seconds = time.monotonic() - began
    if trial.is_control:
        words = "finds nothing" if result.clean else "fails without a bug"
        return Outcome(trial, result.clean, words, seconds, "" if result.clean else result.said)
    if result.found:
        return Outcome(trial, is_well=True, words=result.found, seconds=seconds)
    return Outcome(trial, is_well=False, words=_why(result, seconds), seconds=seconds, said=result.said)


def _why(result: Result, seconds: float) -> str:
    if seconds >= BUDGET_SECONDS:
        return f"NOT CAUGHT within {BUDGET_SECONDS:g} s"
    return "NOT CAUGHT" if result.clean else "fails, but not for the expected reason"


def _run_within_budget(trial: Trial, deadline: float) -> Result:
    """Run the catcher repeatedly until it finds something or the time has run out, because whether a soak finds a bug
    depends on chance. A control runs once.
    """
    while True:
        with tempfile.TemporaryDirectory(prefix="rota-mutation-") as name:
            make_copy(Path(name), trial.change)
            result = trial.catcher.run(Path(name), deadline - time.monotonic())
        if trial.is_control or result.found or not result.clean or time.monotonic() >= deadline:
            return result
