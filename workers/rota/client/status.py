"""The status of a task, with its state and the records of its failed attempts, and the status of a group.

Other programs that use the server may have written invalid values, so a value of the wrong type counts as missing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from rota.durations import utc_datetime
from rota.protocol.body import Body, BodyError, decode_body
from rota.protocol.entry import MICROSECONDS
from rota.protocol.groups import GroupPhase, GroupState
from rota.protocol.outcome import AT_MOST_ONCE, CRASHED, LOST, TIME_LIMIT, Ended, read_attempt_records
from rota.protocol.progress import Progress, read_progress
from rota.protocol.task_states import PURGED, STATES, State
from rota.protocol.views import TaskState

_MAX_SECONDS: Final = 1e12  # A duration above this, in seconds, is not valid.
_CUT_SHORT: Final = (CRASHED, LOST, TIME_LIMIT, AT_MOST_ONCE)


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """The record of an attempt that failed. Values that are not known are "", 0 or None."""

    attempt: int  # The number of the attempt, from 1.
    # `failed` (the task was retried), `crashed` (its process died), `lost` (its node was lost), or the reason why the
    # task is dead.
    reason: str
    error: str  # The error in one line.
    at: datetime | None = None  # When the attempt ended, by the clock of the node.
    node: str = ""  # The node that ran the attempt.
    pid: int = 0  # The process on that node that ran the attempt.
    run_seconds: float = 0.0  # How long the attempt had run.
    # How late the attempt had started. None if its process died before it could report this.
    lag_seconds: float | None = None


def attempts_of(records: Iterable[Mapping[str, Any]]) -> tuple[AttemptRecord, ...]:
    """Return the records of attempts, oldest first.

    The record of an attempt whose worker died has no attempt number. Such an attempt gets the number after that of the
    previous record.
    """
    attempts: list[AttemptRecord] = []
    for record in records:
        before = attempts[-1].attempt if attempts else 0
        number = _whole(record.get("attempt")) or (before + 1 if record.get("reason") in _CUT_SHORT else 0)
        attempts.append(_attempt_of(number, record))
    return tuple(attempts)


def last_crash_in(records: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the last record of a crash or a loss, or None."""
    return next((record for record in reversed(list(records)) if record.get("reason") in _CUT_SHORT), None)


def _attempt_of(number: int, record: Mapping[str, Any]) -> AttemptRecord:
    return AttemptRecord(
        attempt=number,
        reason=_text(record.get("reason")),
        error=_text(record.get("error")),
        at=_moment(record.get("at")),
        node=_text(record.get("owner")).rpartition(":")[0].rpartition(":")[0],  # An owner is `node:slot:nonce`.
        pid=_whole(record.get("pid")),
        run_seconds=_seconds(record.get("elapsed_seconds")) or 0.0,
        lag_seconds=_seconds(record.get("lag_seconds")),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: object) -> int:
    return value if type(value) is int and value > 0 else 0


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value < _MAX_SECONDS else None


def _moment(value: object) -> datetime | None:
    try:
        at = datetime.fromisoformat(_text(value))
    except ValueError:
        return None
    return at if at.tzinfo else None


UNKNOWN_WHY: Final = (
    "it was never enqueued; or it ended too long ago to be remembered ([ended] keep); or it was enqueued with "
    "remember=False; or it was dead and has been purged; or it would have followed a task that did not succeed"
)
_PURGED_WHY: Final = "its queue was purged"
_NOTHING_KNOWN: Final = AttemptRecord(0, "", "")


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """The status of a task. Values that do not apply, or are not known, are "" or None.

    The fields from `started_at` to `result_refused` describe the last run of a task that has ended.
    """

    id: str
    state: State
    queue: str = ""
    name: str = ""
    kind: str = ""  # One of immediate, delayed, retry, periodic, throttled and recovered.
    # For an immediate task, when it was enqueued. For a scheduled task, when it may start. For a recovered task, when
    # it was returned to its lane.
    due_at: datetime | None = None
    ready_at: datetime | None = None  # When the task entered its lane.
    attempt: int = 0  # The number of the running, the next or the last attempt, depending on the state.
    failures: int = 0  # The number of attempts that failed. Crashes and losses are counted separately.
    crashes: int = 0  # The number of attempts whose process crashed.
    losses: int = 0  # The number of attempts whose node was lost.
    owner: str = ""  # The worker or consumer that holds the task, or was the last to hold it.
    death: dict[str, Any] | None = None  # The record of the attempt with which the task became dead.
    # The last error of a dead task, in one line, or the reason why the status could not be read.
    error: str = ""
    last_crash: dict[str, Any] | None = None  # The record of the last crash or loss, if the task is not dead.
    attempts: tuple[AttemptRecord, ...] = ()  # The attempts that failed, at most ten, oldest first.
    progress: Progress | None = None  # The last progress that the running attempt reported.
    # An explanation of the state, for example how the task was cancelled, what a pending task follows, or why the state
    # is unknown.
    why: str = ""
    started_at: datetime | None = None  # When the run began, by Redis time.
    ended_at: datetime | None = None  # When the run ended, by Redis time.
    run_seconds: float | None = None  # How long the run took.
    lag_seconds: float | None = None  # How late the run started.
    node: str = ""  # The node that ran the task.
    pid: int | None = None  # The process on that node that ran the task.
    has_result: bool | None = None  # Whether the result of a task that is done is stored.
    result_refused: str = ""  # Why the result was not stored, although the task has a `result_ttl`.
    # `args` and `kwargs` are set only on request, and only while the task is live or dead.
    args: list[Any] | None = None
    kwargs: dict[str, Any] | None = None


def status_of(task_id: str, found: TaskState, *, args: bool = False) -> TaskStatus:
    """Return the status of a task from the record in the store, with its arguments if `args` is true."""
    if found.ended is None:
        return _of_standing(task_id, found, args=args)
    return _of_ended(task_id, found.ended, has_result=found.result is not None)


def _of_standing(task_id: str, found: TaskState, *, args: bool) -> TaskStatus:
    """Return the status of a task of which Redis has no record that it ended: a live task, a dead task, or an unknown
    id."""
    state = _state_of(found.state)
    is_dead = state is State.DEAD
    starts = found.failures + found.crashes + found.losses
    records = read_attempt_records(found.attempt_records, "why")
    attempts = attempts_of(records)
    last = attempts[-1] if is_dead and attempts else _NOTHING_KNOWN
    body = _body_of(found.body)
    return TaskStatus(
        id=task_id,
        state=state,
        queue=found.queue,
        name=body.name,
        kind=found.kind,
        due_at=_time(found.due_us),
        ready_at=_time(found.ready_us),
        attempt=starts + (not is_dead) if STATES[state].has_attempt else 0,
        failures=found.failures,
        crashes=found.crashes,
        losses=found.losses,
        owner=found.owner,
        death=records[-1] if is_dead and records else None,
        error=_error_of(records[-1] if records else {}) if is_dead else "",
        last_crash=None if is_dead else last_crash_in(records),
        attempts=attempts,
        progress=read_progress(found.progress),
        why=_why(state, found.follows),
        ended_at=_time(found.ended_us),
        run_seconds=last.run_seconds or None,
        lag_seconds=last.lag_seconds,
        node=last.node or _node_of(found.owner),
        pid=last.pid or None,
        has_result=True if found.result is not None else None,
        args=body.args if args and body.name else None,
        kwargs=body.kwargs if args and body.name else None,
    )


def _why(state: State, follows: str) -> str:
    """Return an explanation of a state, or "" if the state needs none. `follows` is the task or group for which a
    pending task waits."""
    if follows:
        return f"it follows {follows}, which has not ended"
    return UNKNOWN_WHY if state is State.UNKNOWN else ""


def _of_ended(task_id: str, ended: Ended, *, has_result: bool) -> TaskStatus:
    entry = ended.entry
    run = ended.run
    # The task started no later than the worker reported, and no later than its end minus its run time. The earlier of
    # these two times is closer to the real start.
    start_us = min(run.start_us, ended.at_us - run.run_us)
    started = run.start_us > 0
    records = read_attempt_records(b"\n".join(ended.earlier), "why")
    return TaskStatus(
        id=task_id,
        state=_state_of(ended.how),
        queue=entry.queue,
        name=run.name,
        kind=entry.kind.label,
        due_at=_time(entry.due_us),
        ready_at=_time(entry.ready_us),
        attempt=entry.attempt if started else entry.attempt - 1,
        failures=entry.failures,
        crashes=entry.crashes,
        losses=entry.losses,
        owner=ended.owner,
        last_crash=last_crash_in(records),
        attempts=attempts_of(records),
        why=_PURGED_WHY if ended.how == PURGED else "",
        started_at=_time(start_us) if started else None,
        ended_at=_time(ended.at_us),
        run_seconds=run.run_us / MICROSECONDS if started else None,
        lag_seconds=max(0, start_us - entry.due_us) / MICROSECONDS if started else None,
        node=_node_of(ended.owner),
        pid=run.pid or None,
        has_result=has_result if ended.how == State.DONE else None,
        result_refused=run.refused,
    )


def _error_of(death: dict[str, Any]) -> str:
    return str(death.get("error") or death.get("why") or death.get("reason") or "there is no record of the failure")


def _state_of(status: str) -> State:
    return State.CANCELLED if status == PURGED else State(status)


def _body_of(raw: bytes) -> Body:
    try:
        return decode_body(raw)
    except BodyError:
        return Body(None, None, "", [])


def _time(unix_us: int) -> datetime | None:
    return utc_datetime(unix_us) if unix_us else None


def _node_of(owner: str) -> str:
    return owner.rpartition(":")[0].rpartition(":")[0]  # An owner is `node:slot:nonce`.


class GroupStanding(StrEnum):
    """The state of a group."""

    OPEN = GroupPhase.OPEN.value  # Members may still be added, so the group cannot end yet.
    CLOSED = GroupPhase.CLOSED.value  # The group ends with its last member.
    CANCELLED = GroupPhase.CANCELLED.value  # The group accepts no more members, and no task follows when it ends.
    ENDED = GroupPhase.ENDED.value
    UNKNOWN = "unknown"  # The group ended more than 50 s ago, or never existed.


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The status of a group and of its members. A chain is one member. Values that do not apply are "" or None."""

    id: str
    state: GroupStanding
    total: int = 0  # The number of members that the server has accepted.
    left: int = 0  # The number of members that have not ended.
    # The number of members that are done. The next fields, up to `purged`, count the members that ended in other ways.
    done: int = 0
    dead: int = 0
    cancelled: int = 0
    expired: int = 0
    purged: int = 0  # Members that were purged with their queue.
    cursor: int = 0  # The number of items that the server has accepted so far, including duplicates.
    is_cancelled: bool = False  # Whether the group was cancelled as a whole.
    opened_at: datetime | None = None
    ended_at: datetime | None = None
    followed_by: str = ""  # The id of the task that was enqueued at the end of the group.
    then: str = ""  # The id of the task that will follow, until the group has ended.
    on_dead: str = ""  # The id of the task that will follow if a member is dead, until the group has ended.


def group_status_of(group_id: str, found: GroupState | None) -> GroupStatus:
    """Return the status of a group from the record in the store."""
    if found is None:
        return GroupStatus(group_id, GroupStanding.UNKNOWN)
    ended: Mapping[str, Any] = found.ended
    return GroupStatus(
        group_id,
        GroupStanding(found.phase.value),
        found.total,
        found.left,
        **ended,
        cursor=found.cursor,
        is_cancelled=found.is_cancelled,
        opened_at=utc_datetime(found.opened_us),
        ended_at=None if found.ended_us is None else utc_datetime(found.ended_us),
        followed_by=found.followed_by,
        then=found.then,
        on_dead=found.on_dead,
    )
