"""How commands speak: data on standard output, everything else on standard error. All of it is made fit for a terminal
here, whoever wrote the names and errors in it."""

import json
import os
import select
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from rota.printable import printable, printable_lines

_RED, _BOLD, _PLAIN = "\x1b[31m", "\x1b[1m", "\x1b[0m"


def colored(stream: TextIO, no_color: bool) -> bool:
    """Whether to write colors to a stream: a terminal, and nobody said no."""
    return not no_color and not os.environ.get("NO_COLOR") and stream.isatty()


def has_room(stream: TextIO) -> bool:
    """Whether a line can be written at once. A master that has ended must not hang in a pipe that nobody reads."""
    room = select.poll()
    room.register(stream.fileno(), select.POLLOUT)
    return bool(room.poll(0))


def say_error(message: str, *, no_color: bool = False) -> None:
    """Say what is wrong."""
    word = f"{_RED}error{_PLAIN}" if colored(sys.stderr, no_color) else "error"
    _write(sys.stderr, f"rota: {word}: {printable(message)}")


def say_warning(message: str) -> None:
    """Say what a person should know."""
    _write(sys.stderr, f"rota: warning: {printable(message)}")


def say(message: str) -> None:
    """Say how it goes, to people."""
    _write(sys.stderr, f"rota: {printable(message)}")


def put(text: str) -> None:
    """Write data, of one line or several."""
    _write(sys.stdout, printable_lines(text))


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text + "\n")
    except BrokenPipeError:
        raise ReaderGoneError from None


class ReaderGoneError(Exception):
    """The reader of our output, `head`, has what it wanted. No OSError, which click would make a failure of."""


def put_json(value: Any) -> None:
    """Write data as one JSON document."""
    put(json.dumps(value, ensure_ascii=False))


def put_table(header: Sequence[str], rows: Iterable[Sequence[object]], *, no_color: bool = False) -> None:
    """Write rows under a header in columns; numbers stand to the right."""
    rows = list(rows)
    cells = [list(header)] + [[printable(str(cell)) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    right = [bool(rows) and all(isinstance(row[column], int | float) for row in rows) for column in range(len(header))]
    lines = [_line(row, widths, right) for row in cells]
    if colored(sys.stdout, no_color):
        lines[0] = f"{_BOLD}{lines[0]}{_PLAIN}"
    _write(sys.stdout, "\n".join(lines))


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    aligned = [
        cell.rjust(width) if numeric else cell.ljust(width)
        for cell, width, numeric in zip(cells, widths, right, strict=True)
    ]
    return "  ".join(aligned).rstrip()
