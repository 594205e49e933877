"""Progress: how far a running task says it is, as one text, `DONE TOTAL AT_US NOTE`, from its slot to Redis.

Numbers in decimal digits, TOTAL `-` where there is none, AT_US microseconds of the wall clock. Whoever reads it takes
it for what a task wrote that may write anything: bounded, and of this form or none.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from rota.durations import utc_datetime

NOTE_BYTES: Final = 100
LONGEST: Final = 192  # two numbers of 24 characters, a time of 16, a note
_MOST: Final = 9e15  # a double is exact up to there
_NO_TOTAL: Final = b"-"
_PARTS: Final = 4


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a task is: `done` of `total` (None where it did not say), and what it says of that. `at`: when it said
    so, by its node's clock."""

    done: float
    total: float | None
    note: str
    at: datetime


def progress_row(progress: Progress | None) -> dict[str, Any] | None:
    """The same as JSON has it."""
    if progress is None:
        return None
    return {"done": progress.done, "total": progress.total, "note": progress.note, "at": progress.at.isoformat()}


def progress_words(row: Mapping[str, Any] | None) -> str:
    """How far, for people: `40/100 (40 %)`, or `40` of nobody knows how many; and what the task says of that."""
    if row is None:
        return ""
    done, total, note = row["done"], row["total"], row["note"]
    share = f" ({100 * done / total:.0f} %)" if total else ""
    far = f"{done:,}" if total is None else f"{done:,}/{total:,}{share}"
    return f"{far} {note}".rstrip()


def progress_text(done: float, total: float | None, note: str, at_us: int) -> bytes:
    """Write it down, the note cut at 100 bytes. Raises ValueError for what is no number from 0 on."""
    whole = str(note).encode("utf-8", "replace")
    cut = whole if len(whole) <= NOTE_BYTES else whole[:NOTE_BYTES].decode("utf-8", "ignore").encode()
    total_text = _NO_TOTAL if total is None else _written(total, "total")
    return b"%b %b %d %b" % (_written(done, "done"), total_text, at_us, cut)


def read_progress(raw: bytes) -> Progress | None:
    """What was written down; None for anything else."""
    parts = raw.decode("utf-8", "replace").split(" ", _PARTS - 1)
    if len(raw) > LONGEST or len(parts) < _PARTS:
        return None
    done, total, at_us, note = parts
    try:
        return Progress(_read(done), None if total == "-" else _read(total), note, utc_datetime(int(_read(at_us))))
    except ValueError:
        return None


def _written(number: float, what: str) -> bytes:
    try:
        return repr(_checked(float(number))).encode()
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"`{what}` of progress is a number from 0 to 9e15, not {number!r}") from None


def _read(text: str) -> float:
    return _checked(float(text))


def _checked(number: float) -> float:
    """The number, as an int where it is whole. Raises ValueError when it is none that can be shown."""
    if not (math.isfinite(number) and 0 <= number <= _MOST):
        raise ValueError(number)
    return int(number) if number.is_integer() else number
