"""Structured logging: events with fields, one line each, written so that it can neither block nor tear.

1. Configured once a process, after the fork, on a descriptor of its own.
2. A line is one write of at most 4,096 bytes: longer ones tear on a pipe that many processes share. What
   is too long is cut in its longest fields and marked `truncated`.
3. A line that cannot be written at once (full pipe, full disk, reader gone) is dropped and counted.
4. structlog's own configuration is left alone: an application's tasks may use structlog for themselves.
"""

import importlib
import json
import logging
import os
import select
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, cast

from rota.child.settings import LogSettings


class _LoadedWhenTouched(ModuleType):
    """Stands for a module until somebody needs something of it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def _light_imports() -> Iterator[None]:
    # structlog imports rich and asyncio for features not used here. Measured with CPython 3.11: 10.7 MB of
    # private memory with both, 3.0 MB without, in each of our processes. So, while structlog is imported, rich
    # is hidden (structlog does without it) and asyncio is a stand-in (its async methods would load the real one).
    stand_ins = {"rich": cast(ModuleType, None), "asyncio": _LoadedWhenTouched("asyncio")}
    absent = {name: module for name, module in stand_ins.items() if name not in sys.modules}
    if "structlog" in sys.modules:
        absent = {}
    sys.modules.update(absent)
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


with _light_imports():
    import structlog

if TYPE_CHECKING:
    from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

LINE_BYTES: Final = 4096
STDERR: Final = 2
_KEPT_CHARACTERS: Final = 64  # a field is not cut shorter than this
_CUT_ROUNDS: Final = 32
_FIRST: Final = ("timestamp", "level", "event")
_TAIL_FIELDS: Final = frozenset({"exception"})  # of a traceback the end says most

Render = Callable[["EventDict"], str]


@dataclass(slots=True)
class Counts:
    """Lines of this process that were dropped because they could not be written, or cut to fit."""

    dropped: int = 0
    truncated: int = 0


class _Sink:
    """The descriptor that lines go to. Its methods are those a structlog logger calls, one a level."""

    def __init__(self, fd: int, counts: Counts) -> None:
        self._counts = counts
        self._own = _reopen(fd)
        self._fd = fd if self._own is None else self._own
        self._room: select.poll | None = None
        if self._own is None:
            self._room = select.poll()
            self._room.register(fd, select.POLLOUT)

    def write(self, line: bytes) -> None:
        # Where O_NONBLOCK cannot be set, poll() says first whether there is room: a pipe then has 4,096 bytes
        # free, a socket three quarters of its buffer.
        if self._room is not None and not self._room.poll(0):
            self._counts.dropped += 1
            return
        try:
            os.write(self._fd, line)
        except OSError:  # EAGAIN, ENOSPC, EPIPE, EIO: a log must not stop the work
            self._counts.dropped += 1

    debug = info = warning = error = critical = write

    def close(self) -> None:
        if self._own is not None:
            os.close(self._own)


def _reopen(fd: int) -> int | None:
    # A new open file description, so that O_NONBLOCK stays ours and is not set for a shell's terminal too.
    flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        return os.open(f"/proc/self/fd/{fd}", flags)
    except OSError:  # a socket, as journald gives; opened by another user; no /proc
        return None


@dataclass(slots=True)
class _State:
    """What `configure` set up in this process."""

    logger: "FilteringBoundLogger"
    sink: _Sink


_counts = Counts()
_state: _State | None = None


def configure(settings: LogSettings, fd: int = STDERR, **bound: Any) -> None:
    """Set up this process's logging to `fd`; `bound` fields stand in every line. May be repeated."""
    global _state  # noqa: PLW0603 - a process has one log, as it has one stderr
    if _state is not None:
        _state.sink.close()
    sink = _Sink(fd, _counts)
    chosen = _chosen_format(settings.format, fd)
    render = _renderer(chosen, colors=os.isatty(fd) and not os.environ.get("NO_COLOR"))
    built: FilteringBoundLogger = structlog.wrap_logger(
        cast("WrappedLogger", sink),
        processors=_chain(render),
        wrapper_class=structlog.make_filtering_bound_logger(settings.level),
        cache_logger_on_first_use=False,
    ).bind(**bound)
    _state = _State(built, sink)


def logger() -> "FilteringBoundLogger":
    """This process's logger: `logger().info(events.WORKER_STARTED, slot=3)`."""
    if _state is None:
        configure(LogSettings())
    assert _state is not None
    return _state.logger


def counts() -> Counts:
    """How many lines of this process were dropped or cut so far."""
    return _counts


def _chosen_format(name: str, fd: int) -> str:
    if name != "auto":
        return name
    return "console" if os.isatty(fd) else "json"


# The chain


def _chain(render: Render) -> "list[Processor]":
    def finish(_logger: "WrappedLogger", level: str, fields: "EventDict") -> bytes:
        fields["timestamp"] = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        fields["level"] = level
        _format_exception(fields)
        return fit(fields, render, _counts)

    return [cast("Processor", finish)]


def _format_exception(fields: "EventDict") -> None:
    given = fields.pop("exc_info", None)
    error = sys.exc_info()[1] if given is True else given[1] if isinstance(given, tuple) else given
    if isinstance(error, BaseException):
        fields["exception"] = "".join(traceback.format_exception(error)).rstrip()


def _renderer(name: str, *, colors: bool) -> Render:
    match name:
        case "json":
            return _render_json
        case "logfmt":
            return _using(structlog.processors.LogfmtRenderer(key_order=_FIRST, bool_as_flag=False))
        case "console":
            return _using(
                structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)
            )
        case _:
            raise ValueError(f"log format {name!r} is unknown: it is one of auto, json, console, logfmt")


def _using(renderer: Callable[[Any, str, "EventDict"], str]) -> Render:
    def render(fields: "EventDict") -> str:
        return renderer(None, "", dict(fields))

    return render


_encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=repr).encode


def _render_json(fields: "EventDict") -> str:
    first: dict[str, Any] = {key: fields[key] for key in _FIRST if key in fields}
    return _encode_json(first | dict(fields))


# Fitting a line


def fit(fields: "EventDict", render: Render, counts: Counts) -> bytes:
    """Render to at most LINE_BYTES with the newline, cutting the longest fields first."""
    line = _line(fields, render)
    if len(line) <= LINE_BYTES:
        return line
    counts.truncated += 1
    fields = {**fields, "truncated": True}
    for _ in range(_CUT_ROUNDS):
        line = _line(fields, render)
        if len(line) <= LINE_BYTES or not _cut_longest(fields, len(line) - LINE_BYTES):
            break
    if len(line) > LINE_BYTES:  # hundreds of fields: only who and what remain
        bare: dict[str, Any] = {key: str(fields[key])[:_KEPT_CHARACTERS] for key in _FIRST if key in fields}
        line = _line({**bare, "truncated": True}, render)
    return line[:LINE_BYTES]


def _line(fields: "EventDict", render: Render) -> bytes:
    return render(fields).encode(errors="replace") + b"\n"


def _cut_longest(fields: "EventDict", excess: int) -> bool:
    texts = {key: _as_text(value) for key, value in fields.items() if key not in _FIRST[:2]}
    longest = max(texts, key=lambda key: len(texts[key]))
    text = texts[longest]
    keep = max(_KEPT_CHARACTERS, min(len(text) - excess, len(text) * 3 // 4))
    if keep >= len(text):
        return False
    fields[longest] = "..." + text[len(text) - keep + 3 :] if longest in _TAIL_FIELDS else text[: keep - 3] + "..."
    return True


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else repr(value)


# Other libraries' logging


class _ForeignHandler(logging.Handler):
    """Sends records of the standard library's logging down our chain."""

    def emit(self, record: logging.LogRecord) -> None:
        level = min((record.levelno // 10) * 10, logging.CRITICAL)
        try:
            message = record.getMessage()
        except (TypeError, ValueError):  # a wrong number of % arguments is the caller's mistake, not ours to raise
            message = str(record.msg)
        fields: dict[str, Any] = {"exc_info": record.exc_info} if record.exc_info else {}
        logger().log(max(level, logging.DEBUG), message, logger=record.name, **fields)


def adopt_foreign(settings: LogSettings) -> None:
    """Send the standard library's logging the same way, unless the application has set up its own.

    To be called after the application's modules were imported: a root logger with a handler would make
    their `logging.basicConfig()` do nothing.
    """
    root = logging.getLogger()
    if root.handlers:
        return
    root.addHandler(_ForeignHandler())
    root.setLevel(settings.level.upper())
