"""The conversion of durations, which callers pass as seconds or as a timedelta, and the delays of a back-off."""

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
MAX_SECONDS = 100 * 365.25 * 86_400  # Lua numbers are exact for Unix times in microseconds up to the year 2255
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_UNITS: Final = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


def seconds(duration: Duration, what: str) -> float:
    """Return a duration in seconds. `what` is the name of the duration in error messages.

    Raises TypeError if the duration is neither a number nor a timedelta, and ValueError if it is not finite or is
    longer than 100 years.
    """
    if isinstance(duration, timedelta):
        value = duration.total_seconds()
    elif isinstance(duration, bool) or not isinstance(duration, int | float):
        raise TypeError(f"{what} must be seconds or a timedelta, got {duration!r}")
    else:
        try:
            value = float(duration)
        except OverflowError:  # JSON can contain integers that are too large for a float
            value = math.inf if duration > 0 else -math.inf
    if not math.isfinite(value) or abs(value) > MAX_SECONDS:
        raise ValueError(f"{what} must be at most 100 years, got {value:g} s")
    return value


def positive_seconds(duration: Duration, what: str) -> float:
    """Return a duration above 0 in seconds. Raises the errors of `seconds`, and ValueError if the duration is not above
    0."""
    value = seconds(duration, what)
    if value <= 0:
        raise ValueError(f"{what} must be more than 0 seconds, got {duration!r}")
    return value


def not_negative_seconds(duration: Duration, what: str) -> float:
    """Return a duration of 0 or more in seconds. Raises the errors of `seconds`, and ValueError if the duration is
    negative."""
    value = seconds(duration, what)
    if value < 0:
        raise ValueError(f"{what} must be 0 seconds or more, got {duration!r}")
    return value


def positive_milliseconds(duration: Duration, what: str) -> int:
    """Return a duration above 0 in whole milliseconds. Raises the errors of `positive_seconds`."""
    return round(positive_seconds(duration, what) * _MILLISECONDS)


def microseconds(duration: Duration, what: str) -> int:
    """Return a duration in whole microseconds. Raises the errors of `seconds`."""
    return round(seconds(duration, what) * MICROSECONDS)


def unix_microseconds(when: datetime, what: str) -> int:
    """Return an aware datetime as exact Unix time in microseconds.

    Raises TypeError if `when` is not a datetime, and ValueError if it is naive or more than 100 years ahead.
    """
    if not isinstance(when, datetime):
        raise TypeError(f"{what} must be a datetime, got {when!r}")
    if when.utcoffset() is None:
        raise ValueError(f"{what} has no time zone: add one, as in datetime.now(timezone.utc), got {when!r}")
    value = (when - _EPOCH) // _MICROSECOND
    if value > 2 * MAX_SECONDS * MICROSECONDS:
        raise ValueError(f"{what} is more than 100 years ahead: {when!r}")
    return value


def utc_datetime(unix_us: int) -> datetime:
    """Return Unix time in microseconds as an aware datetime."""
    return datetime.fromtimestamp(unix_us / MICROSECONDS, UTC)


def in_seconds(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with all microseconds converted to seconds, and their keys renamed. For example, `age_us`
    becomes `age_seconds`."""
    converted = {}
    for key, value in values.items():
        name = key.removesuffix("_us")
        converted[key if name == key else f"{name}_seconds"] = value if name == key else value / MICROSECONDS
    return converted


def in_words(seconds: float, units: int = 2) -> str:
    """Return a duration in a form for people, with at most `units` different units, for example `42 ms`, `4.2 s`, `3 m
    5 s` or `2 d 1 h`."""
    if 0 < seconds < 0.1:  # noqa: PLR2004 - below a tenth of a second
        return f"{seconds * 1000:.3g} ms"
    if seconds < 10:  # noqa: PLR2004 - where a tenth of a second matters
        return f"{max(0.0, seconds):.1f} s"
    left = int(seconds)
    parts = []
    for unit, size in _UNITS:
        if left >= size:
            parts.append(f"{left // size} {unit}")
            left %= size
    return " ".join(parts[:units])


class TimeLeft:
    """A timeout that applies to several waits together."""

    def __init__(self, timeout: Duration | None) -> None:
        self._until = None if timeout is None else time.monotonic() + seconds(timeout, "timeout")

    def seconds(self) -> float | None:
        """Return the time that is left, or None if there is no limit."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())


# Every delay has reached its maximum by then, and many more doublings would overflow a float.
_MAX_DOUBLINGS: Final = 64


def doubled(first_seconds: float, most_seconds: float, doublings: int) -> float:
    """Return `first_seconds`, doubled `doublings` times, but at most `most_seconds`."""
    return min(first_seconds * 2.0 ** min(doublings, _MAX_DOUBLINGS), most_seconds)


class Backoff:
    """The delays between connection attempts. A limit doubles with each failure, and each delay is a random time
    between half of the limit and the limit, so that the processes of a fleet do not reconnect at the same moment."""

    def __init__(
        self, first_seconds: float, most_seconds: float, uniform: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._first = first_seconds
        self._most = most_seconds
        self._uniform = uniform
        self._failures = 0

    def next_seconds(self) -> float:
        """Return the delay before the next attempt. Call this after each failure."""
        whole = doubled(self._first, self._most, self._failures)
        self._failures += 1
        return self._uniform(whole / 2, whole)

    def reset(self) -> None:
        """Start again with the shortest delay. Call this after a success."""
        self._failures = 0
