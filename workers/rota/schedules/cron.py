"""Cron expressions in a time zone. Only this module imports cronsim and zoneinfo, so that a program without cron
expressions does not load them.

cronsim parses an expression and computes its times. At changes of daylight saving time, cronsim follows Debian's cron:
a time that the clock skips is moved to the first moment after the gap, and of a time that occurs twice, only the first
is used. This applies to expressions without seconds in which neither the minute nor the hour begins with `*`. All other
expressions follow the wall clock. For example, `*/20 * * * *` continues to occur every 20 minutes.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from rota.durations import MICROSECONDS
from rota.foreign_names import nearest

try:
    from cronsim import CronSim, CronSimError
except ModuleNotFoundError:
    # An application that only enqueues does not need cronsim, because the fleet checks the declarations and computes
    # the times.
    HAS_CRONSIM = False
else:
    HAS_CRONSIM = True

MOST_CHARACTERS = 250
# More than any clock change; the instant of a backward search may be earlier than necessary.
_MAX_CLOCK_CHANGE_S = 3 * 3600
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Field(NamedTuple):
    name: str
    takes: str


_LISTS = "and lists, ranges and steps of these, as in 1,3 or 1-5 or */2"
_FIELDS = (
    _Field("second", f"0 to 59, {_LISTS}"),
    _Field("minute", f"0 to 59, {_LISTS}"),
    _Field("hour", f"0 to 23, {_LISTS}"),
    _Field("day of the month", f"1 to 31, L (the last), LW (the last from Monday to Friday), {_LISTS}"),
    _Field("month", f"1 to 12 or JAN to DEC, {_LISTS}"),
    _Field("day of the week", f"0 to 7 (0 and 7 are Sunday) or SUN to SAT, MON#1 (the first), 5L (the last), {_LISTS}"),
)
_ANY = ["*"] * len(_FIELDS)


def fault_in_cron(expression: str) -> str | None:
    """Return an error message that states what is wrong with an expression, where, and what is allowed there. Returns
    None if the expression is valid, or if cronsim is not installed."""
    fault = HAS_CRONSIM and _fault_in_text(expression)
    return f'cron "{expression[:MOST_CHARACTERS]}": {fault}' if fault else None


@lru_cache(maxsize=256)
def _fault_in_text(expression: str) -> str:
    if len(expression) > MOST_CHARACTERS:
        return f"it has {len(expression)} characters, but the limit is {MOST_CHARACTERS}"
    parts = expression.split()
    if len(parts) not in (len(_FIELDS) - 1, len(_FIELDS)):
        counted = "1 field" if len(parts) == 1 else f"{len(parts)} fields"
        return (
            f"it has {counted}; expected 5 (minute, hour, day of the month, month, day of the week), "
            "or 6 that start with the second"
        )
    left_out = len(_FIELDS) - len(parts)
    end = 0
    for number, part in enumerate(parts):
        start = expression.index(part, end)
        end = start + len(part)
        if fault := _fault_in_field(number + left_out, part, start):
            return fault
    return "" if _occurs(expression) else "it never occurs, because no date matches all of its fields"


def _fault_in_field(number: int, part: str, start: int) -> str:
    if _is_readable(number, part):
        return ""
    for term in part.split(","):
        if not _is_readable(number, term):
            break
        start += len(term) + 1
    field = _FIELDS[number]
    return f'"{term}" at character {start + 1} is not a valid {field.name}: expected * or {field.takes}'


def _is_readable(number: int, part: str) -> bool:
    fields = [*_ANY[:number], part, *_ANY[number + 1 :]]
    try:
        CronSim(" ".join(fields), _EPOCH)
    except (CronSimError, ValueError):  # int() raises ValueError for a number with thousands of digits
        return False
    return True


def _occurs(expression: str) -> bool:
    try:
        next(CronSim(expression, _EPOCH))
    except (CronSimError, StopIteration):
        return False
    return True


def fault_in_timezone(name: str) -> str | None:
    """Return an error message if this node knows no time zone with this name, or None if it does."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # OSError is raised if the name is a folder of the time zone database
        shown = f'there is no time zone "{name[:MOST_CHARACTERS]}"'
        example = '; expected a name of the IANA database, as in "Europe/Zurich" or "UTC"'
        return shown + (nearest(name[:MOST_CHARACTERS], available_timezones()) or example)
    return None


def times_after(expression: str, timezone: str, after_us: int) -> Iterator[int]:
    """Yield the times of an expression after an instant, in order, as Unix time in microseconds. The expression and the
    time zone must be valid."""
    return _ordered(_iterate(expression, _local(timezone, after_us)), after_us)


def far_enough_back(expression: str, timezone: str, now_us: int, count: int) -> int:
    """Return a time so far in the past that the expression has at least `count` occurrences between it and `now_us`. If
    there are not that many, return 0."""
    sim = _iterate(expression, _local(timezone, now_us), reverse=True)
    try:
        for _ in range(count + 1):
            last = next(sim)
    except (StopIteration, OverflowError):
        return 0
    return max(0, int(last.timestamp()) - _MAX_CLOCK_CHANGE_S) * MICROSECONDS


def _iterate(expression: str, moment: datetime, *, reverse: bool = False) -> "CronSim":
    if not HAS_CRONSIM:
        raise ModuleNotFoundError(
            "computing the times of a cron expression requires cronsim: pip install cronsim", name="cronsim"
        )
    return CronSim(expression, moment, reverse=reverse)


def _local(timezone: str, instant_us: int) -> datetime:
    return datetime.fromtimestamp(instant_us // MICROSECONDS, ZoneInfo(timezone))


def _ordered(sim: Iterator[datetime], after_us: int) -> Iterator[int]:
    # cronsim uses the wall clock, on which an hour may occur twice or not at all. So the times from cronsim may begin
    # before the given instant, and may contain the same time twice. Skip such times.
    last = after_us
    try:
        for moment in sim:
            at = int(moment.timestamp()) * MICROSECONDS
            if at > last:
                last = at
                yield at
    except OverflowError:  # the next time would be after the year 9999
        return
