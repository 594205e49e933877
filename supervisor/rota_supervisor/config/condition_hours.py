"""When something is open, as people write it: `Mon-Fri 08:00-12:00 13:00-17:00, Sat 09:00-12:00 Europe/Zurich`.

Days, then times of these days, as often as wanted, and the time zone at the end; commas say nothing. Times without
days before them are of every day. A time whose end is not after its start goes over midnight, and belongs to the day
on which it begins. When clocks are put forward, a time that they leave out is the moment of the change; when they are
put back, a time that comes twice is its first.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from rota.display_text import printable
from rota.protocol.tiers import Interval
from rota_supervisor.config.faults import suggestion

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
EXAMPLE: Final = '"Mon-Fri 08:00-18:00 Europe/Zurich"'
KNOWN_AHEAD: Final = timedelta(days=8)  # more than a week, so that each time of it is known
_KEPT_BEHIND: Final = timedelta(days=1)  # a server's clock may be put back
_MOST_TIMES: Final = 50  # a day: a script reads them one after the other
_DAY_MINUTES: Final = 24 * 60
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MONDAY: Final = datetime(2024, 1, 1, tzinfo=UTC)
_WORD: Final = re.compile(r"[^\s,]+")
_DAY_WORD: Final = re.compile(r"([A-Za-z]+)(?:-([A-Za-z]+))?", re.ASCII)
_TIME_WORD: Final = re.compile(r"(\d{1,2}):(\d\d)-(\d{1,2}):(\d\d)", re.ASCII)


class OpenTimes(NamedTuple):
    """From one minute of a day to another, on these days of the week (0 is Monday); `end` may lie in the next day."""

    days: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Hours:
    """All times at which something is open."""

    times: tuple[OpenTimes, ...]
    zone: str


class _Word(NamedTuple):
    at: int
    text: str

    @property
    def shown(self) -> str:
        return f'"{printable(self.text)}"'

    def fault(self, what: str) -> ValueError:
        return ValueError(f"character {self.at + 1}: {what}")


# Reading


def parse_hours(text: str) -> Hours:
    """Read hours. Raises ValueError with the place and what is expected there."""
    *words, zone = [_Word(match.start(), match[0]) for match in _WORD.finditer(text)] or [_Word(0, "")]
    if not zone.text or _TIME_WORD.fullmatch(zone.text) or _day_number(zone.text) is not None:
        raise ValueError(f"expected a time zone at the end, as in {EXAMPLE}")
    times = tuple(_times_of(words))
    if not times:
        raise zone.fault(f"expected times before the time zone, as in {EXAMPLE}")
    if len(times) > _MOST_TIMES:
        raise words[-1].fault(f"expected at most {_MOST_TIMES} times, got {len(times)}")
    _check_zone(zone)
    return Hours(times, zone.text)


def _times_of(words: list[_Word]) -> Iterator[OpenTimes]:
    days: tuple[int, ...] = tuple(range(7))
    before = None
    for word in words:
        if _TIME_WORD.fullmatch(word.text):
            yield OpenTimes(days, *_minutes(word))
        else:
            went_on = before is not None and not _TIME_WORD.fullmatch(before.text)
            days = tuple(dict.fromkeys((*(days if went_on else ()), *_days(word))))
        before = word
    if before is not None and not _TIME_WORD.fullmatch(before.text):
        raise before.fault(f"expected a time behind {before.shown}, as in {EXAMPLE}")


def _days(word: _Word) -> Iterator[int]:
    match = _DAY_WORD.fullmatch(word.text)
    if match is None:
        raise word.fault(f'expected days as in "Mon-Fri" or a time as in "08:00-18:00", got {word.shown}')
    first, last = (_day_number(name) for name in (match[1], match[2] or match[1]))
    if first is None or last is None:
        raise word.fault(f"expected one of {', '.join(DAYS)}, got {word.shown}")
    return ((first + ahead) % 7 for ahead in range((last - first) % 7 + 1))


def _day_number(name: str) -> int | None:
    return DAYS.index(name.capitalize()) if name.capitalize() in DAYS else None


def _minutes(word: _Word) -> tuple[int, int]:
    numbers = [int(digits) for digits in _TIME_WORD.fullmatch(word.text).groups()]  # type: ignore[union-attr]  # it matched
    hour, minute, last_hour, last_minute = numbers
    start, end = hour * 60 + minute, last_hour * 60 + last_minute
    if max(minute, last_minute) >= 60 or start >= _DAY_MINUTES or end > _DAY_MINUTES:  # noqa: PLR2004 - an hour
        raise word.fault(f"there is no such time, from 00:00 to 24:00: {word.shown}")
    if start == end:
        raise word.fault(f'{word.text} is no time at all; a whole day is "00:00-24:00"')
    return start, end if end > start else end + _DAY_MINUTES


def _check_zone(zone: _Word) -> None:
    try:
        _zone(zone.text)
    except (OSError, ValueError, KeyError):  # a folder of zones; no name of a file; none that is there
        from zoneinfo import available_timezones  # noqa: PLC0415 - as below

        hint = suggestion(zone.text, available_timezones()) or ", as in Europe/Zurich or UTC"
        raise zone.fault(f"this machine knows no time zone {zone.shown}{hint}") from None


def _zone(name: str) -> "ZoneInfo":
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - only where there are hours, a master pays for it

    return ZoneInfo(name)


# Reckoning


def intervals(hours: Hours, now_us: int) -> tuple[int, list[Interval]]:
    """When it is open around a time, and until when that is all (Unix time in microseconds)."""
    now, zone = _EPOCH + timedelta(microseconds=now_us), _zone(hours.zone)
    first = (now - _KEPT_BEHIND).astimezone(zone).date() - timedelta(days=1)  # what began on the evening before
    days = [first + timedelta(days=ahead) for ahead in range((KNOWN_AHEAD + _KEPT_BEHIND).days + 3)]
    known, oldest = _us(now + KNOWN_AHEAD), _us(now - _KEPT_BEHIND)
    found = _merged(sorted(_all_on(hours, days, zone)))
    return known, [each for each in found if each[1] > oldest and each[0] < known]


def longest_closed(hours: Hours) -> timedelta:
    """The longest time in a week at which it is closed."""
    _, found = intervals(Hours(hours.times, "UTC"), _us(_MONDAY))
    return timedelta(microseconds=max((after[0] - before[1] for before, after in pairwise(found)), default=0))


def _all_on(hours: Hours, days: Iterable[date], zone: tzinfo) -> Iterator[Interval]:
    for day in days:
        for times in hours.times:
            if day.weekday() in times.days:
                yield _us(_moment(day, times.start, zone)), _us(_moment(day, times.end, zone))


def _merged(found: list[Interval]) -> Iterator[Interval]:
    """Those that touch or overlap as one, and none that a change of the clocks has left nothing of."""
    start = end = 0
    for begins, ends in found:
        if begins > end:
            if end > start:
                yield start, end
            start = begins
        end = max(end, ends)
    if end > start:
        yield start, end


def _moment(day: date, minute: int, zone: tzinfo) -> datetime:
    """When the clocks of a zone first show, or have passed, that minute of a day."""
    local = datetime.combine(day, time()) + timedelta(minutes=minute)
    earlier, later = sorted(local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if earlier.astimezone(zone).replace(tzinfo=None) == local:
        return earlier
    while later - earlier > timedelta(seconds=1):  # left out: look for the change
        middle = earlier + (later - earlier) // 2
        earlier, later = (middle, later) if middle.astimezone(zone).replace(tzinfo=None) < local else (earlier, middle)
    return later.replace(microsecond=0)


def _us(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
