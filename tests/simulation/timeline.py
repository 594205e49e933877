"""Simulated time. There is one timeline of events for the whole world, and a clock that the product's code reads.

Nothing waits in real time. Time is a number that jumps from event to event.
"""

import time
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

NANOSECONDS: Final = 1_000_000_000
MICROSECOND: Final = 1e-6  # added to a wait, so that the wait is certainly over in spite of rounding errors
Action = Callable[[], None]


class Timeline:
    """The planned events, ordered by time. Events with the same time run in the order in which they were planned."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Action]] = []
        self._planned = 0

    def after(self, seconds: float, action: Action) -> None:
        """Plan an action after this number of seconds."""
        self._planned += 1
        heappush(self._events, (self.now + seconds, self._planned, action))

    def run(self, until: float) -> None:
        """Run all events that are planned before this time."""
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heappop(self._events)
            action()
        self.now = until


class Clock:
    """A replacement for the module `time` in `rota.child.slots`. It returns the CLOCK_BOOTTIME of the node whose code
    is running.
    """

    CLOCK_BOOTTIME: Final = time.CLOCK_BOOTTIME

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.booted_at = 0.0

    def clock_gettime_ns(self, clock: int) -> int:
        """Return the time since the boot of the node."""
        assert clock == self.CLOCK_BOOTTIME, "the product reads a clock that the simulation does not have"
        return round((self._timeline.now - self.booted_at) * NANOSECONDS)
