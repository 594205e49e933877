"""The conditions under which queues are open: opening hours in a readable form, or a short piece of Lua.

Hours are written as in `Mon-Fri 08:00-12:00 13:00-17:00, Sat 09:00-12:00 Europe/Zurich`: some days, then the times on
these days. More days and times can follow, and the time zone comes last. Commas have no meaning. Times without days
before them apply to every day. If the end of a time is not after its start, the time continues after midnight, and
belongs to the day on which it begins. If a time is skipped because clocks are put forward, the moment of the change is
used instead. If a time occurs twice because clocks are put back, its first occurrence is used.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from rota.display_text import printable
from rota.durations import unix_microseconds, utc_datetime
from rota.protocol.tiers import MOST_CONDITION_CHARACTERS, Interval
from rota_supervisor.config.errors import suggestion

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
EXAMPLE: Final = '"Mon-Fri 08:00-18:00 Europe/Zurich"'
KNOWN_AHEAD: Final = timedelta(days=8)  # more than a week, so that each opening time of the week is included
_KEPT_BEHIND: Final = timedelta(days=1)  # how long past times are kept, in case the server's clock is set back
_MAX_TIMES: Final = 50  # the maximum number of time spans in one text, because a script reads a day's spans one by one
_DAY_MINUTES: Final = 24 * 60
_MONDAY: Final = datetime(2024, 1, 1, tzinfo=UTC)
_WORD: Final = re.compile(r"[^\s,]+")
_DAY_WORD: Final = re.compile(r"([A-Za-z]+)(?:-([A-Za-z]+))?", re.ASCII)
_TIME_WORD: Final = re.compile(r"(\d{1,2}):(\d\d)-(\d{1,2}):(\d\d)", re.ASCII)


class OpenTimes(NamedTuple):
    """A time span on some days of the week, in minutes since midnight."""

    days: tuple[int, ...]  # 0 is Monday
    start: int
    end: int  # more than 24 * 60 if the span ends on the next day


@dataclass(frozen=True, slots=True)
class Hours:
    """All times at which a queue is open."""

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


# Parsing


def parse_hours(text: str) -> Hours:
    """Parse hours. If the text is not valid, raises ValueError, which states where the fault is and what is expected
    there.
    """
    *words, zone = [_Word(match.start(), match[0]) for match in _WORD.finditer(text)] or [_Word(0, "")]
    for word in (*words, zone):
        if word.text[:1].isdigit() and not _TIME_WORD.fullmatch(word.text):
            raise word.fault(f'expected times as in "08:00-18:00", got {word.shown}')
    if not zone.text or _TIME_WORD.fullmatch(zone.text) or _day_number(zone.text) is not None:
        raise ValueError(f'expected a time zone at the end, as in {EXAMPLE}, got "{printable(text)}"')
    times = tuple(_times_of(words))
    if not times:
        raise zone.fault(f"expected times before the time zone, as in {EXAMPLE}")
    if len(times) > _MAX_TIMES:
        raise words[-1].fault(f"expected at most {_MAX_TIMES} times, got {len(times)}")
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
        raise before.fault(f"expected a time after {before.shown}, as in {EXAMPLE}")


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
    start = hour * 60 + minute
    end = last_hour * 60 + last_minute
    if max(minute, last_minute) >= 60 or start >= _DAY_MINUTES or end > _DAY_MINUTES:  # noqa: PLR2004 - an hour
        raise word.fault(f"expected a time from 00:00 to 24:00, got {word.shown}")
    if start == end:
        raise word.fault(f'{word.text} is an empty span of time; to mean the whole day, write "00:00-24:00"')
    return start, end if end > start else end + _DAY_MINUTES


def _check_zone(zone: _Word) -> None:
    try:
        _zone(zone.text)
    # Each of these errors means that there is no such time zone. The name is that of a folder, is not a valid file
    # name, or belongs to no file.
    except (OSError, ValueError, KeyError):
        from zoneinfo import available_timezones  # noqa: PLC0415 - see `_zone`

        hint = suggestion(zone.text, available_timezones()) or ", as in Europe/Zurich or UTC"
        raise zone.fault(f"this machine has no time zone {zone.shown}{hint}") from None


def _zone(name: str) -> "ZoneInfo":
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - memory that a master needs only if there are hours

    return ZoneInfo(name)


# Computation


def intervals(hours: Hours, now_us: int) -> tuple[int, list[Interval]]:
    """Compute the opening times from a day before `now_us` until some days after it. Return the end of this time, and
    the opening times. All times are Unix times in microseconds.
    """
    now = utc_datetime(now_us)
    zone = _zone(hours.zone)
    # Opening times that began on the previous evening may not have ended yet.
    first = (now - _KEPT_BEHIND).astimezone(zone).date() - timedelta(days=1)
    days = [first + timedelta(days=ahead) for ahead in range((KNOWN_AHEAD + _KEPT_BEHIND).days + 3)]
    known = _us(now + KNOWN_AHEAD)
    oldest = _us(now - _KEPT_BEHIND)
    found = _merged(sorted(_all_on(hours, days, zone)))
    return known, [each for each in found if each[1] > oldest and each[0] < known]


def longest_closed(hours: Hours) -> timedelta:
    """Return the longest time for which a queue with these hours is closed without a break."""
    _, found = intervals(Hours(hours.times, "UTC"), _us(_MONDAY))
    return timedelta(microseconds=max((after[0] - before[1] for before, after in pairwise(found)), default=0))


def _all_on(hours: Hours, days: Iterable[date], zone: tzinfo) -> Iterator[Interval]:
    for day in days:
        for times in hours.times:
            if day.weekday() in times.days:
                yield _us(_moment(day, times.start, zone)), _us(_moment(day, times.end, zone))


def _merged(found: list[Interval]) -> Iterator[Interval]:
    """Yield the intervals in order. Intervals that touch or overlap are merged, and intervals that a clock change made
    empty are skipped."""
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
    """Return the time at which the clocks of a zone first show this minute of a day. If the clocks skip this minute
    because they are put forward, return the time of the change.
    """
    local = datetime.combine(day, time()) + timedelta(minutes=minute)
    earlier, later = sorted(local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if earlier.astimezone(zone).replace(tzinfo=None) == local:
        return earlier
    while later - earlier > timedelta(seconds=1):  # The clocks skip this minute, so search for the change.
        middle = earlier + (later - earlier) // 2
        earlier, later = (middle, later) if middle.astimezone(zone).replace(tzinfo=None) < local else (earlier, middle)
    return later.replace(microsecond=0)


def _us(moment: datetime) -> int:
    return unix_microseconds(moment, "a time of hours")


# Conditions in Lua. These functions check whether a text is accepted, and otherwise report where the fault is. Redis
# cannot interrupt a script, so a condition may contain nothing that takes long: only `local`, `if`, `return`,
# operators, and five functions of `math`. Loops, other calls, tables and string concatenation are not accepted. So the
# time that a condition takes is limited by the length of its text. The text can use only the names that Rota gives it.
# Every accepted text is valid Lua with the same meaning. Comments are not sent, but line breaks are kept, so that line
# numbers in errors match the text.

GIVEN: Final = ("queue", "ready", "delayed", "running", "now")
FUNCTIONS: Final = ("floor", "ceil", "min", "max", "abs")
_LIBRARY: Final = "math"
_WORDS: Final = frozenset(
    ("and", "else", "elseif", "end", "false", "if", "local", "nil", "not", "or", "return", "then", "true")
)
_REFUSED: Final = frozenset(("break", "do", "for", "function", "goto", "in", "repeat", "until", "while"))
_BINARY: Final = frozenset(("and", "or", "==", "~=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%"))
_UNARY: Final = frozenset(("not", "-"))
_STATEMENTS: Final = frozenset(("local", "if", "return"))
_BLOCK_ENDS: Final = frozenset(("end", "else", "elseif", ""))
# Lua itself permits at most 200 nested levels, 200 locals and 250 values at once. An accepted text must stay below
# them.
_MAX_LEVELS: Final = 20
_MAX_LOCALS: Final = 100
_MAX_ARGUMENTS: Final = 50
_NOT_ALLOWED: Final = (
    f"is not allowed in a condition, which can use local, if and return, operators except .. and ^, and "
    f"math.{', math.'.join(FUNCTIONS)}"
)
_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|--(?!\[)[^\n]*)
    |(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.]))
    |(?P<name>[A-Za-z_]\w*)
    |(?P<text>"[^"\\\n]*"|'[^'\\\n]*')
    |(?P<sign>==|~=|<=|>=|[-+*/%<>=(),;]|\.(?!\.))""",
    re.ASCII | re.VERBOSE,
)


class _LuaToken(NamedTuple):
    kind: str
    text: str
    line: int
    column: int

    def fault(self, what: str) -> ValueError:
        return ValueError(f"line {self.line}, character {self.column}: {what}")

    @property
    def shown(self) -> str:
        return f'"{printable(self.text)}"' if self.text else "the end"


def check_chunk(text: str) -> str:
    """Check the Lua of a condition, and return it in the form that is sent to Redis: if it is an expression, `return`
    is added before it. If it is not accepted, raises ValueError, which states where the fault is.
    """
    tokens = _tokens(text)
    is_expression = tokens[0].text not in _STATEMENTS
    if is_expression:
        tokens.insert(0, _LuaToken("name", "return", 1, 1))
    _Parser(
        tokens,
        "the expression is already complete here" if is_expression else "no statement may follow return in a block",
    ).parse()
    sent = _joined(tokens)
    if len(sent) > MOST_CONDITION_CHARACTERS:
        raise ValueError(f"expected at most {MOST_CONDITION_CHARACTERS} characters without comments, got {len(sent)}")
    return sent


def _tokens(text: str) -> list[_LuaToken]:
    tokens = list[_LuaToken]()
    at = 0
    line = 1
    line_at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            wrong = _LuaToken("", text[at], line, at - line_at + 1)
            raise wrong.fault(f"{wrong.shown} {_NOT_ALLOWED}")
        if match.lastgroup != "space":
            tokens.append(_LuaToken(match.lastgroup, match[0], line, at - line_at + 1))
        if lines := match[0].count("\n"):
            line = line + lines
            line_at = at + match[0].rindex("\n") + 1
        at = match.end()
    return [*tokens, _LuaToken("", "", line, at - line_at + 1)]


def _joined(tokens: list[_LuaToken]) -> str:
    text = ""
    line = 1
    for token in tokens:
        text += "\n" * (token.line - line) if token.line > line else " " * bool(text)
        text = text + token.text
        line = token.line
    return text.rstrip()


class _Parser:
    """A parser of the Lua of a condition. It reads the tokens once, and raises ValueError at the first fault.
    `_scopes`: the names of the local variables of each open block.
    """

    def __init__(self, tokens: list[_LuaToken], no_more: str) -> None:
        self._no_more = no_more  # the fault to report if text follows a `return`
        self._tokens = tokens
        self._at = 0
        self._scopes: list[set[str]] = [set(GIVEN)]
        self._levels = 0
        self._locals = 0

    def parse(self) -> None:
        self._block()
        if self._next.text:
            raise self._next.fault(f"expected the end, got {self._next.shown}")

    # Blocks

    def _block(self) -> None:
        self._deeper()
        self._scopes.append(set())
        while self._next.text not in _BLOCK_ENDS:
            is_last = self._statement()
            self._accept(";")
            if is_last and self._next.text not in _BLOCK_ENDS:
                raise self._next.fault(f"{self._no_more}, got {self._next.shown}")
        self._scopes.pop()
        self._levels -= 1

    def _statement(self) -> bool:
        """Parse a statement. Returns whether it has to be the last one of its block, like `return`."""
        token = self._next
        if self._accept("return"):
            self._expression()
        elif self._accept("local"):
            self._local()
        elif self._accept("if"):
            self._if()
        else:
            raise token.fault(self._refusal(token) or f"expected local, if or return, got {token.shown}")
        return token.text == "return"

    def _local(self) -> None:
        name = self._take()
        if name.kind != "name" or name.text in _WORDS | _REFUSED | {_LIBRARY}:
            raise name.fault(f"expected a name, got {name.shown}")
        self._locals += 1
        if self._locals > _MAX_LOCALS:
            raise name.fault(f"expected at most {_MAX_LOCALS} locals")
        self._expect("=")
        self._expression()
        self._scopes[-1].add(name.text)

    def _if(self) -> None:
        self._branch()
        while self._accept("elseif"):
            self._branch()
        if self._accept("else"):
            self._block()
        self._expect("end")

    def _branch(self) -> None:
        self._expression()
        self._expect("then")
        self._block()

    # Expressions. The parser ignores the precedence of operators, which only matters to Lua.

    def _expression(self) -> None:
        self._operand()
        while self._next.text in _BINARY:
            self._at += 1
            self._operand()

    def _operand(self) -> None:
        self._deeper()
        token = self._take()
        if token.text in _UNARY:
            self._operand()
        elif token.text == "(":
            self._expression()
            self._expect(")")
        elif token.text == _LIBRARY:
            self._call()
        elif not self._is_value(token):
            raise token.fault(self._refusal(token) or f"expected a value, got {token.shown}")
        self._levels -= 1

    def _is_value(self, token: _LuaToken) -> bool:
        if token.kind == "name":
            return token.text in {"true", "false", "nil"} or any(token.text in names for names in self._scopes)
        return token.kind in {"number", "text"}

    def _call(self) -> None:
        self._expect(".")
        function = self._take()
        if function.text not in FUNCTIONS:
            raise function.fault(f"expected one of {', '.join(FUNCTIONS)} of math, got {function.shown}")
        opened = self._expect("(")
        self._expression()
        arguments = 1
        while self._accept(","):
            self._expression()
            arguments += 1
        self._expect(")")
        if arguments > _MAX_ARGUMENTS:
            raise opened.fault(f"expected at most {_MAX_ARGUMENTS} arguments, got {arguments}")

    # Tokens

    @property
    def _next(self) -> _LuaToken:
        return self._tokens[self._at]

    def _take(self) -> _LuaToken:
        token = self._next
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _accept(self, text: str) -> bool:
        is_there = self._next.text == text
        if is_there:
            self._take()
        return is_there

    def _expect(self, text: str) -> _LuaToken:
        token = self._take()
        if token.text != text:
            raise token.fault(f'expected "{text}", got {token.shown}')
        return token

    def _deeper(self) -> None:
        self._levels += 1
        if self._levels > _MAX_LEVELS:
            raise self._next.fault(f"more than {_MAX_LEVELS} nested levels")

    def _refusal(self, token: _LuaToken) -> str:
        if token.text in _REFUSED:
            return f"{token.shown} {_NOT_ALLOWED}"
        if token.kind == "name" and token.text not in _WORDS:
            return (
                f"{token.shown} is unknown here: a condition can use only {', '.join(GIVEN)}, math, and its own locals"
            )
        return ""
