"""Functions that list the queues of a namespace with their numbers of tasks, and the first tasks in a state."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from rota.client.status import AttemptRecord, attempts_of
from rota.durations import MICROSECONDS, utc_datetime
from rota.protocol.outcome import read_attempt_record
from rota.protocol.progress import Progress, read_progress
from rota.protocol.scans import complete_overview
from rota.protocol.scripts import Steps, execute
from rota.protocol.store import BATCH, Store
from rota.protocol.task_states import LISTED, State
from rota.protocol.views import PeekedTask, QueueState


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """A queue, and the number of its tasks in each state."""

    queue: str
    ready: int
    scheduled: int
    overdue: int  # How many of the scheduled tasks are already due.
    running: int
    dead: int
    accepted: int  # The number of tasks that the queue has ever accepted.
    oldest_ready_seconds: float  # How long the first ready task has been ready, or 0 if there is none.
    paused: bool
    served: bool  # Whether a running fleet claims from the queue.
    closed_by: str  # The condition that keeps the queue closed, or "".


def find_queues(store: Store) -> Steps[list[QueueCounts]]:
    """Return all queues that have or had tasks, sorted by name."""
    overview = yield from complete_overview(store, (yield from execute(store.overview(()))))
    return sorted(map(_counts_of, overview.queues), key=lambda each: each.queue)


def _counts_of(state: QueueState) -> QueueCounts:
    return QueueCounts(
        queue=state.queue,
        ready=state.ready,
        scheduled=state.scheduled,
        overdue=state.overdue,
        running=state.inflight,
        dead=state.dead,
        accepted=state.accepted,
        oldest_ready_seconds=state.oldest_ready_age_us / MICROSECONDS,
        paused=state.paused,
        served=state.served,
        closed_by=state.closed_by,
    )


T = TypeVar("T")

MOST_SEARCHED: Final = 10_000  # The maximum number of tasks that are read to find matching tasks.
DEFAULT_LIMIT: Final = 100


@dataclass(frozen=True, slots=True)
class QueuedTask:
    """A task in a queue. Unknown values, for example of items that other programs pushed, are "" or None."""

    id: str
    state: State  # `ready` (in a lane), `scheduled`, `running` (claimed) or `dead`.
    queue: str
    name: str
    due_at: datetime | None
    due_in_seconds: float | None  # The time until the task is due, which is negative if the task is overdue.
    since: datetime | None  # When the task entered its lane, or died. None for a scheduled task.
    age_seconds: float | None  # The number of seconds since `since`, or None if `since` is None.
    attempt: int  # The number of the running, the next or the last attempt, depending on the state.
    failures: int
    crashes: int
    losses: int
    owner: str = ""  # The worker or consumer that has claimed the task.
    progress: Progress | None = None  # The last progress that a running task reported.
    death: AttemptRecord | None = None  # The record of why a dead task died.


@dataclass(frozen=True, slots=True)
class WantedTasks:
    """A request for at most `limit` tasks in one state. An empty `queue` or `task` means all queues or all task
    names."""

    state: State
    queue: str = ""
    task: str = ""
    limit: int = DEFAULT_LIMIT

    def __post_init__(self) -> None:
        """Check the limit. Raises TypeError or ValueError if it is not valid."""
        if isinstance(self.limit, bool) or not isinstance(self.limit, int):
            raise TypeError(f"limit must be a whole number, got {self.limit!r}")
        if self.limit < 1:
            raise ValueError(f"limit must be at least 1, got {self.limit!r}")

    @property
    def chooses(self) -> bool:
        """Whether the request filters tasks, so that some of the tasks that are read may not match."""
        return bool(self.task or (self.queue and self.state is not State.READY))


@dataclass(frozen=True, slots=True)
class TasksFound:
    """The result of a search for tasks."""

    tasks: list[QueuedTask]
    searched: int  # How many tasks were read to find these.
    # Whether there may be more matching tasks. If this is true and fewer tasks than wanted were found, the search was
    # stopped at its limit.
    more: bool


def listed_state(name: str) -> State:
    """Return the state with this name. Raises ValueError if Rota keeps no list of the tasks in this state, for example
    `done`."""
    if name not in LISTED:
        *first, last = (f'"{state}"' for state in LISTED)
        raise ValueError(f"state must be {', '.join(first)} or {last}, got {name!r}")
    return State(name)


def find(store: Store, wanted: WantedTasks) -> Steps[TasksFound]:
    """Search for the tasks that `wanted` describes, until its `limit` is reached. A search that filters tasks also ends
    after it has read 10,000 of them."""
    tasks: list[QueuedTask] = []
    searched = 0
    most = max(MOST_SEARCHED, wanted.limit)
    for queue in (yield from _queues(store, wanted)):
        offset: int | None = 0
        while offset is not None:
            room = wanted.limit - len(tasks)
            if room <= 0 or searched >= most:
                return TasksFound(tasks[: wanted.limit], searched, more=True)
            count = BATCH if wanted.chooses else min(room, BATCH)
            page = yield from execute(store.peek(wanted.state, queue, wanted.task, offset, count))
            tasks += [queued(each, wanted.state, page.now_us) for each in page.tasks]
            searched += page.examined
            offset = page.next_offset
    return TasksFound(tasks[: wanted.limit], searched, more=len(tasks) > wanted.limit)


def _queues(store: Store, wanted: WantedTasks) -> Steps[list[str]]:
    """Return the names of the queues to read, one after another.

    A single name "" means that one read covers all queues. This is not possible for ready tasks, because each queue has
    its own lanes.
    """
    if wanted.queue or wanted.state is not State.READY:
        return [wanted.queue]
    every = yield from complete_overview(store, (yield from execute(store.overview(()))))
    return sorted(each.queue for each in every.queues if each.ready)


def queued(found: PeekedTask, state: State, now_us: int) -> QueuedTask:
    """Return a task that was read from Redis as a QueuedTask for the caller. `now_us` is the Redis time at which the
    page was read."""
    is_dead = state is State.DEAD
    death = attempts_of([read_attempt_record(found.detail, "error")]) if is_dead and found.detail else (None,)
    return QueuedTask(
        id=found.id,
        state=state,
        queue=found.queue,
        name=found.name,
        due_at=utc_datetime(found.due_us) if found.due_us else None,
        due_in_seconds=(found.due_us - now_us) / MICROSECONDS if found.due_us else None,
        since=utc_datetime(found.since_us) if found.since_us else None,
        age_seconds=max(0, now_us - found.since_us) / MICROSECONDS if found.since_us else None,
        attempt=found.failures + found.crashes + found.losses + (not is_dead),
        failures=found.failures,
        crashes=found.crashes,
        losses=found.losses,
        owner=found.owner,
        progress=None if is_dead else read_progress(found.detail),
        death=death[0],
    )
