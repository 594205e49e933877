"""The status of a task, where it is and how its attempts ended, and that of a group.

Whoever shares the server may have written there: a value of a wrong type counts as missing.
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
from rota.protocol.outcome import AT_MOST_ONCE, CRASHED, LOST, PURGED, TIME_LIMIT, Ended, read_accounts
from rota.protocol.progress import Progress, read_progress
from rota.protocol.task_states import STATES, State
from rota.protocol.views import TaskState

_MOST: Final = 1e12  # seconds
_CUT_SHORT: Final = (CRASHED, LOST, TIME_LIMIT, AT_MOST_ONCE)


@dataclass(frozen=True, slots=True)
class AttemptAccount:
    """How one attempt came to nothing. Texts are "", numbers 0 and times None where they are not known.

    `attempt` counts from 1. `reason`: `failed` (and was tried again), `crashed` with its process, `lost` with its node,
    or why the task is dead. `error` says it in a line. `at`: when, by the node's clock; it had run for `run_seconds`
    then, in the process `pid` of `node`, and had begun `lag_seconds` late: None when its process did
    not live to say so.
    """

    attempt: int
    reason: str
    error: str
    at: datetime | None = None
    node: str = ""
    pid: int = 0
    run_seconds: float = 0.0
    lag_seconds: float | None = None


def attempts_of(accounts: Iterable[Mapping[str, Any]]) -> tuple[AttemptAccount, ...]:
    """Accounts as they were read, oldest first. One of a worker that died does not say which attempt it was: the one
    after that of the account before."""
    attempts: list[AttemptAccount] = []
    for told in accounts:
        before = attempts[-1].attempt if attempts else 0
        number = _whole(told.get("attempt")) or (before + 1 if told.get("reason") in _CUT_SHORT else 0)
        attempts.append(_attempt_of(number, told))
    return tuple(attempts)


def last_crash_in(accounts: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """The last account of a crash or a loss."""
    return next((told for told in reversed(list(accounts)) if told.get("reason") in _CUT_SHORT), None)


def _attempt_of(number: int, told: Mapping[str, Any]) -> AttemptAccount:
    return AttemptAccount(
        attempt=number,
        reason=_text(told.get("reason")),
        error=_text(told.get("error")),
        at=_moment(told.get("at")),
        node=_text(told.get("owner")).rpartition(":")[0].rpartition(":")[0],  # of node:slot:life
        pid=_whole(told.get("pid")),
        run_seconds=_seconds(told.get("elapsed_seconds")) or 0.0,
        lag_seconds=_seconds(told.get("lag_seconds")),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: object) -> int:
    return value if type(value) is int and value > 0 else 0


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value < _MOST else None


def _moment(value: object) -> datetime | None:
    try:
        at = datetime.fromisoformat(_text(value))
    except ValueError:
        return None
    return at if at.tzinfo else None


UNKNOWN_WHY: Final = (
    "never enqueued; or it ended before the last tasks that the fleet remembers ([ended] keep), or was not to be "
    "remembered (remember=False), or was dead and is purged, or was to follow a task that was not done"
)
_PURGED_WHY: Final = "its queue was purged"
_NOTHING_KNOWN: Final = AttemptAccount(0, "", "")


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """Where a task stands. Texts are "" and other values None where they do not apply, or are not known.

    `kind`: immediate, delayed, retry, periodic, throttled or recovered. `due_at`: of an immediate task when it was
    enqueued; of one that is scheduled, when it may start; of a recovered one, when it was given back. `ready_at`: when
    it came into its lane. `attempt` is the number of the attempt that runs, comes next, or was the last: failures,
    crashes and losses (of a whole node) were attempts too. `attempts` tells of those, oldest first, of ten at most;
    `progress` is what the attempt that runs said last of how far it is. `epitaph` is what is known of a dead task's
    end, `last_crash` what is known of the last crash or loss of one that is not dead. `why` says more of a state: how
    it was cancelled, what a pending task follows, what `unknown` can mean. `error` is the error that a dead task ended
    with, in one line. If the state is `unknown`, it is the reason why the server could not be asked, "" if it was.

    Of a task that has ended: `started_at` and `ended_at` by Redis time, `run_seconds` and `lag_seconds` of its last
    run, the `node` and the `pid` where that was. `has_result` of a task that is done: whether what it returned is kept;
    `result_refused`: why it is not though that was asked for. `args` and `kwargs` only when they are asked for, and
    only as long as a task lives or is dead: they go with it.
    """

    id: str
    state: State
    queue: str = ""
    name: str = ""
    kind: str = ""
    due_at: datetime | None = None
    ready_at: datetime | None = None
    attempt: int = 0
    failures: int = 0
    crashes: int = 0
    losses: int = 0
    owner: str = ""
    epitaph: dict[str, Any] | None = None
    error: str = ""
    last_crash: dict[str, Any] | None = None
    attempts: tuple[AttemptAccount, ...] = ()
    progress: Progress | None = None
    why: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    run_seconds: float | None = None
    lag_seconds: float | None = None
    node: str = ""
    pid: int | None = None
    has_result: bool | None = None
    result_refused: str = ""
    args: list[Any] | None = None
    kwargs: dict[str, Any] | None = None


def status_of(task_id: str, found: TaskState, *, args: bool = False) -> TaskStatus:
    """What the store found, for the caller; with its arguments if they are asked for."""
    if found.ended is None:
        return _of_standing(task_id, found, args=args)
    return _of_ended(task_id, found.ended, has_result=found.result is not None)


def _of_standing(task_id: str, found: TaskState, *, args: bool) -> TaskStatus:
    """Of a task that lives, is dead, or of whose end nothing is remembered."""
    state = _state_of(found.state)
    is_dead = state is State.DEAD
    starts = found.failures + found.crashes + found.losses
    accounts = read_accounts(found.accounts, "why")
    attempts = attempts_of(accounts)
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
        epitaph=accounts[-1] if is_dead and accounts else None,
        error=_error_of(accounts[-1] if accounts else {}) if is_dead else "",
        last_crash=None if is_dead else last_crash_in(accounts),
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
    """Return what is to be said about a state, "" if the state is clear by itself."""
    if follows:
        return f"it follows {follows}, which has not ended"
    return UNKNOWN_WHY if state is State.UNKNOWN else ""


def _of_ended(task_id: str, ended: Ended, *, has_result: bool) -> TaskStatus:
    entry, run = ended.entry, ended.run
    # The worker tells the latest time at which it can have been; it was no later than this either.
    start_us = min(run.start_us, ended.at_us - run.run_us)
    started = run.start_us > 0
    accounts = read_accounts(b"\n".join(ended.earlier), "why")
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
        last_crash=last_crash_in(accounts),
        attempts=attempts_of(accounts),
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


def _error_of(epitaph: dict[str, Any]) -> str:
    return str(epitaph.get("error") or epitaph.get("why") or epitaph.get("reason") or "nothing is known of its end")


def _state_of(word: str) -> State:
    return State.CANCELLED if word == PURGED else State(word)


def _body_of(raw: bytes) -> Body:
    try:
        return decode_body(raw)
    except BodyError:
        return Body(None, None, "", [])


def _time(unix_us: int) -> datetime | None:
    return utc_datetime(unix_us) if unix_us else None


def _node_of(owner: str) -> str:
    return owner.rpartition(":")[0].rpartition(":")[0]  # of node:slot:life


class GroupStanding(StrEnum):
    """`open`: items are still being added, it cannot end. `closed`: it ends with its last member. `cancelled`:
    likewise, it takes no more, and nothing follows. `ended`. `unknown`: it ended a minute ago, or never was."""

    OPEN = GroupPhase.OPEN.value
    CLOSED = GroupPhase.CLOSED.value
    CANCELLED = GroupPhase.CANCELLED.value
    ENDED = GroupPhase.ENDED.value
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """Where a group stands, and how it is with its members; a chain is one member.

    `total` were accepted and `left` have not ended; the others ended as `done`, `dead`, `cancelled`, `expired`, or
    `purged` with their queue. `cursor`: how many items of its enqueue were accepted, duplicates counted.
    `is_cancelled`: it was cancelled as a whole. `then`, `on_dead`: before its end, the ids of what may follow.
    `followed_by`: the id of what was enqueued at its end. Each is "" for nothing.
    """

    id: str
    state: GroupStanding
    total: int = 0
    left: int = 0
    done: int = 0
    dead: int = 0
    cancelled: int = 0
    expired: int = 0
    purged: int = 0
    cursor: int = 0
    is_cancelled: bool = False
    opened_at: datetime | None = None
    ended_at: datetime | None = None
    followed_by: str = ""
    then: str = ""
    on_dead: str = ""


def group_status_of(group_id: str, found: GroupState | None) -> GroupStatus:
    """What the store found, for the caller."""
    if found is None:
        return GroupStatus(group_id, GroupStanding.UNKNOWN)
    return GroupStatus(
        group_id,
        GroupStanding(found.phase.value),
        found.total,
        found.left,
        found.done,
        found.dead,
        found.cancelled,
        found.expired,
        found.purged,
        found.cursor,
        found.is_cancelled,
        opened_at=utc_datetime(found.opened_us),
        ended_at=None if found.ended_us is None else utc_datetime(found.ended_us),
        followed_by=found.followed_by,
        then=found.then,
        on_dead=found.on_dead,
    )
