"""When an attempt started, by Redis time, and what its lag is made of. Pure.

A worker knows Redis time from its last turn: the answer's `now` was read after the turn was sent and before
the answer came. So `now` plus the time since *sending* is never earlier than the truth, and lag reckoned
from it is never flattering; `now` plus the time since *receiving* is never later, and shows an early start.

A turn that waited behind a doorbell was sent long before it was read. For such a one the latest that Redis time can be
is taken over from a turn of the last minute that was answered at once: two clocks that are kept right do not part by
more than microseconds in that time.
"""

from functools import partial
from typing import Final, NamedTuple

from rota.durations import NANOSECONDS
from rota.protocol.entry import MICROSECONDS, Entry, Kind

_NANOSECONDS_A_MICROSECOND: Final = 1000
_NOT_PROMOTED: Final = (Kind.IMMEDIATE, Kind.THROTTLED, Kind.RECOVERED)  # at their due time
_GOOD_FOR_NS: Final = 60 * NANOSECONDS


class Anchor(NamedTuple):
    """One reading of Redis time between two of this machine's clock (CLOCK_BOOTTIME)."""

    now_us: int
    sent_ns: int
    received_ns: int


class Times(NamedTuple):
    """The start of an attempt, by Redis time and (`start_ns`) by CLOCK_BOOTTIME. `promotion_lag_seconds` is None for a
    task that never waited for a due time, or waited for its rate after it."""

    start_us: int
    lag_seconds: float
    promotion_lag_seconds: float | None
    wait_seconds: float
    early: bool
    start_ns: int


NOT_BEGUN: Final = Times(0, 0.0, None, 0.0, False, 0)


def times_of(entry: Entry, anchor: Anchor, start_ns: int) -> Times:
    """Take the lag of an attempt that starts at `start_ns` apart."""
    now_us, sent_ns, received_ns = anchor
    start_us = now_us + (start_ns - sent_ns) // _NANOSECONDS_A_MICROSECOND  # at the latest
    earliest_us = now_us + (start_ns - received_ns) // _NANOSECONDS_A_MICROSECOND
    due_us, ready_us = entry.due_us, entry.ready_us
    lag = wait = (start_us - due_us) / MICROSECONDS if start_us > due_us else 0.0
    if ready_us != due_us:
        wait = (start_us - ready_us) / MICROSECONDS if start_us > ready_us else 0.0
    promotion_lag = None if entry.kind in _NOT_PROMOTED else max(0, ready_us - due_us) / MICROSECONDS
    return _made((start_us, lag, promotion_lag, wait, earliest_us < due_us, start_ns))


_made: Final = partial(tuple.__new__, Times)  # as entries are


class RedisClock:
    """What is known of Redis time from the answers of turns."""

    def __init__(self) -> None:
        self._ahead_ns = 0  # Redis time less CLOCK_BOOTTIME is at most this, as seen at
        self._seen_ns = -_GOOD_FOR_NS

    def is_good(self, at_ns: int) -> bool:
        """Whether a turn was answered at once within the last minute."""
        return at_ns - self._seen_ns < _GOOD_FOR_NS

    def answered(self, now_us: int, sent_ns: int, received_ns: int) -> Anchor:
        """A turn was answered at once."""
        now_ns = now_us * _NANOSECONDS_A_MICROSECOND
        most_ns, least_ns = now_ns - sent_ns, now_ns - received_ns
        # Of two readings the tighter one, as this answer may have been late itself; unless the known one is old, or a
        # clock was set since.
        if most_ns < self._ahead_ns or self._ahead_ns < least_ns or not self.is_good(received_ns):
            self._ahead_ns, self._seen_ns = most_ns, received_ns
        return Anchor(now_us, sent_ns, received_ns)

    def answered_late(self, now_us: int, sent_ns: int, received_ns: int) -> Anchor:
        """A turn was answered that had waited since it was sent."""
        as_if_sent_ns = now_us * _NANOSECONDS_A_MICROSECOND - self._ahead_ns
        # Outside of what is possible, a clock was set: then only the long way round is safe.
        possible = sent_ns <= as_if_sent_ns <= received_ns
        return Anchor(now_us, as_if_sent_ns if possible else sent_ns, received_ns)
