"""What every format's lines have in common: time, order, exceptions, and that they fit into one write."""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

LINE_BYTES: Final = 4096
FIRST: Final = ("timestamp", "level", "event")
EXC_INFO: Final = "exc_info"
EXCEPTION: Final = "exception"
_KEPT_CHARACTERS: Final = 64  # a field is not cut shorter than this
_CUT_ROUNDS: Final = 32
_TAIL_FIELDS: Final = frozenset({EXCEPTION})  # of a traceback the end says most
_MICROSECONDS: Final = 1_000_000

Fields = dict[str, Any]
Render = Callable[[Fields], str]


@dataclass(slots=True)
class Counts:
    """Lines of this process that were dropped because they could not be written, or cut to fit."""

    dropped: int = 0
    truncated: int = 0


class LogLines(Protocol):
    """Makes the line of an event: at most LINE_BYTES, with the newline."""

    def __call__(self, level: str, event: str, fields: Fields, /) -> bytes: ...


class Clock:
    """Now, in UTC to the microsecond, as in `2026-11-21T13:37:00.000001Z`. The text of a second is made once."""

    def __init__(self) -> None:
        self._second = (-1, "")  # one value, so that two threads never see the number of one and the text of another

    def __call__(self) -> str:
        second, microsecond = divmod(time.time_ns() // 1000, _MICROSECONDS)
        known, text = self._second
        if known != second:
            text = time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(second))
            self._second = (second, text)
        return f"{text}{microsecond:06d}Z"


def all_fields(timestamp: str, level: str, event: str, bound: Mapping[str, Any], given: Mapping[str, Any]) -> Fields:
    """The fields of a line in their order: time, level and event, the bound ones, the given ones, the exception."""
    first = {"timestamp": timestamp, "level": level, "event": event}
    fields = {**first, **bound, **given, **first}
    if EXC_INFO in fields:
        _format_exception(fields)
    return fields


def _format_exception(fields: Fields) -> None:
    given = fields.pop(EXC_INFO)
    error = sys.exc_info()[1] if given is True else given[1] if isinstance(given, tuple) else given
    if isinstance(error, BaseException):
        import traceback  # noqa: PLC0415 - poller and exporter do without it until something fails

        fields[EXCEPTION] = "".join(traceback.format_exception(error)).rstrip()


def fit(fields: Fields, render: Render, counts: Counts) -> bytes:
    """Render to at most LINE_BYTES with the newline, cutting the longest fields first."""
    line = encoded(render(fields))
    if len(line) <= LINE_BYTES:
        return line
    counts.truncated += 1
    fields = {**fields, "truncated": True}
    for _ in range(_CUT_ROUNDS):
        line = encoded(render(fields))
        if len(line) <= LINE_BYTES or not _cut_longest(fields, len(line) - LINE_BYTES):
            break
    if len(line) > LINE_BYTES:  # hundreds of fields: only who and what remain
        bare: Fields = {key: str(fields[key])[:_KEPT_CHARACTERS] for key in FIRST if key in fields}
        line = encoded(render({**bare, "truncated": True}))
    return line[:LINE_BYTES]


def encoded(line: str) -> bytes:
    """As bytes, with the newline."""
    return f"{line}\n".encode()


def _cut_longest(fields: Fields, excess: int) -> bool:
    texts = {key: as_text(value) for key, value in fields.items() if key not in FIRST[:2]}
    longest = max(texts, key=lambda key: len(texts[key]))
    text = texts[longest]
    keep = max(_KEPT_CHARACTERS, min(len(text) - excess, len(text) * 3 // 4))
    if keep >= len(text):
        return False
    fields[longest] = "..." + text[len(text) - keep + 3 :] if longest in _TAIL_FIELDS else text[: keep - 3] + "..."
    return True


def as_text(value: object) -> str:
    """A value as it is cut, and written for people."""
    return value if isinstance(value, str) else repr(value)
