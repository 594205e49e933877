"""The queues of a namespace: how many tasks are where, and the first tasks of each place."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from rota.client.status import AttemptAccount, attempts_of
from rota.durations import MICROSECONDS, utc_datetime
from rota.protocol.command import Steps, ask
from rota.protocol.outcome import read_epitaph
from rota.protocol.progress import Progress, read_progress
from rota.protocol.store import BATCH, Store
from rota.protocol.task_states import LISTED, State
from rota.protocol.views import PeekedTask, QueueState
from rota.protocol.walks import look_further


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """One queue: how many tasks are ready, scheduled (of these `overdue`), running and dead, and how many it ever
    accepted. `oldest_ready_seconds`: for how long the first has been ready, 0 without one. `served`: whether a running
    fleet claims from it. `closed_by`: the condition that keeps it closed, or ""."""

    queue: str
    ready: int
    scheduled: int
    overdue: int
    running: int
    dead: int
    accepted: int
    oldest_ready_seconds: float
    paused: bool
    served: bool
    closed_by: str


def find_queues(store: Store) -> Steps[list[QueueCounts]]:
    """All queues that have or had tasks, by name."""
    overview = yield from look_further(store, (yield from ask(store.overview(()))))
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

MOST_LOOKED_AT: Final = 10_000  # for the sake of those that are chosen
DEFAULT_LIMIT: Final = 100


@dataclass(frozen=True, slots=True)
class QueuedTask:
    """A task where it stands: `ready` in a lane, `scheduled`, `running` (claimed by the `owner`), or `dead`.

    Texts are "" and times None where they are not known, as with what others pushed. `since`: when it came into its
    lane, or died, and `age_seconds` ago; of a scheduled one it is not known. `due_in_seconds` is below 0 of what is
    late. `attempt` is the number of the attempt that runs, comes next, or was the last. `progress`: what a running one
    says; `epitaph`: why a dead one died.
    """

    id: str
    state: State
    queue: str
    name: str
    due_at: datetime | None
    due_in_seconds: float | None
    since: datetime | None
    age_seconds: float | None
    attempt: int
    failures: int
    crashes: int
    losses: int
    owner: str = ""
    progress: Progress | None = None
    epitaph: AttemptAccount | None = None


@dataclass(frozen=True, slots=True)
class WantedTasks:
    """Which tasks: in one place, of a queue and of a name ("" for all), at most `limit`."""

    state: State
    queue: str = ""
    task: str = ""
    limit: int = DEFAULT_LIMIT

    def __post_init__(self) -> None:
        """Raises TypeError or ValueError for a limit that is none."""
        if isinstance(self.limit, bool) or not isinstance(self.limit, int):
            raise TypeError(f"limit must be a whole number, got {self.limit!r}")
        if self.limit < 1:
            raise ValueError(f"limit must be at least 1, got {self.limit!r}")

    @property
    def chooses(self) -> bool:
        """Whether some of what is looked at may be left out."""
        return bool(self.task or (self.queue and self.state is not State.READY))


@dataclass(frozen=True, slots=True)
class TasksFound:
    """What was found. `more`: there is more behind what was `looked_at`; with fewer tasks than wanted, the search was
    ended."""

    tasks: list[QueuedTask]
    looked_at: int
    more: bool


def listed_state(name: str) -> State:
    """Return the state of that name. Raise ValueError if tasks in it are not listed, for example `done`."""
    if name not in LISTED:
        *first, last = (f'"{state}"' for state in LISTED)
        raise ValueError(f"state must be {', '.join(first)} or {last}, got {name!r}")
    return State(name)


def find(store: Store, wanted: WantedTasks) -> Steps[TasksFound]:
    """Look until as many are found as wanted, or, where some are left out, 10,000 were looked at."""
    tasks: list[QueuedTask] = []
    looked_at, most = 0, max(MOST_LOOKED_AT, wanted.limit)
    for queue in (yield from _queues(store, wanted)):
        offset: int | None = 0
        while offset is not None:
            room = wanted.limit - len(tasks)
            if room <= 0 or looked_at >= most:
                return TasksFound(tasks[: wanted.limit], looked_at, more=True)
            count = BATCH if wanted.chooses else min(room, BATCH)
            page = yield from ask(store.peek(wanted.state, queue, wanted.task, offset, count))
            tasks += [queued(each, wanted.state, page.now_us) for each in page.tasks]
            looked_at += page.looked_at
            offset = page.next_offset
    return TasksFound(tasks[: wanted.limit], looked_at, more=len(tasks) > wanted.limit)


def _queues(store: Store, wanted: WantedTasks) -> Steps[list[str]]:
    """Of which queues to ask: one after the other where each has lanes of its own."""
    if wanted.queue or wanted.state is not State.READY:
        return [wanted.queue]
    every = yield from look_further(store, (yield from ask(store.overview(()))))
    return sorted(each.queue for each in every.queues if each.ready)


def queued(found: PeekedTask, state: State, now_us: int) -> QueuedTask:
    """A task that a page of one place told of, at that time."""
    is_dead = state is State.DEAD
    epitaph = attempts_of([read_epitaph(found.told, "error")]) if is_dead and found.told else (None,)
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
        progress=None if is_dead else read_progress(found.told),
        epitaph=epitaph[0],
    )
