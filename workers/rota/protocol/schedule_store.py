"""Schedules in the form that Redis stores: the record of each schedule, and the transitions that change the record.

A record is a line with the state of the schedule, followed by its declaration: see `rota/lua/shared/schedules.lua`.
This module does not interpret the declaration: `rota.schedules` writes and reads it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from rota.durations import MICROSECONDS
from rota.protocol.scripts import Raw, ScriptCall, Status, Transitions, status_of, statuses_of
from rota.protocol.wire import Arg, pack, text_of

OCCURRENCES_A_CALL: Final = 100
SCHEDULES_A_CALL: Final = 100
SCHEDULES_A_PAGE: Final = 500
_TIME: Final = rb"(\d{1,16})"  # the same as DIGITS in lua/shared/numbers.lua
_STATE: Final = re.compile(
    _TIME + b" " + _TIME + rb" (\d{1,16}|-) " + _TIME + b" " + _TIME + rb" (\d{1,16}(?:,\d{1,16})*|-)"
)
_NEVER = b"+inf"


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """The record of a schedule. Times are Unix time in microseconds."""

    passed_us: int  # all occurrences up to this time have been handled
    last_us: int  # the latest occurrence whose time has come; 0 for none
    next_us: int | None  # the first occurrence after `passed_us`; 0 if it must still be computed, None if there is none
    paused_us: int  # when the schedule was paused; 0 if it is not paused
    rank_us: int  # when a node began to declare this schedule; 0 if a client added it
    ahead_us: tuple[int, ...]  # times of the occurrences that were enqueued ahead of time
    text: bytes  # the declaration

    def to_bytes(self) -> bytes:
        """Return the record in the form that Redis stores."""
        following = "-" if self.next_us is None else self.next_us
        ahead = ",".join(map(str, self.ahead_us)) or "-"
        state = (self.passed_us, self.last_us, following, self.paused_us, self.rank_us, ahead)
        return b" ".join(str(part).encode() for part in state) + b"\n" + self.text

    @property
    def check_at_us(self) -> Arg:
        """The time at which a poller has to check the schedule, or "+inf" if the schedule is paused or has no further
        occurrence."""
        return _NEVER if self.paused_us or self.next_us is None else self.next_us


def read_schedule_record(raw: bytes) -> ScheduleRecord:
    """Read the record of a schedule. Raises ValueError if the record is not valid."""
    state, _, text = raw.partition(b"\n")
    found = _STATE.fullmatch(state)
    if found is None:
        raise ValueError("not a schedule: the state in the record cannot be read")
    passed, last, following, paused, rank, ahead = found.groups()
    return ScheduleRecord(
        int(passed),
        int(last),
        None if following == b"-" else int(following),
        int(paused),
        int(rank),
        () if ahead == b"-" else tuple(map(int, ahead.split(b","))),
        text,
    )


def occurrence_id(name: str, at_us: int) -> str:
    """Return the task id for an occurrence of a schedule: the schedule's name and the time in Unix seconds, for example
    `report:1767225600`."""
    seconds, rest = divmod(at_us, MICROSECONDS)
    return f"{name}:{seconds}.{rest:06}".rstrip("0") if rest else f"{name}:{seconds}"


class DeclaredSchedule(NamedTuple):
    """A schedule that a node's code or configuration declares. `age_seconds` is how long the node has declared it."""

    name: str
    text: bytes
    age_seconds: float = 0.0


class NewOccurrence(NamedTuple):
    """A task that is enqueued for an occurrence of a schedule."""

    id: str
    due_us: int
    body: bytes


class StoredSchedule(NamedTuple):
    """The name of a schedule, and its record as Redis stores it."""

    name: str
    record: bytes


class SchedulePage(NamedTuple):
    """One page of the schedules, with Redis time and the number of all schedules."""

    now_us: int
    total: int
    schedules: tuple[StoredSchedule, ...]


class DeclareStatus(StrEnum):
    """The result of declaring a schedule."""

    KEPT = "kept"  # the schedule existed already and is unchanged
    NEW = "new"  # the schedule was added
    CHANGED = "changed"  # this declaration has replaced an older one
    # This declaration has no effect, because another node declares a different schedule with this name, and began to do
    # so later.
    OLDER = "older"
    CLIENT = "client"  # this declaration has no effect, because a client has added a schedule with this name
    REFUSED = "refused"  # the schedule's name is not valid


class PutStatus(StrEnum):
    """The result of storing a schedule for a client. DECLARED means that the schedule was not stored, because a node
    declares a schedule with this name."""

    NEW = "new"
    SAME = "same"
    CHANGED = "changed"
    DECLARED = "declared"


class RemoveStatus(StrEnum):
    """The result of removing a schedule for a client. DECLARED means that the schedule was not removed, because a node
    declares it."""

    REMOVED = "removed"
    UNKNOWN = "unknown"
    DECLARED = "declared"


class PauseStatus(StrEnum):
    """The result of a pause or a resume. SAME means that the schedule was already in that state."""

    PAUSED = "paused"
    RESUMED = "resumed"
    SAME = "same"
    UNKNOWN = "unknown"


class RunStatus(StrEnum):
    """The result of a request to enqueue an extra occurrence. CHANGED means that the schedule has changed since the
    caller read it, so the caller should read the schedule again. OVERLAPS means that the previous occurrence has not
    ended and the schedule forbids overlaps."""

    OK = "ok"
    CHANGED = "changed"
    OVERLAPS = "overlaps"


def _kept_in(raw: Sequence[Raw]) -> tuple[StoredSchedule, ...]:
    return tuple(StoredSchedule(text_of(name), record) for name, record in zip(raw[::2], raw[1::2], strict=True))


def _parse_page(raw: Raw) -> SchedulePage:
    now, total, found = raw
    return SchedulePage(int(now), int(total), _kept_in(found))


def _parse_upcoming(raw: Raw) -> tuple[int, tuple[StoredSchedule, ...]]:
    now, found = raw
    return int(now), _kept_in(found)


def _parse_run(raw: Raw) -> tuple[RunStatus, str]:
    status, _, other = text_of(raw).partition(" ")
    return RunStatus(status), other


class ScheduleStore(Transitions):
    """The transitions of the schedules of one namespace, each as a `ScriptCall`: see `rota.protocol.store`."""

    def advance(
        self,
        kept: StoredSchedule,
        becomes: ScheduleRecord,
        queue: str,
        occurrences: Sequence[NewOccurrence],
        *,
        may_overlap: bool,
    ) -> ScriptCall[bool]:
        """Enqueue up to OCCURRENCES_A_CALL occurrences of a schedule, and replace its record by `becomes`. If the
        record is no longer the one in `kept`, this changes nothing and returns False."""
        args: list[Arg] = [
            kept.name,
            kept.record,
            becomes.to_bytes(),
            becomes.check_at_us,
            _overlap_rule(may_overlap=may_overlap),
            queue,
        ]
        for occurrence in occurrences:
            args += occurrence
        return self._call("advance", pack(args), bool)

    def upcoming(
        self, ahead_us: int, most: int = SCHEDULES_A_CALL
    ) -> ScriptCall[tuple[int, tuple[StoredSchedule, ...]]]:
        """Return Redis time, and up to `most` schedules that have an occurrence within `ahead_us` microseconds."""
        return self._call("upcoming", pack((ahead_us, most)), _parse_upcoming)

    def declare(self, ttl_ms: int, declared: Sequence[DeclaredSchedule]) -> ScriptCall[list[DeclareStatus]]:
        """Declare up to SCHEDULES_A_CALL schedules from a node's code and configuration. The declarations expire after
        `ttl_ms` unless they are repeated."""
        args: list[Arg] = [ttl_ms]
        for name, text, age_seconds in declared:
            args += (name, round(age_seconds * MICROSECONDS), text)
        return self._call("declare", pack(args), statuses_of(DeclareStatus))

    def forget(self, name: str, timeout_us: int) -> ScriptCall[RemoveStatus]:
        """Remove a schedule whose last declaration expired at least `timeout_us` microseconds ago."""
        return self._status("remove_schedule", RemoveStatus, name, timeout_us)

    def page(self, offset: int, count: int = SCHEDULES_A_PAGE) -> ScriptCall[SchedulePage]:
        """Return a page of the schedules, ordered by the time of their next occurrence."""
        return self._call("schedules", pack((offset, count)), _parse_page)

    def find(self, names: Sequence[str]) -> ScriptCall[SchedulePage]:
        """Return schedules by name, up to SCHEDULES_A_PAGE. Names without a schedule are left out."""
        return self._call("schedules", pack((0, 0, *names)), _parse_page)

    def put(self, name: str, text: bytes) -> ScriptCall[PutStatus]:
        """Store a schedule that a client adds or changes."""
        return self._status("put_schedule", PutStatus, name, text)

    def remove(self, name: str) -> ScriptCall[RemoveStatus]:
        """Remove a schedule that a client has added."""
        return self._status("remove_schedule", RemoveStatus, name, "")

    def pause(self, name: str) -> ScriptCall[PauseStatus]:
        """Pause a schedule."""
        return self._status("pause_schedule", PauseStatus, name)

    def resume(self, name: str) -> ScriptCall[PauseStatus]:
        """Resume a paused schedule."""
        return self._status("resume_schedule", PauseStatus, name)

    def run(
        self, kept: StoredSchedule, queue: str, task_id: str, body: bytes, *, may_overlap: bool
    ) -> ScriptCall[tuple[RunStatus, str]]:
        """Enqueue an extra occurrence of a schedule. If the status is OVERLAPS, the reply includes the id of the task
        that has not ended."""
        args = (kept.name, kept.record, _overlap_rule(may_overlap=may_overlap), task_id, queue, body)
        return self._call("run_schedule", pack(args), _parse_run)

    def _status(self, script: str, statuses: type[Status], *args: Arg) -> ScriptCall[Status]:
        return self._call(script, pack(args), status_of(statuses))


def _overlap_rule(*, may_overlap: bool) -> str:
    return "queue" if may_overlap else "skip"
