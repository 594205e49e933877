"""A task as its caller sees it: the handle that an enqueue returns, and where the task stands, asked by id."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rota.durations import Duration, utc_datetime
from rota.protocol.body import BodyError, decode_body
from rota.protocol.epitaph import read_epitaph
from rota.protocol.replies import CancelWord
from rota.protocol.views import TaskState

if TYPE_CHECKING:
    from rota.client.client import Client

R_co = TypeVar("R_co", covariant=True)


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


@dataclass(frozen=True, init=False)
class Handle(Generic[R_co]):
    """An enqueued task; `R_co` is what its function returns.

    `duplicate`: the id was live already, or the unique key was held; then the first task stays, `id` is its
    id, and this call added nothing.
    """

    id: str
    duplicate: bool
    client: "Client" = field(repr=False, compare=False)

    def __init__(self, id: str, duplicate: bool, client: "Client") -> None:  # noqa: A002 - the name of the field
        # By hand, in half the time: frozen dataclasses set each field through a call.
        fields = self.__dict__
        fields["id"] = id
        fields["duplicate"] = duplicate
        fields["client"] = client

    def status(self) -> TaskStatus:
        """Where the task stands now. Never raises: see `Client.status`."""
        return self.client.status(self.id)

    def cancel(self, kill_after: Duration | None = None) -> CancelWord:
        """End the task if it still waits, have `rota.Cancelled` raised in it if it runs: see `Client.cancel`."""
        return self.client.cancel(self.id, kill_after)


def status_of(task_id: str, found: TaskState) -> TaskStatus:
    """What the store found, for the caller."""
    ended_or_unknown = found.state in (State.DONE, State.CANCELLED, State.EXPIRED, State.UNKNOWN)
    starts = found.failures + found.crashes + found.losses
    epitaph = read_epitaph(found.epitaph, "why") if found.epitaph else None
    is_dead = found.state == State.DEAD
    try:
        name = decode_body(found.body).name
    except BodyError:
        name = ""
    return TaskStatus(
        id=task_id,
        state=State(found.state),
        queue=found.queue,
        name=name,
        due_at=utc_datetime(found.due_us) if found.due_us else None,
        attempt=0 if ended_or_unknown else starts + (not is_dead),
        failures=found.failures,
        crashes=found.crashes,
        losses=found.losses,
        owner=found.owner,
        epitaph=epitaph if is_dead else None,
        last_crash=None if is_dead else epitaph,
    )
