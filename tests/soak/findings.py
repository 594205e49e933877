"""What a checker may find, and what it found."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Wrong(StrEnum):
    """Which promise was broken."""

    LOST = "lost"  # accepted, and neither run to its end nor ended by right
    DUPLICATED = "duplicated"  # started again without a recorded cause
    PHANTOM = "phantom"  # started though nobody asked for it, or after it had ended for good
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
    """One broken promise: of which task ("" for none), when (CLOCK_BOOTTIME), and in words."""

    wrong: Wrong
    text: str
    task_id: str = ""
    boot: float = 0.0


@dataclass(frozen=True, slots=True)
class CheckResult:
    """All that was found, in the order of time, and what was measured and counted on the way."""

    findings: tuple[Finding, ...]
    numbers: Mapping[str, float]
