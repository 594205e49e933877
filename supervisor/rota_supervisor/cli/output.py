"""The output of commands: data on standard output, everything else on standard error. This module makes all output safe
for a terminal, because names and errors can contain any characters.
"""

import codecs
import contextlib
import errno
import json
import os
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TextIO

import click

from rota.display_text import printable, printable_lines
from rota_supervisor.exits import ExitCode, Failure

_RED = "\x1b[31m"
_BOLD = "\x1b[1m"
_PLAIN = "\x1b[0m"


# The error codes of writes to a full or broken device. An OSError about another file can have one of these codes too,
# but then it contains the name of the file.
_OF_DEVICES: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


class ReaderGoneError(Exception):
    """Raised if the reader of the output, for example `head`, has exited. This class is not derived from OSError,
    because click would report an OSError.
    """


def colored(stream: TextIO, *, no_color: bool) -> bool:
    """Whether to write colors to a stream. They are written only to a terminal, and only if colors are not disabled."""
    return not no_color and not os.environ.get("NO_COLOR") and stream.isatty()


def has_room(stream: TextIO) -> bool:
    """Whether a line can be written without blocking. A master that has ended must not block on a pipe that nobody
    reads.
    """
    room = select.poll()
    room.register(stream.fileno(), select.POLLOUT)
    return bool(room.poll(0))


def is_reader_gone(stream: TextIO) -> bool:
    """Whether the reader of a stream has exited, for example a pager."""
    reader = select.poll()
    reader.register(stream.fileno(), 0)  # no events to wait for: poll reports errors even so
    return bool(reader.poll(0))


def print_errors(code: int, messages: Sequence[str], *, as_json: bool = False, no_color: bool = False) -> None:
    """Write the errors to standard error, one per line. With `as_json`, write them as one JSON document, which is the
    last line.
    """
    if as_json and messages:
        _write(sys.stderr, printable_lines(json.dumps({"code": code, "errors": messages}, ensure_ascii=False)))
        return
    for message in messages:
        print_message(message, f"{_RED}error{_PLAIN}: " if colored(sys.stderr, no_color=no_color) else "error: ")


def print_warning(message: str) -> None:
    """Write a warning to standard error."""
    print_message(message, "warning: ")


def print_message(message: str, kind: str = "") -> None:
    """Write a message for people to standard error."""
    _write(sys.stderr, f"rota: {kind}{printable(message)}")


def put(text: str) -> None:
    """Write data of one or more lines to standard output."""
    _write(sys.stdout, printable_lines(text))


def put_json(value: Any) -> None:
    """Write data to standard output as one JSON document."""
    has_all = codecs.lookup(sys.stdout.encoding).name == "utf-8"
    put(json.dumps(value, ensure_ascii=not has_all))


def put_field(key: str, value: object) -> None:
    """Write one field of an object. If its text has several lines, all but the first are indented."""
    label = f"{key}:"
    for line in str(value).split("\n"):
        put(f"{label:<18} {line}".rstrip())
        label = ""


def put_table(header: Sequence[str], rows: Iterable[Sequence[object]], *, no_color: bool = False) -> None:
    """Write rows under a header, in columns. Numbers are aligned to the right."""
    rows = list(rows)
    lines = [""] * (len(rows) + 1)
    for index, name in enumerate(header):
        cells = [name, *(printable(str(row[index])) for row in rows)]
        width = max(map(len, cells))
        is_numeric = bool(rows) and all(isinstance(row[index], int | float) for row in rows)
        aligned = [cell.rjust(width) if is_numeric else cell.ljust(width) for cell in cells]
        lines = [f"{line}  {cell}" if index else cell for line, cell in zip(lines, aligned, strict=True)]
    lines = [line.rstrip() for line in lines]
    if colored(sys.stdout, no_color=no_color):
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
        discard(stream)  # The message cannot be shown; the exit code reports the result.


def is_of_output(error: OSError) -> bool:
    """Whether an error was raised while writing output."""
    return error.errno in _OF_DEVICES and error.filename is None


def discard(stream: TextIO) -> None:
    """Discard all further output to a stream, including the contents of the stream's buffer, which Python would
    otherwise write at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextlib.contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], object]]:
    """Yield a function that shows a progress bar on a terminal. Its arguments are the amount that is done and the
    total. Without a terminal, it writes nothing."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    with click.progressbar(length=1, label=label, file=sys.stderr) as bar:

        def report(done: int, total: int) -> None:
            bar.length = max(done, total, 1)
            bar.update(done - bar.pos)

        yield report


def counted(count: int, what: str) -> str:
    """Return a number with its noun, for example `1 task` or `3 tasks`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def cut(text: str, most: int) -> str:
    """Return a text for a table cell, cut to at most `most` characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def confirm(action: str, *, yes: bool) -> None:
    """Ask for confirmation of a destructive action, for example `purge 3 tasks`. `--yes` confirms it without a prompt.
    Raises Failure with code 1 if the user declines, or with code 2 if there is no terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        confirmed = "confirm it with --yes, because there is no terminal for a prompt"
        raise Failure(ExitCode.USAGE, f"this would {action}: {confirmed}")
    if not click.confirm(f"{action[0].upper()}{action[1:]}?", err=True):
        raise Failure(ExitCode.NO, "nothing was changed")
