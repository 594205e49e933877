"""What became of one attempt, as values, how each is sent to Redis, and the accounts that are kept for people. Pure.

A settlement is an entry with its outcome. On the wire it is four arguments, `entry verb first second`,
which the scripts `turn` and `retire` take alike, so the bytes a worker leaves in its slot are the bytes
the master settles with when the worker was killed before its answer came.

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
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple, assert_never

from rota.protocol.entry import FIELDS, Entry, parse_entry
from rota.protocol.wire import Arg, Packed, pack, packed_in, shown, text_of

ARGS_PER_SETTLEMENT = 4
_NO_FLAG: Final = b" -"


@dataclass(frozen=True, slots=True)
class Done:
    """The function returned. `result` is kept for `result_ttl_ms` when that is above 0. `refused`: why it is not,
    though it was to be."""

    result: bytes = b""
    result_ttl_ms: int = 0
    refused: str = ""


@dataclass(frozen=True, slots=True)
class RetryOutcome:
    """The attempt failed and another is due `delay_us` microseconds after it is settled. `account`: what is kept of it,
    a JSON object on one line."""

    delay_us: int
    account: bytes = b""


@dataclass(frozen=True, slots=True)
class DeadOutcome:
    """The last attempt failed; the task is set aside with `epitaph`, a JSON object, for people to read."""

    epitaph: bytes


@dataclass(frozen=True, slots=True)
class Release:
    """Not run, or not to its end, through no fault of the task: back to the head of its lane."""


@dataclass(frozen=True, slots=True)
class CancelledOutcome:
    """Ended because somebody asked."""


@dataclass(frozen=True, slots=True)
class Expired:
    """Ended without being started: its `expires` had passed."""


DONE: Final = Done()
"""What nearly all outcomes are: without a result to keep."""

Outcome = Done | RetryOutcome | DeadOutcome | Release | CancelledOutcome | Expired


class Settlement(NamedTuple):
    """One entry and its outcome. `account`: of the run that ended the task (see `Ended`), empty when its end is not to
    be remembered."""

    entry: Entry
    outcome: Outcome
    account: bytes = b""


def settlement_args(settlement: Settlement) -> tuple[Arg, ...]:
    """The four arguments a script takes for a settlement."""
    text, account = settlement.entry.text, settlement.account
    match settlement.outcome:
        case Done(result, ttl_ms, refused):
            return text, "done", account, b"%d %b" % (ttl_ms, result) if ttl_ms > 0 or refused else ""
        case RetryOutcome(delay_us, of_attempt):
            return text, "retry", delay_us, of_attempt
        case DeadOutcome(epitaph):
            return text, "dead", epitaph, ""
        case Release():
            return text, "release", "", ""
        case CancelledOutcome():
            return text, "cancelled", account, ""
        case Expired():
            return text, "expired", account, ""
        case _:
            assert_never(settlement.outcome)


def pack_settlement(settlement: Settlement) -> bytes:
    """The wire form of one settlement's arguments, for `turn` and `retire`, and for the slot."""
    entry, outcome, account = settlement
    if outcome is DONE:
        text = entry.text
        return b"$%d\r\n%b\r\n$4\r\ndone\r\n$%d\r\n%b\r\n$0\r\n\r\n" % (len(text), text, len(account), account)
    return pack(settlement_args(settlement)).data


def plain_lines(settlement: Settlement) -> bytes:
    """What is told by a turn of a task that is done and of which there is no more to say: its entry and its account, as
    the memory of ends has them (lua/shared/ends.lua). b"" for one that is settled by four arguments."""
    entry, outcome, account = settlement
    is_plain = outcome is DONE and account and entry.text.endswith(_NO_FLAG)
    return b"\n%b\n%b" % (entry.text, account) if is_plain else b""


def join_settlements(packed: Collection[bytes]) -> Packed:
    """Settlements, packed one by one, as arguments."""
    return Packed(len(packed) * ARGS_PER_SETTLEMENT, b"".join(packed))


def settlements_in(count: int, data: bytes) -> Packed:
    """The settlements that a worker left in its slot; none when what stands there is nonsense."""
    return packed_in(count, data, ARGS_PER_SETTLEMENT)


FAILED: Final = "failed"  # and is tried again
CRASHED: Final = "crashed"
LOST: Final = "lost"
TIME_LIMIT: Final = "time_limit"  # the hard one
AT_MOST_ONCE: Final = "at_most_once"  # the reason of what was started once, may not be again, and did not end
ERROR_CHARACTERS: Final = 1000
TRACEBACK_CHARACTERS: Final = 4000
_OURS: Final = (  # what called the function, which says nothing of what went wrong in it
    __file__.removesuffix("protocol/outcome.py"),
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
