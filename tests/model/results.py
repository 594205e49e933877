"""The expected replies of scripts that return more than a status or a number."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class TurnResult:
    """What a turn must answer: texts of entries, claims with their bodies."""

    status: str
    stale: list[str] = field(default_factory=list)
    claims: list[tuple[str, str]] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    wait: int = 0
    quarantined: str = ""


@dataclass
class Reaped:
    """What a reaping must answer."""

    alive: bool = False
    settled: int = 0
    requeued: list[str] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)


@dataclass
class Settled:
    """What came of outcomes: those that were stale; of each queue of the others, how many gave their task back."""

    stale: list[str] = field(default_factory=list)
    released: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Promoted:
    """What a promotion must answer."""

    moved: dict[str, int]
    buried: int
    next_due: int | None
    more: bool
    left_out: list[str]
