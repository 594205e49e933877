"""The kinds of findings, and the findings of the checker."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Wrong(StrEnum):
    """The promise that was broken."""

    LOST = "lost"  # a task was accepted, but neither ran to its end nor ended in another permitted way
    DUPLICATED = "duplicated"  # a task was started again without a recorded cause
    PHANTOM = "phantom"  # a task was started although no producer had sent it, or after it had ended for good
    ORDER = "order"
    EARLY = "early"
    FAIRNESS = "fairness"
    UNIQUE = "unique"
    WAITED = "waited"  # a task waited while a worker was idle
    RECOVERY = "recovery"  # the recovery of a task took too long
    LEASE = "lease"  # a lease was lost without a recorded cause
    DIED = "died"  # a process died without a recorded cause
    COUNTERS = "counters"  # the counters do not agree with the evidence
    LEFT = "left"  # something is left over or missing at the end


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken promise, with a description, the id of the task ("" for none), and the time (CLOCK_BOOTTIME in
    seconds).
    """

    wrong: Wrong
    text: str
    task_id: str = ""
    boot: float = 0.0


@dataclass(frozen=True, slots=True)
class CheckResult:
    """All findings, ordered by time, with the counts and measurements."""

    findings: tuple[Finding, ...]
    numbers: Mapping[str, float]
