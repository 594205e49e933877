"""The progress that a running task reports: one text in its worker's slot and in Redis. The form is `DONE TOTAL AT_US
NOTE`.

Numbers are decimal, TOTAL is `-` if the task reported none, and AT_US is the time by the wall clock in microseconds.
The text is not trusted, because a task can write anything into its slot. A reader accepts only a text of bounded length
in this form.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypedDict

from rota.durations import utc_datetime

NOTE_BYTES: Final = 100
LONGEST: Final = 192  # length of the longest text in bytes: two numbers of 24 characters, a time of 16, and a note
_MAX_NUMBER: Final = 9e15  # a double represents every whole number up to this one exactly
_NO_TOTAL: Final = b"-"
_PARTS: Final = 4


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a task.

    * `done`, `total`: how far the task has come, for example 40 of 100; `total` is None if the task did not report one.
    * `note`: the task's description of its progress.
    * `at`: when the task reported the progress, by its node's clock.
    """

    done: float
    total: float | None
    note: str
    at: datetime


class ProgressRow(TypedDict):
    """A `Progress` as a JSON object."""

    done: float
    total: float | None
    note: str
    at: str  # ISO 8601


def progress_row(progress: Progress | None) -> ProgressRow | None:
    """Return the progress as a JSON object, or None if there is none."""
    if progress is None:
        return None
    return {"done": progress.done, "total": progress.total, "note": progress.note, "at": progress.at.isoformat()}


def progress_summary(row: Mapping[str, Any] | None) -> str:
    """Return the progress as text for people, with its note: `40/100 (40 %)`, or `40` if the total is not known."""
    if row is None:
        return ""
    done = row["done"]
    total = row["total"]
    note = row["note"]
    share = f" ({100 * done / total:.0f} %)" if total else ""
    far = f"{done:,}" if total is None else f"{done:,}/{total:,}{share}"
    return f"{far} {note}".rstrip()


def progress_text(done: float, total: float | None, note: str, at_us: int) -> bytes:
    """Return the progress in the text form in which it is stored. The note is cut off after 100 bytes. Raises
    ValueError if a number is not from 0 to 9e15."""
    whole = str(note).encode("utf-8", "replace")
    cut = whole if len(whole) <= NOTE_BYTES else whole[:NOTE_BYTES].decode("utf-8", "ignore").encode()
    total_text = _NO_TOTAL if total is None else _written(total, "total")
    return b"%b %b %d %b" % (_written(done, "done"), total_text, at_us, cut)


def read_progress(raw: bytes) -> Progress | None:
    """Read the text that `progress_text` wrote. Return None for any other text."""
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
        raise ValueError(f"`{what}` of progress must be a number from 0 to 9e15, not {number!r}") from None


def _read(text: str) -> float:
    return _checked(float(text))


def _checked(number: float) -> float:
    """Return the number, converted to an int if it is whole. Raises ValueError if it is not a number from 0 to 9e15."""
    if not (math.isfinite(number) and 0 <= number <= _MAX_NUMBER):
        raise ValueError(number)
    return int(number) if number.is_integer() else number
