"""Durations as callers give them, seconds or timedelta everywhere, and the delays of a back-off."""

import math
import random
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

Duration = float | timedelta

MICROSECONDS = 1_000_000
NANOSECONDS: Final = 1_000_000_000
_MILLISECONDS = 1_000
MAX_SECONDS = 100 * 365.25 * 86_400  # Lua's numbers hold microseconds exactly up to the year 2255
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_UNITS: Final = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


def seconds(duration: Duration, what: str) -> float:
    """A duration in seconds; `what` names it in errors.

    Raises TypeError for anything but a number or a timedelta, ValueError when it is not finite or longer
    than 100 years.
    """
    if isinstance(duration, timedelta):
        value = duration.total_seconds()
    elif isinstance(duration, bool) or not isinstance(duration, int | float):
        raise TypeError(f"{what} must be seconds or a timedelta, got {duration!r}")
    else:
        try:
            value = float(duration)
        except OverflowError:  # JSON has integers that no float can hold
            value = math.inf if duration > 0 else -math.inf
    if not math.isfinite(value) or abs(value) > MAX_SECONDS:
        raise ValueError(f"{what} must be at most 100 years, got {value:g} s")
    return value


def positive_seconds(duration: Duration, what: str) -> float:
    """A duration in seconds that is more than none. Raises as `seconds` does."""
    value = seconds(duration, what)
    if value <= 0:
        raise ValueError(f"{what} must be more than 0 seconds, got {duration!r}")
    return value


def not_negative_seconds(duration: Duration, what: str) -> float:
    """A duration in seconds, 0 or more. Raises as `seconds` does."""
    value = seconds(duration, what)
    if value < 0:
        raise ValueError(f"{what} must be 0 seconds or more, got {duration!r}")
    return value


def positive_milliseconds(duration: Duration, what: str) -> int:
    """A duration that is more than none in whole milliseconds. Raises as `seconds` does."""
    return round(positive_seconds(duration, what) * _MILLISECONDS)


def microseconds(duration: Duration, what: str) -> int:
    """A duration in whole microseconds. Raises as `seconds` does."""
    return round(seconds(duration, what) * MICROSECONDS)


def unix_microseconds(when: datetime, what: str) -> int:
    """An aware datetime as Unix time in microseconds, exactly.

    Raises TypeError for anything else, ValueError when it is naive or lies too far ahead.
    """
    if not isinstance(when, datetime):
        raise TypeError(f"{what} must be a datetime, got {when!r}")
    if when.utcoffset() is None:
        raise ValueError(f"{what} has no time zone: give it one, as in datetime.now(timezone.utc), got {when!r}")
    value = (when - _EPOCH) // _MICROSECOND
    if value > 2 * MAX_SECONDS * MICROSECONDS:
        raise ValueError(f"{what} lies more than 100 years ahead: {when!r}")
    return value


def utc_datetime(unix_us: int) -> datetime:
    """Unix time in microseconds as an aware datetime."""
    return datetime.fromtimestamp(unix_us / MICROSECONDS, UTC)


def in_seconds(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same for people and programs: what is measured in microseconds, `age_us`, in seconds, `age_seconds`."""
    told = {}
    for key, value in values.items():
        name = key.removesuffix("_us")
        told[key if name == key else f"{name}_seconds"] = value if name == key else value / MICROSECONDS
    return told


def in_words(seconds: float, units: int = 2) -> str:
    """A time in its greatest units, for people: `42 ms`, `4.2 s`, `3 m 5 s`, `2 d 1 h`."""
    if 0 < seconds < 0.1:  # noqa: PLR2004 - below a tenth of a second
        return f"{seconds * 1000:.3g} ms"
    if seconds < 10:  # noqa: PLR2004 - where a tenth says something
        return f"{max(0.0, seconds):.1f} s"
    left, parts = int(seconds), []
    for unit, size in _UNITS:
        if left >= size:
            parts.append(f"{left // size} {unit}")
            left %= size
    return " ".join(parts[:units])


class TimeLeft:
    """One timeout for several waits."""

    def __init__(self, timeout: Duration | None) -> None:
        self._until = None if timeout is None else time.monotonic() + seconds(timeout, "timeout")

    def seconds(self) -> float | None:
        """What is left of it, None for no limit."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())


_MOST_DOUBLINGS: Final = 64  # beyond, a wait is as long as it may be, and floats would overflow


def doubled(first_seconds: float, most_seconds: float, doublings: int) -> float:
    """The first wait doubled so many times, as far as `most_seconds`."""
    return min(first_seconds * 2.0 ** min(doublings, _MOST_DOUBLINGS), most_seconds)


class Backoff:
    """Delays for connections, each drawn from the upper half of a wait that doubles, so that a fleet that lost its
    server together does not come back together."""

    def __init__(
        self, first_seconds: float, most_seconds: float, uniform: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._first = first_seconds
        self._most = most_seconds
        self._uniform = uniform
        self._failures = 0

    def next_seconds(self) -> float:
        """The delay before the next try, after one more failure."""
        whole = doubled(self._first, self._most, self._failures)
        self._failures += 1
        return self._uniform(whole / 2, whole)

    def reset(self) -> None:
        """After a success: begin again at the shortest."""
        self._failures = 0
