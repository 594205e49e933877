"""The start of an attempt in Redis time, and the parts of its lag. This module does no I/O.

A worker estimates Redis time from its last turn: the script read `now` after the turn was sent and before the reply
arrived. So `now` plus the time since *sending* is never earlier than Redis time, and a lag based on it is never too
small. `now` plus the time since *receiving* is never later than Redis time. If it is past the due time, the task did
not start too early.

A turn that waited behind a doorbell was sent long before the script read the time. For such a turn, the upper bound of
Redis time is taken from a turn of the last minute that did not wait. Two synchronised clocks drift apart by only
microseconds in a minute.
"""

from functools import partial
from typing import Final, NamedTuple

from rota.durations import NANOSECONDS
from rota.protocol.entry import MICROSECONDS, Entry, Kind

_NANOSECONDS_A_MICROSECOND: Final = 1000
# Kinds whose entries were not promoted when they became due.
_NOT_PROMOTED: Final = (Kind.IMMEDIATE, Kind.THROTTLED, Kind.RECOVERED)
_GOOD_FOR_NS: Final = 60 * NANOSECONDS


class Anchor(NamedTuple):
    """A reading of Redis time (`now_us`), with the times by this machine's clock (CLOCK_BOOTTIME) before and after the
    reading."""

    now_us: int
    sent_ns: int
    received_ns: int


class Times(NamedTuple):
    """When an attempt started, and how late it was."""

    start_us: int  # Redis time
    lag_seconds: float  # from the due time to the start
    # None if the task was not delayed until its due time, or if it was throttled or recovered after that time.
    promotion_lag_seconds: float | None
    wait_seconds: float  # from the time when the task was ready to its start
    early: bool  # whether the task may have started before its due time
    start_ns: int  # CLOCK_BOOTTIME


NOT_STARTED: Final = Times(0, 0.0, None, 0.0, early=False, start_ns=0)


def times_of(entry: Entry, anchor: Anchor, start_ns: int) -> Times:
    """Return the start, the lag and the parts of the lag of an attempt that starts at `start_ns` (CLOCK_BOOTTIME)."""
    now_us, sent_ns, received_ns = anchor
    # The start by Redis time is never later than this, so the lag is never too small.
    start_us = now_us + (start_ns - sent_ns) // _NANOSECONDS_A_MICROSECOND
    earliest_us = now_us + (start_ns - received_ns) // _NANOSECONDS_A_MICROSECOND
    due_us = entry.due_us
    ready_us = entry.ready_us
    lag = wait = (start_us - due_us) / MICROSECONDS if start_us > due_us else 0.0
    if ready_us != due_us:
        wait = (start_us - ready_us) / MICROSECONDS if start_us > ready_us else 0.0
    promotion_lag = None if entry.kind in _NOT_PROMOTED else max(0, ready_us - due_us) / MICROSECONDS
    return _made((start_us, lag, promotion_lag, wait, earliest_us < due_us, start_ns))


_made: Final = partial(tuple.__new__, Times)  # calling `tuple.__new__` is faster than calling the class


class RedisClock:
    """Estimates Redis time from the replies to turns."""

    def __init__(self) -> None:
        self._offset_ns = 0  # upper bound of Redis time minus CLOCK_BOOTTIME, in nanoseconds
        self._seen_ns = -_GOOD_FOR_NS  # CLOCK_BOOTTIME when `_offset_ns` was last set

    def is_good(self, at_ns: int) -> bool:
        """Whether the estimate of Redis time is recent: a turn that did not wait at the doorbells got a reply within
        the last minute."""
        return at_ns - self._seen_ns < _GOOD_FOR_NS

    def from_immediate_reply(self, now_us: int, sent_ns: int, received_ns: int) -> Anchor:
        """Store the times of a reply to a turn that did not wait at the doorbells, and return the reading of Redis time
        in the reply."""
        now_ns = now_us * _NANOSECONDS_A_MICROSECOND
        most_ns = now_ns - sent_ns
        least_ns = now_ns - received_ns
        # Keep the lower of the two upper bounds, because a slow turn gives a bound that is too high. But use the new
        # bound if the stored bound is old, or if the stored bound is impossible because a clock was set in the
        # meantime.
        if most_ns < self._offset_ns or self._offset_ns < least_ns or not self.is_good(received_ns):
            self._offset_ns = most_ns
            self._seen_ns = received_ns
        return Anchor(now_us, sent_ns, received_ns)

    def from_delayed_reply(self, now_us: int, sent_ns: int, received_ns: int) -> Anchor:
        """Return the reading of Redis time from the reply to a turn that waited at the doorbells."""
        as_if_sent_ns = now_us * _NANOSECONDS_A_MICROSECOND - self._offset_ns
        # If this estimate is not between the two times, a clock was set in the meantime. Then use the time at which the
        # turn was sent, which is safe.
        possible = sent_ns <= as_if_sent_ns <= received_ns
        return Anchor(now_us, as_if_sent_ns if possible else sent_ns, received_ns)
