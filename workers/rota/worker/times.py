"""When an attempt started, by Redis time, and what its lag is made of. Pure.

A worker knows Redis time from its last turn: the answer's `now` was read after the turn was sent and before
the answer came. So `now` plus the time since *sending* is never earlier than the truth, and lag reckoned
from it is never flattering; `now` plus the time since *receiving* is never later, and shows an early start.
"""

from dataclasses import dataclass

from rota.protocol.entry import MICROSECONDS, Entry, Kind

_NANOSECONDS_A_MICROSECOND = 1000


@dataclass(frozen=True, slots=True)
class Anchor:
    """One reading of Redis time between two of this machine's clock (CLOCK_BOOTTIME)."""

    now_us: int
    sent_ns: int
    received_ns: int

    def latest_us(self, at_ns: int) -> int:
        """Redis time at `at_ns`, at the latest."""
        return self.now_us + (at_ns - self.sent_ns) // _NANOSECONDS_A_MICROSECOND

    def earliest_us(self, at_ns: int) -> int:
        """Redis time at `at_ns`, at the earliest."""
        return self.now_us + (at_ns - self.received_ns) // _NANOSECONDS_A_MICROSECOND


@dataclass(frozen=True, slots=True)
class Times:
    """The start of an attempt. `promotion_lag_seconds` is None for a task that never waited for a due time."""

    start_us: int
    lag_seconds: float
    promotion_lag_seconds: float | None
    wait_seconds: float
    early: bool


def times_of(entry: Entry, anchor: Anchor, start_ns: int) -> Times:
    """Take the lag of an attempt that starts at `start_ns` apart."""
    start_us = anchor.latest_us(start_ns)
    waited_for_due = entry.kind is not Kind.IMMEDIATE
    return Times(
        start_us,
        _seconds(entry.due_us, start_us),
        _seconds(entry.due_us, entry.ready_us) if waited_for_due else None,
        _seconds(entry.ready_us, start_us),
        anchor.earliest_us(start_ns) < entry.due_us,
    )


def _seconds(from_us: int, to_us: int) -> float:
    return max(0, to_us - from_us) / MICROSECONDS
