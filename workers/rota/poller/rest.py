"""How long a poller may rest, and how much before a due time it sets out. Pure."""

import math
from dataclasses import dataclass
from typing import Final

from rota.protocol.entry import MICROSECONDS

LONGEST_SECONDS: Final = 1.0  # a bare ZADD rings nobody: look at least this often
STANDBY_SECONDS: Final = 0.003


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the last look at the delayed set told: the next due time, and Redis time in a call `sent_at` (monotonic).

    Times are reckoned from the sending, so a call that is sent at a due time, and takes as long to arrive as that one
    did, arrives when it is due.
    """

    next_due_us: int | None
    now_us: int
    sent_at: float

    @property
    def due_at(self) -> float:
        """The next due time (monotonic)."""
        if self.next_due_us is None:
            return math.inf
        return self.sent_at + (self.next_due_us - self.now_us) / MICROSECONDS

    @property
    def look_again_at(self) -> float:
        """When it is too old (monotonic)."""
        return self.sent_at + LONGEST_SECONDS


NO_OUTLOOK: Final = Outlook(None, 0, -math.inf)
"""Nobody has looked: it is time to."""


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


_AIM_SECONDS: Final = 0.00005
_LONGEST_LEAD_SECONDS: Final = 0.001
_OUTLIER_SECONDS: Final = 0.0005
_LEARNED_SHARE: Final = 1 / 8


@dataclass(slots=True)
class Lead:
    """How much earlier than planned to end a rest, learned from how late the calls after earlier rests arrived.

    A timer ends 0.1 to 0.3 ms late, and a server that slept is slower to look than one that was just asked. A call that
    arrives early moves nothing and is repeated, which costs 0.2 ms: so the aim is 0.05 ms after the due time, and what
    came later than 0.5 ms met a busy server and tells no more than that.
    """

    seconds: float = 0.0

    def arrived(self, late_seconds: float) -> None:
        """A call made right after a rest arrived so late by Redis time; below 0, early."""
        late = min(max(late_seconds, -_OUTLIER_SECONDS), _OUTLIER_SECONDS)
        lead = self.seconds + (late - _AIM_SECONDS) * _LEARNED_SHARE
        self.seconds = min(max(lead, 0.0), _LONGEST_LEAD_SECONDS)
