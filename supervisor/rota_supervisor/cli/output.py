"""How commands speak: data on standard output, everything else on standard error. All of it is made fit for a terminal
here, whoever wrote the names and errors in it."""

import codecs
import errno
import json
import os
import select
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final, TextIO

import click

from rota.display_text import printable, printable_lines
from rota_supervisor.exits import ExitCode, Failure

_RED, _BOLD, _PLAIN = "\x1b[31m", "\x1b[1m", "\x1b[0m"


# What writing to a full or broken device raises; nothing else of a command does, without the name of a file.
_OF_DEVICES: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


class ReaderGoneError(Exception):
    """The reader of our output, `head`, has what it wanted. No OSError, which click would make a failure of."""


def colored(stream: TextIO, no_color: bool) -> bool:
    """Whether to write colors to a stream: a terminal, and nobody said no."""
    return not no_color and not os.environ.get("NO_COLOR") and stream.isatty()


def has_room(stream: TextIO) -> bool:
    """Whether a line can be written at once. A master that has ended must not hang in a pipe that nobody reads."""
    room = select.poll()
    room.register(stream.fileno(), select.POLLOUT)
    return bool(room.poll(0))


def is_reader_gone(stream: TextIO) -> bool:
    """Whether what is written there is read by nobody any more, as when a pager was left."""
    reader = select.poll()
    reader.register(stream.fileno(), 0)  # errors are always told
    return bool(reader.poll(0))


def say_errors(code: int, messages: Sequence[str], *, as_json: bool = False, no_color: bool = False) -> None:
    """Say what is wrong: each in a line of its own, or all as one document, the last line on standard error."""
    if as_json and messages:
        _write(sys.stderr, printable_lines(json.dumps({"code": code, "errors": messages}, ensure_ascii=False)))
        return
    for message in messages:
        say(message, f"{_RED}error{_PLAIN}: " if colored(sys.stderr, no_color) else "error: ")


def say_warning(message: str) -> None:
    """Say what a person should know."""
    say(message, "warning: ")


def say(message: str, kind: str = "") -> None:
    """Say how it goes, to people."""
    _write(sys.stderr, f"rota: {kind}{printable(message)}")


def put(text: str) -> None:
    """Write data, of one line or several."""
    _write(sys.stdout, printable_lines(text))


def put_json(value: Any) -> None:
    """Write data as one JSON document."""
    has_all = codecs.lookup(sys.stdout.encoding).name == "utf-8"
    put(json.dumps(value, ensure_ascii=not has_all))


def put_field(key: str, value: object) -> None:
    """Write one field of a thing shown; further lines of a long text are set in."""
    label = f"{key}:"
    for line in str(value).split("\n"):
        put(f"{label:<18} {line}".rstrip())
        label = ""


def put_table(header: Sequence[str], rows: Iterable[Sequence[object]], *, no_color: bool = False) -> None:
    """Write rows under a header in columns; numbers stand to the right."""
    rows = list(rows)
    lines = [""] * (len(rows) + 1)
    for place, name in enumerate(header):
        cells = [name, *(printable(str(row[place])) for row in rows)]
        width = max(map(len, cells))
        is_numeric = bool(rows) and all(isinstance(row[place], int | float) for row in rows)
        aligned = [cell.rjust(width) if is_numeric else cell.ljust(width) for cell in cells]
        lines = [f"{line}  {cell}" if place else cell for line, cell in zip(lines, aligned, strict=True)]
    lines = [line.rstrip() for line in lines]
    if colored(sys.stdout, no_color):
        lines[0] = f"{_BOLD}{lines[0]}{_PLAIN}"
    _write(sys.stdout, "\n".join(lines))


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text + "\n")
    except BrokenPipeError:
        raise ReaderGoneError from None
    except OSError as error:
        if stream is not sys.stderr or not is_of_output(error):
            raise
        discard(stream)  # the message cannot be shown, and the exit code reports the result


def is_of_output(error: OSError) -> bool:
    """Whether an error is of writing the output."""
    return error.errno in _OF_DEVICES and error.filename is None


def discard(stream: TextIO) -> None:
    """Have nothing more be written to a stream, what it holds included: Python would try again at the exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def counted(count: int, what: str) -> str:
    """A number and its noun: `1 task`, `3 tasks`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def cut(text: str, most: int) -> str:
    """Return a text for a cell of a table, of at most so many characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def confirm(action: str, *, yes: bool) -> None:
    """Ask before an action that destroys, for example `purge 3 tasks`; go on after `--yes` or a yes. Raises Failure 1
    after a no, 2 when there is nobody to ask."""
    if yes:
        return
    if not sys.stdin.isatty():
        confirmed = "confirm it with --yes, as there is no terminal to ask on"
        raise Failure(ExitCode.USAGE, f"this would {action}: {confirmed}")
    if not click.confirm(f"{action[0].upper()}{action[1:]}?", err=True):
        raise Failure(ExitCode.NO, "nothing was changed")
