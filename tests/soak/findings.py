"""The possible findings of a checker, and its findings."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Wrong(StrEnum):
    """The promise that was broken."""

    LOST = "lost"  # accepted, and neither run to its end nor ended by right
    DUPLICATED = "duplicated"  # started again without a recorded cause
    PHANTOM = "phantom"  # started without a request, or after it had ended permanently
    ORDER = "order"
    EARLY = "early"
    FAIRNESS = "fairness"
    UNIQUE = "unique"
    WAITED = "waited"  # in front of an idle worker
    RECOVERY = "recovery"  # took too long
    LEASE = "lease"  # lost without a recorded cause
    DIED = "died"  # a process, without a recorded cause
    COUNTERS = "counters"  # do not agree with the evidence
    LEFT = "left"  # something was left over at the end, or is missing


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken promise: the task ("" for none), the time (CLOCK_BOOTTIME), and a description."""

    wrong: Wrong
    text: str
    task_id: str = ""
    boot: float = 0.0


@dataclass(frozen=True, slots=True)
class CheckResult:
    """All findings in the order of time, and what was measured and counted."""

    findings: tuple[Finding, ...]
    numbers: Mapping[str, float]
