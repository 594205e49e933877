"""The epitaph: what is kept with a dead task about its end, as a JSON object for people to read.

`reason` is one of a few words, the label of `rota_tasks_dead_total` as well; `error` a sentence, `traceback` the end
of one, `attempt` the number of the last start where it is known, `at` the wall clock's time.
"""

import json
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

ERROR_CHARACTERS: Final = 1000
TRACEBACK_CHARACTERS: Final = 4000


class NotRunnable(StrEnum):
    """Why a body can never be called: reasons of its death."""

    GARBAGE = "garbage"
    UNKNOWN_TASK = "unknown_task"
    ARGUMENTS = "arguments"


@dataclass(frozen=True, slots=True)
class Epitaph:
    """Why a task is dead."""

    reason: str
    error: str
    attempt: int = 0
    traceback: str = ""

    def to_json(self, at: datetime) -> bytes:
        """Write it down; what is too long is cut: an error at its end, a traceback at its beginning."""
        fields: dict[str, object] = {"reason": self.reason, "error": self.error[:ERROR_CHARACTERS]}
        if self.traceback:
            fields["traceback"] = self.traceback[-TRACEBACK_CHARACTERS:]
        if self.attempt:
            fields["attempt"] = self.attempt
        fields["at"] = at.astimezone(UTC).isoformat(timespec="milliseconds")
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def read_epitaph(raw: bytes, otherwise: str) -> dict[str, Any]:
    """What was written down. What is no JSON object, or could not be written again, stands whole under `otherwise`."""
    try:
        parsed = json.loads(raw.decode())
        json.dumps(parsed, ensure_ascii=False).encode()  # half of a surrogate pair can be read, and not be written
    except (ValueError, RecursionError):
        parsed = None
    return parsed if isinstance(parsed, dict) else {otherwise: raw.decode(errors="backslashreplace")}


def error_line(error: BaseException) -> str:
    """`Name: text` of an exception. Never raises, whatever its `__str__` does."""
    name = type(error).__name__
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - the application's own __str__
        text = "(its text cannot be made)"
    return f"{name}: {text}" if text else name


def traceback_text(error: BaseException) -> str:
    """The traceback of an exception, as Python prints it. Never raises."""
    try:
        return "".join(traceback.format_exception(error)).rstrip()
    except Exception:  # noqa: BLE001 - as in error_line
        return error_line(error)
