"""How attempts and tasks ended: the accounts that are kept of both, for people to read. Pure.

Of an attempt that did not end well a JSON object a line is kept; the last one of a dead task is its epitaph. `reason`
is one of a few words: `failed`, `crashed`, `lost`, and of an epitaph the label of `rota_tasks_dead_total`; `error` a
sentence, `traceback` the end of one, `attempt` the number of the start where it is known, `at` the wall clock's time,
`owner` and `pid` who ran it, `elapsed_seconds` for how long, `lag_seconds` how late it had begun.

The record of an end is `HOW AT OWNER ENTRY ACCOUNT`, and in lines behind that the accounts of the attempts before. Its
account is ` START RUN PID NAME`, and behind a space why the result was not kept, if it was not. Times are whole
microseconds, START and AT of Redis time.
"""

import json
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from rota.protocol.entry import FIELDS, Entry, parse_entry
from rota.protocol.wire import shown, text_of

FAILED: Final = "failed"  # and is tried again
CRASHED: Final = "crashed"
LOST: Final = "lost"
TIME_LIMIT: Final = "time_limit"  # the hard one
AT_MOST_ONCE: Final = "at_most_once"  # the reason of what was started once, may not be again, and did not end
ERROR_CHARACTERS: Final = 1000
TRACEBACK_CHARACTERS: Final = 4000
_OURS: Final = (  # what called the function, which says nothing of what went wrong in it
    __file__.removesuffix("protocol/ends.py"),
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


PURGED: Final = "purged"
_HOW: Final = {"done", "cancelled", "expired", PURGED}
_NOBODY: Final = "-"
_LATEST_US: Final = 9_000_000_000_000_000  # as LATEST in lua/shared/clock.lua


class RunAccount(NamedTuple):
    """One run of a task. `start_us` is 0 when it was not begun, or when nobody told of it. `refused`: why what the
    function returned is not kept though that was asked for."""

    start_us: int = 0
    run_us: int = 0
    pid: int = 0
    name: str = ""
    refused: str = ""


def ran_by(pid: int, name: str) -> bytes:
    """The part of an account that is the same for all runs of a task in a process."""
    return b" %d %b" % (pid, name.encode() or _NOBODY.encode())


def account_of(start_us: int, run_us: float, who: bytes, refused: str = "") -> bytes:
    """The account of a run, as a settlement tells it; `who` is from `ran_by`. Each task that ends has one."""
    account = b" %d %d%b" % (start_us, run_us, who)
    return account if not refused else b"%b %b" % (account, " ".join(refused.split()).encode(errors="replace"))


@dataclass(frozen=True, slots=True)
class Ended:
    """One end. `how`: done, cancelled, expired or purged; `owner` "" when the task waited. `earlier`: what is known of
    the attempts before the last, each a JSON object."""

    how: str
    at_us: int
    owner: str
    entry: Entry
    run: RunAccount
    earlier: tuple[bytes, ...] = ()


def parse_ended(record: bytes) -> Ended:
    """Read a record as a script wrote it. Raises ValueError for anything else."""
    first, *earlier = record.split(b"\n")
    how, at_us, owner, *fields = first.split(b" ", 3 + FIELDS)
    entry = parse_entry(b" ".join(fields[:FIELDS]))
    start_us, run_us, pid, name, *refused = text_of(fields[FIELDS]).split(" ", 4)
    run = RunAccount(int(start_us), int(run_us), int(pid), _known(name), "".join(refused))
    ended = Ended(text_of(how), int(at_us), _known(shown(text_of(owner))), entry, run, tuple(earlier))
    if ended.how not in _HOW or not all(0 <= us <= _LATEST_US for us in (ended.at_us, *run[:2], entry.due_us)):
        raise ValueError(f"not the record of an end: {first!r}")
    return ended


def _known(name: str) -> str:
    return "" if name == _NOBODY else name
