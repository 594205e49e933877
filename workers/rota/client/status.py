"""Where a task stands, for people and programs that ask by id."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from rota.durations import utc_datetime
from rota.protocol.body import BodyError, decode_body
from rota.protocol.epitaph import read_epitaph
from rota.protocol.views import TaskState


class State(StrEnum):
    """Where an id stands. `unknown`: never seen, or ended so long ago that nothing is left of it."""

    SCHEDULED = "scheduled"
    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """Where a task stands. Texts are "" and times None where they do not apply.

    `attempt` is the number of the attempt that runs, comes next, or was the last: failures, crashes and losses
    (of a whole node) were attempts too. `epitaph` is what is known of a dead task's end, `last_crash` what is known of
    the last crash or loss of one that lives. `error` says why nothing could be found out, as when the server is not
    reachable.
    """

    id: str
    state: State
    queue: str = ""
    name: str = ""
    due_at: datetime | None = None
    attempt: int = 0
    failures: int = 0
    crashes: int = 0
    losses: int = 0
    owner: str = ""
    epitaph: dict[str, Any] | None = None
    error: str = ""
    last_crash: dict[str, Any] | None = None


def status_of(task_id: str, found: TaskState) -> TaskStatus:
    """What the store found, for the caller."""
    ended_or_unknown = found.state in (State.DONE, State.CANCELLED, State.EXPIRED, State.UNKNOWN)
    starts = found.failures + found.crashes + found.losses
    account = _account(found.epitaph)
    is_dead = found.state == State.DEAD
    return TaskStatus(
        id=task_id,
        state=State(found.state),
        queue=found.queue,
        name=_name_in(found.body),
        due_at=utc_datetime(found.due_us) if found.due_us else None,
        attempt=0 if ended_or_unknown else starts + (not is_dead),
        failures=found.failures,
        crashes=found.crashes,
        losses=found.losses,
        owner=found.owner,
        epitaph=account if is_dead else None,
        last_crash=None if is_dead else account,
    )


def _name_in(body: bytes) -> str:
    try:
        return decode_body(body).name
    except BodyError:
        return ""


def _account(raw: bytes) -> dict[str, Any] | None:
    return read_epitaph(raw, "why") if raw else None
