"""The time of a capture, moved by the test."""

import time
from collections.abc import Callable
from datetime import datetime

from rota.durations import MICROSECONDS, Duration, microseconds, unix_microseconds, utc_datetime


class Clock:
    """Stands still, at the time when the capture began or at which it was to begin, until it is moved; then what is due
    by then may be run."""

    def __init__(self, moved: Callable[[int, int], None], at: datetime | None = None) -> None:
        self.now_us = round(time.time() * MICROSECONDS) if at is None else unix_microseconds(at, "at")
        self._moved = moved

    def __repr__(self) -> str:
        return f"<clock at {self.now.isoformat(sep=' ', timespec='milliseconds')}>"

    @property
    def now(self) -> datetime:
        """The time, in UTC."""
        return utc_datetime(self.now_us)

    def move(self, by: Duration) -> datetime:
        """Move on by seconds or a timedelta; returns the time. Raises TypeError, or ValueError for a move back."""
        return self._move_to(self.now_us + microseconds(by, "by"))

    def move_to(self, when: datetime) -> datetime:
        """Move on to an aware datetime; returns the time. Raises TypeError, or ValueError for one that is naive, or
        before now."""
        return self._move_to(unix_microseconds(when, "when"))

    def _move_to(self, now_us: int) -> datetime:
        if now_us < self.now_us:
            raise ValueError(f"the clock only moves on: it is {self.now}, {utc_datetime(now_us)} is before that")
        before_us, self.now_us = self.now_us, now_us
        try:
            self._moved(before_us, now_us)
        except ValueError:  # too far at once
            self.now_us = before_us
            raise
        return self.now
