"""The parts of log lines that all formats share, and the JSON format.

All formats share the time, the order of fields, the form of exceptions, and the limit of one write. JSON is the format
for production, so it has to be fast. Therefore `JsonLines` renders the fields that all lines share only once, and a
`Form` does the same for all constant parts of similar lines.
"""

import json.encoder
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from rota.child.slot_layout import LOG_BYTES
from rota.display_text import printable_json

LINE_BYTES: Final = LOG_BYTES
FIRST: Final = ("timestamp", "level", "event")
EXCEPTION: Final = "exception"
_EXC_INFO: Final = "exc_info"
_KEPT_CHARACTERS: Final = 64  # a field is never cut to fewer characters than this
# If a line with a traceback has to be cut, these limit the characters of each message in the traceback and of each
# other field.
_MAX_MESSAGE_CHARACTERS: Final = 1000
_MAX_FIELD_CHARACTERS: Final = 500
_CUT_ROUNDS: Final = 32
_MICROSECONDS: Final = 1_000_000
_DIGITS: Final = 6
_PLACEHOLDERS: Final = {int: "%d", float: f"%.{_DIGITS}f"}
_TIME: Final = '{"timestamp":"'

Fields = dict[str, Any]
Render = Callable[[Fields], str]
# A function that takes level, event and fields, and returns a line of at most LINE_BYTES.
LogLines = Callable[[str, str, Fields], bytes]


@dataclass(slots=True)
class Counts:
    """The numbers of log lines of this process that were dropped or cut."""

    dropped: int = 0  # number of lines that were not written at all
    # Number of dropped lines whose write failed; the other dropped lines had no room, because the reader of the log is
    # slow.
    failed: int = 0
    truncated: int = 0  # number of lines that were cut to fit


class Traceback(str):
    """The text of a traceback. `shortened` is the same traceback with all frames, but only the beginning of each long
    message."""

    __slots__ = ("shortened",)
    shortened: str

    def __new__(cls, error: BaseException) -> Self:
        import traceback  # noqa: PLC0415 - poller and exporter need it only when something fails

        parts = traceback.format_exception(error)
        made = super().__new__(cls, "".join(parts).rstrip())
        made.shortened = "\n".join(_cut(part.rstrip(), _MAX_MESSAGE_CHARACTERS) for part in parts)
        return made


class Clock:
    """Returns the current UTC time to the microsecond, as `2026-11-21T13:37:00.000001Z`. The part up to the seconds is
    formatted only once per second."""

    def __init__(self) -> None:
        # Both are stored in one tuple, so that no thread can combine the number of one second with the text of another.
        self._second = (-1, "")

    def __call__(self) -> str:
        second, microsecond = divmod(time.time_ns() // 1000, _MICROSECONDS)
        known, text = self._second
        if known != second:
            text = time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(second))
            self._second = (second, text)
        return f"{text}{microsecond:06d}Z"


def all_fields(timestamp: str, level: str, event: str, bound: Mapping[str, Any], given: Mapping[str, Any]) -> Fields:
    """Return the fields of a line in the order in which they are written: time, level, event, bound fields, given
    fields, exception."""
    first = {"timestamp": timestamp, "level": level, "event": event}
    fields = {**first, **bound, **given, **first}
    if _EXC_INFO in fields:
        found = fields.pop(_EXC_INFO)
        error = sys.exc_info()[1] if found is True else found[1] if isinstance(found, tuple) else found
        if isinstance(error, BaseException):
            fields[EXCEPTION] = Traceback(error)
    return fields


def fit(fields: Fields, render: Render, counts: Counts) -> bytes:
    """Render the fields as a line of at most LINE_BYTES, with its newline. If the line is too long, its longest fields
    are cut first."""
    line = _encoded(render(fields))
    if len(line) <= LINE_BYTES:
        return line
    counts.truncated += 1
    fields = {**fields, "truncated": True}
    # First cut long messages and other fields, because the frames of a traceback are more useful.
    if isinstance(found := fields.get(EXCEPTION), Traceback):
        fields = {key: _beside_a_traceback(value) for key, value in fields.items()} | {EXCEPTION: found.shortened}
    for _ in range(_CUT_ROUNDS):
        line = _encoded(render(fields))
        if len(line) <= LINE_BYTES or not _cut_longest(fields, len(line) - LINE_BYTES):
            break
    if len(line) > LINE_BYTES:  # the line must have hundreds of fields, so keep only time, level and event
        minimal: Fields = {key: str(fields[key])[:_KEPT_CHARACTERS] for key in FIRST if key in fields}
        line = _encoded(render({**minimal, "truncated": True}))
    return line[:LINE_BYTES]


def _encoded(line: str) -> bytes:
    return f"{line}\n".encode()


def _cut_longest(fields: Fields, excess: int) -> bool:
    texts = {key: as_text(value) for key, value in fields.items() if key not in FIRST[:2]}
    longest = max(texts, key=lambda key: len(texts[key]))
    text = texts[longest]
    keep = max(_KEPT_CHARACTERS, min(len(text) - excess, len(text) * 3 // 4))
    if keep >= len(text):
        return False
    # Cut a traceback at its beginning, because its end is more useful.
    fields[longest] = "..." + text[len(text) - keep + 3 :] if longest == EXCEPTION else _cut(text, keep)
    return True


def _beside_a_traceback(value: object) -> object:
    text = as_text(value)
    return value if len(text) <= _MAX_FIELD_CHARACTERS else _cut(text, _MAX_FIELD_CHARACTERS)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def as_text(value: object) -> str:
    """Return a value as text, in the form in which it is cut and is shown to people."""
    return value if isinstance(value, str) else repr(value)


# As JSON


def _encoder() -> Callable[[object], str]:
    """Return the function that encodes a value as JSON. A value that JSON does not have is encoded as its repr.

    `JSONEncoder.encode` creates its C encoder again in each call, which takes 0.9 of the 3.2 us for the fields of an
    attempt. This function creates the C encoder only once, if Python has it. With msgspec, encoding would take 0.4 us,
    but msgspec takes 1.2 MB in each process, and encodes dates, sets, bytes, enums and NaN differently.
    """
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=repr).encode
    chunks: Callable[[object, int], Iterable[str]] = make(
        None, repr, json.encoder.encode_basestring, None, ":", ",", False, False, True
    )
    return lambda value: "".join(chunks(value, 0))


_encode: Final = _encoder()
_quoted: Final = json.encoder.encode_basestring


class JsonLines:
    """Makes JSON log lines that all have the `bound` fields, and counts the lines that it has to cut."""

    def __init__(self, bound: Mapping[str, Any], counts: Counts) -> None:
        self._bound = {name: value for name, value in bound.items() if name not in FIRST}
        self._counts = counts
        self.now = Clock()
        self._bound_text = f",{_json(self._bound)[1:-1]}" if self._bound else ""
        self._own_names = frozenset((*FIRST, *bound, _EXC_INFO))

    def __call__(self, level: str, event: str, fields: Fields) -> bytes:
        now = self.now()
        if fields and self._own_names.isdisjoint(fields):
            line = _encoded(printable_json(f"{_TIME}{now}{self._head(level, event)},{_json(fields)[1:]}"))
            if len(line) <= LINE_BYTES:
                return line
        return fit(all_fields(now, level, event, self._bound, fields), _render, self._counts)

    def around(self, level: str, event: str, fields: Fields) -> tuple[str, str] | None:
        """Return the constant parts of lines with these fields, for `Form`. There are two parts: the part between the
        time and the value of the first field, and the rest of the line. Wherever `fields` has a type instead of a
        value, the rest of the line has a `%` placeholder.

        Returns None if one of `fields` has the name of a field that all lines have.
        """
        if not self._own_names.isdisjoint(fields):
            return None
        first, *others = fields.items()
        rest = "".join(f",{_literally(_quoted(name))}:{_placeholder(value)}" for name, value in others)
        return f"{self._head(level, event)},{_quoted(first[0])}:", f"{rest}}}"

    def _head(self, level: str, event: str) -> str:
        return f'","level":"{level}","event":{_quoted(event)}{self._bound_text}'


def _placeholder(value: Any) -> str:
    return _PLACEHOLDERS[value] if isinstance(value, type) else _literally(_encode(value))


def _literally(text: str) -> str:
    return text.replace("%", "%%")


def _render(fields: Fields) -> str:
    return printable_json(_json(fields))


def _json(fields: Fields) -> str:
    try:
        return _encode(fields)
    # Raised, for example, if a key is not a string or an object contains itself.
    except (TypeError, ValueError, RecursionError):
        return _encode({key: value if isinstance(value, str) else repr(value) for key, value in fields.items()})


# Templates for lines with the same fields


class Form:
    """A template for lines of one level and event that differ only in the values of some fields.

    In `fields`, each such value is replaced by its type: `str` for the first field, `int` or `float` for others. A
    float is written with six digits. A line from a form takes a third of the time of any other JSON line, because its
    constant parts are prepared in advance.
    """

    def __init__(self, lines: LogLines, level: str, event: str, fields: Fields) -> None:
        self._lines = lines
        self._level = level
        self._event = event
        self._fields = fields
        around = lines.around(level, event, fields) if isinstance(lines, JsonLines) else None
        self._head, self._rest = around or ("", "")
        self._now = lines.now if isinstance(lines, JsonLines) else Clock()

    def __call__(self, text: str, *numbers: float) -> bytes:
        """Return the line with these values in place of the types."""
        if self._rest:
            line = f"{_TIME}{self._now()}{self._head}{_quoted(text)}{self._rest % numbers}"
            encoded = _encoded(printable_json(line))
            if len(encoded) <= LINE_BYTES:
                return encoded
        return self._lines(self._level, self._event, self.filled(text, *numbers))

    def filled(self, *values: str | float) -> Fields:
        """Return all fields of the form, with these values in place of the types."""
        left = iter(values)
        given = {name: next(left) for name, value in self._fields.items() if isinstance(value, type)}
        rounded = {name: round(value, _DIGITS) if isinstance(value, float) else value for name, value in given.items()}
        return {**self._fields, **rounded}
