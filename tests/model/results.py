"""The expected replies of those scripts that return more than a status or a number."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class TurnResult:
    """The expected reply of a turn. An entry is represented by its text, and a claim by the entry and the body."""

    status: str
    stale: list[str] = field(default_factory=list)
    claims: list[tuple[str, str]] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    wait: int = 0
    quarantined: str = ""


@dataclass
class Reaped:
    """The expected reply of a reap."""

    alive: bool = False
    settled: int = 0
    requeued: list[str] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)


@dataclass
class Settled:
    """The result of settling. `stale` has the entries whose outcome had no effect, because the owner no longer held
    them. `released` counts the tasks that were returned to each queue.
    """

    stale: list[str] = field(default_factory=list)
    released: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Promoted:
    """The expected reply of a promotion."""

    moved: dict[str, int]
    buried: int
    next_due: int | None
    more: bool
    left_out: list[str]
