"""Accounts: what is kept of a task's attempts that did not end well, a JSON object a line, for people to read. The last
one of a dead task is its epitaph.

`reason` is one of a few words: `failed`, `crashed`, `lost`, and of an epitaph the label of `rota_tasks_dead_total`;
`error` a sentence, `traceback` the end of one, `attempt` the number of the start where it is known, `at` the wall
clock's time, `owner` and `pid` who ran it, `elapsed_seconds` for how long, `lag_seconds` how late it had begun.
"""

import json
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

FAILED: Final = "failed"  # and is tried again
CRASHED: Final = "crashed"
LOST: Final = "lost"
TIME_LIMIT: Final = "time_limit"  # the hard one
AT_MOST_ONCE: Final = "at_most_once"  # the reason of what was started once, may not be again, and did not end
ERROR_CHARACTERS: Final = 1000
TRACEBACK_CHARACTERS: Final = 4000
_OURS: Final = (  # what called the function, which says nothing of what went wrong in it
    __file__.removesuffix("protocol/epitaph.py"),
    traceback.__file__.removesuffix("traceback.py") + "asyncio/",
)
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # made once: half the time of an account


class NotRunnable(StrEnum):
    """Why a body can never be called: reasons of its death."""

    GARBAGE = "garbage"
    UNKNOWN_TASK = "unknown_task"
    ARGUMENTS = "arguments"
    OPTIONS = "options"


@dataclass(frozen=True, slots=True)
class Account:
    """How an attempt came to nothing."""

    reason: str
    error: str
    attempt: int = 0
    traceback: str = ""
    owner: str = ""
    pid: int = 0
    elapsed_seconds: float = 0.0
    lag_seconds: float = 0.0

    def to_json(self, at: datetime) -> bytes:
        """Write it on one line; what is too long is cut: an error at its end, a traceback at its beginning."""
        fields: dict[str, object] = {"reason": self.reason, "error": self.error[:ERROR_CHARACTERS]}
        if self.traceback:
            fields["traceback"] = self.traceback[-TRACEBACK_CHARACTERS:]
        if self.attempt:
            fields["attempt"] = self.attempt
        if self.owner:
            fields |= {"owner": self.owner, "pid": self.pid, "elapsed_seconds": round(self.elapsed_seconds, 6)}
            fields["lag_seconds"] = round(self.lag_seconds, 6)
        fields["at"] = at.astimezone(UTC).isoformat(timespec="milliseconds")
        return _ENCODER.encode(fields).encode(errors="replace")


def read_accounts(raw: bytes, otherwise: str) -> list[dict[str, Any]]:
    """All that was written down, latest last, each as `read_epitaph` has it."""
    return [read_epitaph(line, otherwise) for line in raw.split(b"\n") if line]


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
    """The traceback of an exception, as Python prints it, from the first line that is not ours. Never raises."""
    try:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
            trace = trace.tb_next
        return "".join(traceback.format_exception(type(error), error, trace)).rstrip()
    except Exception:  # noqa: BLE001 - as in error_line
        return error_line(error)
