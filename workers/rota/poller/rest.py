"""How long a poller may rest. Pure."""

from dataclasses import dataclass
from typing import Final

from rota.protocol.entry import MICROSECONDS
from rota.protocol.replies import Promoted

LONGEST_SECONDS: Final = 1.0  # a bare ZADD rings nobody: look at least this often
STANDBY_SECONDS: Final = 0.003


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the last promotion told: the next due time, and Redis time when it was `seen_at` (monotonic)."""

    next_due_us: int | None
    now_us: int
    seen_at: float

    def rest_seconds(self, at: float, standby_seconds: float) -> float:
        """How long to rest from `at` (monotonic): until the next due time, at most LONGEST_SECONDS.

        Redis time is reckoned from when the answer was seen, so a rest ends late by part of a round trip,
        never early; `standby_seconds` lets another poller go first.
        """
        rest = LONGEST_SECONDS
        if self.next_due_us is not None:
            rest = min(rest, (self.next_due_us - self.now_us) / MICROSECONDS + standby_seconds)
        return max(0.0, rest - (at - self.seen_at))


def outlook_of(promoted: Promoted, seen_at: float) -> Outlook:
    """The outlook after a promotion."""
    return Outlook(promoted.next_due_us, promoted.now_us, seen_at)


@dataclass(slots=True)
class Standby:
    """Stand-bys go a little later than the first poller, `rank` x 3 ms, and find its work done.

    A token at the doorbell is heard by one poller only: whoever heard it goes first for what it told of.
    """

    rank: int
    heard_due_us: int | None = None

    def heard(self, next_due_us: int | None) -> None:
        """A token came, and this is what is due next."""
        self.heard_due_us = next_due_us

    def seconds(self, next_due_us: int | None) -> float:
        """How much later than due to go."""
        if next_due_us is not None and next_due_us == self.heard_due_us:
            return 0.0
        return self.rank * STANDBY_SECONDS
