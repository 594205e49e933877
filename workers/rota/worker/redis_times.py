"""The start of an attempt in Redis time, and the parts of its lag. This module does no I/O.

A worker knows Redis time from its last turn: the script read `now` after the turn was sent and before the reply came.
So `now` plus the time since *sending* is never too early, and a lag based on it is never too small. `now` plus the time
since *receiving* is never too late, and reveals an early start.

A turn that waited behind a doorbell was sent long before the script read the time. For such a turn, the upper bound of
Redis time is taken from a turn of the last minute that did not wait. Two synchronised clocks drift apart by only
microseconds in a minute.
"""

from functools import partial
from typing import Final, NamedTuple

from rota.durations import NANOSECONDS
from rota.protocol.entry import MICROSECONDS, Entry, Kind

_NANOSECONDS_A_MICROSECOND: Final = 1000
_NOT_PROMOTED: Final = (Kind.IMMEDIATE, Kind.THROTTLED, Kind.RECOVERED)  # not promoted at their due time
_GOOD_FOR_NS: Final = 60 * NANOSECONDS


class Anchor(NamedTuple):
    """A reading of Redis time, between two readings of this machine's clock (CLOCK_BOOTTIME)."""

    now_us: int
    sent_ns: int
    received_ns: int


class Times(NamedTuple):
    """The start of an attempt, and its lag."""

    start_us: int  # Redis time
    lag_seconds: float  # from the due time to the start
    promotion_lag_seconds: float | None  # None if the task had no due time, or then waited for its rate limit
    wait_seconds: float  # from being ready to the start
    early: bool  # whether the task certainly started before its due time
    start_ns: int  # CLOCK_BOOTTIME


NOT_STARTED: Final = Times(0, 0.0, None, 0.0, early=False, start_ns=0)


def times_of(entry: Entry, anchor: Anchor, start_ns: int) -> Times:
    """Return the lag of an attempt that starts at `start_ns`, split into its parts."""
    now_us, sent_ns, received_ns = anchor
    start_us = now_us + (start_ns - sent_ns) // _NANOSECONDS_A_MICROSECOND  # the latest possible start
    earliest_us = now_us + (start_ns - received_ns) // _NANOSECONDS_A_MICROSECOND
    due_us = entry.due_us
    ready_us = entry.ready_us
    lag = wait = (start_us - due_us) / MICROSECONDS if start_us > due_us else 0.0
    if ready_us != due_us:
        wait = (start_us - ready_us) / MICROSECONDS if start_us > ready_us else 0.0
    promotion_lag = None if entry.kind in _NOT_PROMOTED else max(0, ready_us - due_us) / MICROSECONDS
    return _made((start_us, lag, promotion_lag, wait, earliest_us < due_us, start_ns))


_made: Final = partial(tuple.__new__, Times)  # faster than calling the class, as for `Entry`


class RedisClock:
    """The knowledge of Redis time from the replies to turns."""

    def __init__(self) -> None:
        self._offset_ns = 0  # upper bound of Redis time minus CLOCK_BOOTTIME
        self._seen_ns = -_GOOD_FOR_NS  # when that bound was read

    def is_good(self, at_ns: int) -> bool:
        """Whether a turn that did not wait got a reply within the last minute."""
        return at_ns - self._seen_ns < _GOOD_FOR_NS

    def from_immediate_reply(self, now_us: int, sent_ns: int, received_ns: int) -> Anchor:
        """Record the reply to a turn that did not wait, and return its reading of Redis time."""
        now_ns = now_us * _NANOSECONDS_A_MICROSECOND
        most_ns = now_ns - sent_ns
        least_ns = now_ns - received_ns
        # Keep the tighter of the two bounds, because this reply may also have been late. But take the new bound if the
        # known bound is old or a clock was set since.
        if most_ns < self._offset_ns or self._offset_ns < least_ns or not self.is_good(received_ns):
            self._offset_ns = most_ns
            self._seen_ns = received_ns
        return Anchor(now_us, sent_ns, received_ns)

    def from_delayed_reply(self, now_us: int, sent_ns: int, received_ns: int) -> Anchor:
        """Return the reading of Redis time from the reply to a turn that waited at the doorbells."""
        as_if_sent_ns = now_us * _NANOSECONDS_A_MICROSECOND - self._offset_ns
        # If the result is impossible, a clock was set. In that case only the time at which the turn was sent is safe.
        possible = sent_ns <= as_if_sent_ns <= received_ns
        return Anchor(now_us, as_if_sent_ns if possible else sent_ns, received_ns)
