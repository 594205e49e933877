"""The outcome of one attempt: its kinds, their form in Redis, and the records that are kept for people. This module
does no I/O.

Each outcome has a `label`, which is its name in metrics and logs. If the outcome ends the task, the label is also the
task's state.

A settlement is an entry with its outcome. Its wire form is four arguments, `entry verb first second`, which the scripts
`turn` and `reap` both accept. If a worker is killed before the reply arrives, the master can therefore settle with the
same bytes that the worker left in its slot.

A record is kept of each attempt that failed. It is a JSON object on one line, with the fields of `FailureRecord` and
`at`, the time by the wall clock. The last record of a dead task is its death record.

The record of an ended task is `HOW AT OWNER ENTRY RUN`, followed by the records of the earlier attempts, one per line.
RUN is ` START DURATION PID NAME`, where NAME is the name of the task. If the result should have been stored but was
not, the reason follows after a space. Times are whole microseconds. START and AT are Redis time.
"""

import json
import traceback
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, ClassVar, Final, NamedTuple, assert_never

from rota.protocol.entry import FIELDS, Entry, parse_entry
from rota.protocol.task_states import ENDS_OF_GONE, State
from rota.protocol.wire import Arg, Packed, pack, packed_in, shown, text_of

ARGS_PER_SETTLEMENT = 4
_NO_FLAG: Final = b" -"


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of an attempt whose function returned."""

    label: ClassVar = State.DONE.value
    result: bytes = b""
    result_ttl_ms: int = 0  # how long to store the result; 0 if the result is not stored
    refused: str = ""  # why the result is not stored although the task's options require it


@dataclass(frozen=True, slots=True)
class RetryOutcome:
    """The outcome of a failed attempt that will be retried."""

    label: ClassVar = "retry"
    delay_us: int  # time from the settlement to the next attempt
    record: bytes = b""  # the record of this attempt, a JSON object on one line


@dataclass(frozen=True, slots=True)
class DeadOutcome:
    """The outcome of a failed attempt that was the last one. The task is set aside for people to inspect."""

    label: ClassVar = State.DEAD.value
    record: bytes  # the death record, a JSON object on one line


@dataclass(frozen=True, slots=True)
class Release:
    """The outcome of a task that was not run to its end, for a reason that is not the task's fault. It returns to the
    head of its lane."""

    label: ClassVar = "released"


@dataclass(frozen=True, slots=True)
class EndedEarly:
    """The outcome of a task that has ended without a return value and without a failure."""

    label: ClassVar[str]


@dataclass(frozen=True, slots=True)
class CancelledOutcome(EndedEarly):
    """The outcome of a task that was cancelled."""

    label: ClassVar = State.CANCELLED.value


@dataclass(frozen=True, slots=True)
class Expired(EndedEarly):
    """The outcome of a task that was not started because its `expires` had passed."""

    label: ClassVar = State.EXPIRED.value


DONE: Final = Done()
"""The outcome of most tasks: the task is done and has no result to store."""

Outcome = Done | RetryOutcome | DeadOutcome | Release | CancelledOutcome | Expired


class Settlement(NamedTuple):
    """An entry and its outcome, as they are reported to Redis."""

    entry: Entry
    outcome: Outcome
    run: bytes = b""  # the result of `run_record_of`; empty if the fleet does not remember how the task ends


def settlement_args(settlement: Settlement) -> tuple[Arg, ...]:
    """Return a settlement as the four arguments that a script takes."""
    text = settlement.entry.text
    run = settlement.run
    match settlement.outcome:
        case Done(result, ttl_ms, refused):
            return text, "done", run, b"%d %b" % (ttl_ms, result) if ttl_ms > 0 or refused else ""
        case RetryOutcome(delay_us, record):
            return text, "retry", delay_us, record
        case DeadOutcome(record):
            return text, "dead", record, ""
        case Release():
            return text, "release", "", ""
        case EndedEarly(label=label):
            return text, label, run, ""
        case _:
            assert_never(settlement.outcome)


def pack_settlement(settlement: Settlement) -> bytes:
    """Return a settlement in wire form, for `turn`, `reap` and the slot."""
    entry, outcome, run = settlement
    if outcome is DONE:
        text = entry.text
        return b"$%d\r\n%b\r\n$4\r\ndone\r\n$%d\r\n%b\r\n$0\r\n\r\n" % (len(text), text, len(run), run)
    return pack(settlement_args(settlement)).data


def plain_lines(settlement: Settlement) -> bytes:
    """Return the short form of a settlement, or b"" if it needs the four arguments.

    The short form is the entry followed by the record of the run, as in the record of an ended task
    (lua/shared/ends.lua). Only the settlement of a task that is done, and that has neither a result nor a flag, has a
    short form.
    """
    entry, outcome, run = settlement
    is_plain = outcome is DONE and run and entry.text.endswith(_NO_FLAG)
    return b"\n%b\n%b" % (entry.text, run) if is_plain else b""


def join_settlements(packed: Collection[bytes]) -> Packed:
    """Return settlements, each of which `pack_settlement` has packed, as the arguments of one call."""
    return Packed(len(packed) * ARGS_PER_SETTLEMENT, b"".join(packed))


def settlements_in(count: int, data: bytes) -> Packed:
    """Return the settlements that a worker left in its slot, or none if the bytes in the slot are not valid."""
    return packed_in(count, data, ARGS_PER_SETTLEMENT)


FAILED: Final = "failed"  # this attempt failed, and the task will be retried
CRASHED: Final = "crashed"
LOST: Final = "lost"
TIME_LIMIT: Final = "time_limit"  # the hard time limit was reached
AT_MOST_ONCE: Final = "at_most_once"  # the task may be started only once, and its worker died after that start
ERROR_CHARACTERS: Final = 1000
TRACEBACK_CHARACTERS: Final = 4000
# The code of Rota and asyncio that calls the task's function. Its frames in a traceback do not help to find an error.
_OURS: Final = (
    __file__.removesuffix("protocol/outcome.py"),
    traceback.__file__.removesuffix("traceback.py") + "asyncio/",
)
# The encoder is created only once, which halves the time per record.
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class NotRunnable(StrEnum):
    """Why a task with a given body can never run. The task becomes dead with this reason."""

    GARBAGE = "garbage"
    UNKNOWN_TASK = "unknown_task"
    ARGUMENTS = "arguments"
    OPTIONS = "options"
    SIGNATURE = "signature"


@dataclass(frozen=True, slots=True)
class FailureRecord:
    """The record of a failed attempt."""

    # `failed`, `crashed` or `lost`; in a death record, one of the reasons of the metric `rota_tasks_dead_total`.
    reason: str
    error: str  # a sentence
    attempt: int = 0  # number of the attempt, 0 if not known
    traceback: str = ""  # the traceback, or its end if it is too long
    owner: str = ""  # the worker that ran the attempt
    pid: int = 0  # process id of that worker
    elapsed_seconds: float = 0.0  # how long the attempt ran
    lag_seconds: float = 0.0  # how late the attempt started

    def to_json(self, at: datetime) -> bytes:
        """Return the record as JSON on one line. If the error is too long, its end is cut off. If the traceback is too
        long, its beginning is cut off."""
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


def read_attempt_records(raw: bytes, otherwise: str) -> list[dict[str, Any]]:
    """Return all attempt records in the form of `read_attempt_record`, with the latest last."""
    return [read_attempt_record(line, otherwise) for line in raw.split(b"\n") if line]


def read_attempt_record(raw: bytes, otherwise: str) -> dict[str, Any]:
    """Return an attempt record as a dict. If the record is not a JSON object, or could not be encoded as JSON again,
    return a dict with its whole text under the key `otherwise`."""
    try:
        parsed = json.loads(raw.decode())
        json.dumps(parsed, ensure_ascii=False).encode()  # a lone surrogate can be read from JSON but cannot be encoded
    except (ValueError, RecursionError):
        parsed = None
    return parsed if isinstance(parsed, dict) else {otherwise: raw.decode(errors="backslashreplace")}


def error_line(error: BaseException) -> str:
    """Return an exception in one line, as `Name: text`. Never raises, even if the exception's `__str__` does."""
    name = type(error).__name__
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - the application's own __str__
        text = "(its __str__ raised an exception)"
    return f"{name}: {text}" if text else name


def traceback_text(error: BaseException) -> str:
    """Return the traceback of an exception as Python prints it, but without Rota's own frames at the beginning. Never
    raises."""
    try:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
            trace = trace.tb_next
        return "".join(traceback.format_exception(type(error), error, trace)).rstrip()
    except Exception:  # noqa: BLE001 - as in error_line
        return error_line(error)


_NOBODY: Final = "-"
_LATEST_US: Final = 9_000_000_000_000_000  # the same as LATEST in lua/shared/clock.lua


class RunRecord(NamedTuple):
    """The record of one run of a task: when it started, how long it took, and which process ran it."""

    start_us: int = 0  # Redis time; 0 if the run did not start, or if its start was not reported
    run_us: int = 0
    pid: int = 0
    name: str = ""
    refused: str = ""  # why the function's result was not stored although the task's options require it


def ran_by(pid: int, name: str) -> bytes:
    """Return the last part of a run's record: the pid and the name of the task. This part is the same for all runs of
    the task in one process."""
    return b" %d %b" % (pid, name.encode() or _NOBODY.encode())


def run_record_of(start_us: int, run_us: float, who: bytes, refused: str = "") -> bytes:
    """Return the record of a run for a settlement. `who` is the result of `ran_by`. `refused` states why the result was
    not stored, or is "". The fleet keeps such a record for each ended task that it remembers."""
    run = b" %d %d%b" % (start_us, run_us, who)
    return run if not refused else b"%b %b" % (run, " ".join(refused.split()).encode(errors="replace"))


@dataclass(frozen=True, slots=True)
class Ended:
    """The data that the fleet remembers about a task that has ended."""

    how: str  # how the task ended, one of ENDS_OF_GONE
    at_us: int  # when the task ended, by Redis time
    owner: str  # the owner that held the task; "" if it was not claimed
    entry: Entry
    run: RunRecord  # the last run
    earlier: tuple[bytes, ...] = ()  # records of the attempts before the last, each a JSON object


def parse_ended(record: bytes) -> Ended:
    """Read a record that a script wrote. Raises ValueError if the record is not valid."""
    first, *earlier = record.split(b"\n")
    how, at_us, owner, *fields = first.split(b" ", 3 + FIELDS)
    entry = parse_entry(b" ".join(fields[:FIELDS]))
    start_us, run_us, pid, name, *refused = text_of(fields[FIELDS]).split(" ", 4)
    run = RunRecord(int(start_us), int(run_us), int(pid), _known(name), "".join(refused))
    ended = Ended(text_of(how), int(at_us), _known(shown(text_of(owner))), entry, run, tuple(earlier))
    if ended.how not in ENDS_OF_GONE or not all(0 <= us <= _LATEST_US for us in (ended.at_us, *run[:2], entry.due_us)):
        raise ValueError(f"the text is not a record of an ended task: {first!r}")
    return ended


def _known(name: str) -> str:
    return "" if name == _NOBODY else name
