"""The scripts that only read, and the values of their replies: the counts of tasks, the status of an id, the queues,
the dead tasks. This module is part of the typed store: see `rota.protocol.store`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rota.protocol.entry import Kind
from rota.protocol.nodes import Node, parse_nodes
from rota.protocol.outcome import Ended, parse_ended
from rota.protocol.scripts import Raw, ScriptCall, Transitions, names_of, reply
from rota.protocol.task_states import ENDS_OF_GONE, EventsPage, parse_events
from rota.protocol.wire import NOTHING, pack, shown, text_of


def _shown_name(raw: Raw) -> str:
    return shown(text_of(raw))


def _as_it_is(raw: Raw) -> Raw:
    return raw


@dataclass(frozen=True, slots=True)
class Audit:
    """The task counts of a namespace: how many tasks were ever accepted, how many of them are live, and how many have
    ended."""

    accepted: int
    live: int  # number of live tasks, including dead tasks
    ended: Mapping[str, int]  # number of ended tasks by outcome; the keys are ENDS_OF_GONE

    @property
    def missing(self) -> int:
        """The number of accepted tasks that are not live and have not ended. It is 0 unless something is wrong."""
        return self.accepted - self.live - sum(self.ended.values())


def parse_audit(raw: Raw) -> Audit:
    """Parse the reply to `audit`: `[accepted, live, ended...]`, with the number of ended tasks for each of
    ENDS_OF_GONE."""
    accepted, live, *ended = map(int, raw)
    return Audit(accepted, live, dict(zip(ENDS_OF_GONE, ended, strict=True)))


@dataclass(frozen=True, slots=True)
class Lists:
    """The number of entries in all lists of the namespace, and the names of the lists that are not empty."""

    entries: int
    names: tuple[str, ...]


parse_lists = reply(Lists, int, names_of)


@dataclass(frozen=True, slots=True)
class ListedIds:
    """Ids of the entries that were read from the requested lists."""

    lists: int  # number of the requested lists that were read completely
    read: int  # number of entries that were read from the list after these
    ids: list[bytes]


parse_listed_ids = reply(ListedIds, int, int, list)


@dataclass(frozen=True, slots=True)
class Bodies:
    """The ids of stored tasks that must be in some list, because they are neither delayed nor dead. `cursor` is where
    the next chunk begins, "0" after the last chunk."""

    cursor: str
    ids: list[bytes]


parse_bodies = reply(Bodies, text_of, list)


@dataclass(frozen=True, slots=True)
class TaskState:
    """The status of an id. Times are Redis time in microseconds, 0 if they do not apply."""

    state: str  # a State, or `purged`
    queue: str = ""
    due_us: int = 0  # when the task was due
    failures: int = 0  # number of failed attempts; `crashes` and `losses` are counted in the same way
    crashes: int = 0
    losses: int = 0
    owner: str = ""  # the worker or consumer that holds the task
    body: bytes = b""  # the body as it was enqueued, while it is kept
    attempt_records: bytes = b""  # the records of the task's failed attempts, one per line, the latest last
    result: bytes | None = None  # the result while it is kept, otherwise None
    progress: bytes = b""  # the reported progress in the form of `progress_text`, b"" for none
    ended_us: int = 0  # when the task died, if it is dead
    ended: Ended | None = None  # how the task ended, while that is remembered
    kind: str = ""  # the kind in the task's entry, while it has an entry
    ready_us: int = 0  # when the task entered its lane, while it has an entry
    ends_read: int = 0  # number of records of ended tasks read without finding the id, or 0 if all were
    follows: str = ""  # what a pending task follows: `task ID` or `group ID`


def _ended(raw: Raw) -> Ended | None:
    return parse_ended(raw) if raw else None


def _kind(raw: Raw) -> str:
    return Kind(text_of(raw)).label if raw else ""


parse_status = reply(
    TaskState, text_of, text_of, *[int] * 4, _shown_name, *[_as_it_is] * 4, int, _ended, _kind, int, int
)


def parse_waited(raw: Raw) -> list[TaskState | None]:
    """Parse the reply to `wait`: the state of each task, or nil if the task has not reached its goal. The reply has an
    item for the first task, and for as many other tasks as it has room for."""
    if not raw:
        raise ValueError("the reply contains no state of a task")
    return [None if state is None else _parse_waited(state) for state in raw]


def _parse_waited(raw: Raw) -> TaskState:
    try:
        return parse_status(raw)
    except ValueError:  # The text of a record is not valid. This must not stop the wait for the other tasks.
        return TaskState("unknown")


@dataclass(frozen=True, slots=True)
class QueueState:
    """The counts and ages of one queue. Ages are in microseconds, 0 if there is no such task."""

    queue: str  # name of the queue, safe to display
    ready: int  # tasks in the lanes of the queue
    scheduled: int  # tasks of the queue that are not due yet
    overdue: int  # scheduled tasks whose due time has come
    inflight: int  # tasks of the queue that are claimed
    dead: int  # tasks in the dead set
    accepted: int  # number of tasks that the queue has ever accepted
    oldest_ready_age_us: int  # how long the oldest ready task has waited
    oldest_overdue_age_us: int  # how long the oldest overdue task has been due
    paused: bool
    served: bool  # whether a running master serves the queue
    closed_age_us: int = 0  # how long a pause or a condition has prevented claims
    closed_by: str = ""  # name of the condition that keeps the queue closed; "" for none
    condition_error: str = ""  # what is wrong with that condition; "" for nothing


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of some queues at one instant of Redis time. `cursor` is where the next chunk of queues begins, "0"
    after the last chunk."""

    now_us: int
    owners: int
    queues: tuple[QueueState, ...]
    cursor: str = "0"

    @property
    def more(self) -> bool:
        """Whether there are more queues to read."""
        return self.cursor != "0"


def parse_overview(raw: Raw) -> Overview:
    """Parse the reply to `overview`: `[now, number of owners, cursor, a list for each queue...]`."""
    now, owners, cursor, *rows = raw
    return Overview(int(now), int(owners), tuple(map(_parse_queue_state, rows)), text_of(cursor))


_parse_queue_state = reply(QueueState, _shown_name, *[int] * 8, bool, bool, int, _shown_name, _shown_name)


@dataclass(frozen=True, slots=True)
class ClosedQueue:
    """A queue that is closed, so that nothing can be claimed from it."""

    queue: str
    closed_age_us: int  # how long the queue has been closed
    closed_by: str  # name of the condition that keeps the queue closed; "" if the queue is paused
    error: str  # what is wrong with that condition; "" for nothing


def parse_closed(raw: Raw) -> tuple[ClosedQueue, ...]:
    """Parse a reply that has a list for each closed queue, with the fields of ClosedQueue."""
    return tuple(sorted(map(_parse_closed_queue, raw), key=lambda closed: closed.queue))


_parse_closed_queue = reply(ClosedQueue, _shown_name, int, _shown_name, _shown_name)


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """The state of one consumer. The names are safe to display. `lease_left_us` is in microseconds, and 0 if the lease
    has expired."""

    owner: str
    lease_left_us: int
    held: int
    queues: str


@dataclass(frozen=True, slots=True)
class Consumers:
    """The number of consumers, and a page of them."""

    total: int
    rows: tuple[ConsumerState, ...]

    @property
    def held(self) -> int:
        """The number of tasks that the consumers on this page hold."""
        return sum(row.held for row in self.rows)


def parse_consumers(raw: Raw) -> Consumers:
    """Parse the reply to `consumers`: `[number of consumers, a list for each consumer on this page...]`."""
    total, *rows = raw
    return Consumers(int(total), tuple(map(_parse_consumer, rows)))


_parse_consumer = reply(ConsumerState, _shown_name, int, int, _shown_name)


@dataclass(frozen=True, slots=True)
class DeadTask:
    """One task of the dead set. `died_us` is Redis time in microseconds. `death_record` is a JSON object."""

    id: str
    died_us: int
    queue: str
    death_record: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class DeadPage:
    """A page of the dead set, the latest first, and the size of the set."""

    total: int
    tasks: tuple[DeadTask, ...]


def parse_dead_page(raw: Raw) -> DeadPage:
    """Parse the reply to `dead_page`: `[number of dead tasks, a list for each task on this page...]`."""
    total, *rows = raw
    return DeadPage(int(total), tuple(map(_parse_dead_task, rows)))


_parse_dead_task = reply(DeadTask, text_of, int, text_of, _as_it_is, _as_it_is)


@dataclass(frozen=True, slots=True)
class PeekedTask:
    """A task in a list or set. The names are safe to display, and "" if not known. Times are Redis time in
    microseconds, 0 if not known."""

    id: str
    queue: str
    name: str
    due_us: int
    since_us: int  # when the task entered its lane, or died
    failures: int  # number of failed attempts; `crashes` and `losses` are counted in the same way
    crashes: int
    losses: int
    owner: str  # the worker or consumer that holds the task
    detail: bytes  # the death record of a dead task, or the progress of a running task


@dataclass(frozen=True, slots=True)
class Peeked:
    """A page of tasks."""

    now_us: int
    examined: int  # number of tasks that were read for this page
    next_offset: int | None  # where the next page begins; None after the last page
    tasks: tuple[PeekedTask, ...]


def parse_peeked(raw: Raw) -> Peeked:
    """Parse the reply to `peek`: `[now, number of examined items, next offset or "", [a list for each task...]]`."""
    now, examined, following, rows = raw
    return Peeked(int(now), int(examined), int(following) if following else None, tuple(map(_parse_peeked_task, rows)))


_parse_peeked_task = reply(PeekedTask, *[_shown_name] * 3, *[int] * 5, _shown_name, _as_it_is)


class Queries(Transitions):
    """The transitions of one namespace that only read."""

    def overview(self, queues: Sequence[str], cursor: str = "0") -> ScriptCall[Overview]:
        """Return the state of up to BATCH named queues, and of a chunk of all known queues. Begin with cursor "0"."""
        return self._call("overview", pack((cursor, *queues)), parse_overview)

    def status(self, task_id: str, ends_read: int = 0) -> ScriptCall[TaskState]:
        """Return the status of an id. In each lane, only the first BATCH entries are searched, and the records of ended
        tasks are searched only for some milliseconds. If some records are left, pass `TaskState.ends_read` to the next
        call to continue."""
        return self._call("status", pack((task_id, ends_read)), parse_status)

    def wait(self, client: str, goals: Sequence[tuple[str, str]]) -> ScriptCall[list[TaskState | None]]:
        """Return the status of up to BATCH tasks, each given as (goal, id). A goal is `s` for the start, `e` for the
        end, or `r` for the end with the result.

        If a task has not reached its goal yet, its status is None, and the client is notified when it does: a script
        then adds a message to the reply list of this client, a Redis list that the client reads. Tasks for which the
        reply has no room are left out.
        """
        args = (arg for each in goals for arg in each)
        return self._call("wait", pack((client, *args)), parse_waited)

    def consumers(self) -> ScriptCall[Consumers]:
        """Return the number of consumers, and at most BATCH of them."""
        return self._call("consumers", NOTHING, parse_consumers)

    def dead_page(self, offset: int, count: int) -> ScriptCall[DeadPage]:
        """Return a page of the dead set, the latest first; `count` is at most BATCH."""
        return self._call("dead", pack((offset, count)), parse_dead_page)

    def peek(self, state: str, queue: str, task: str, offset: int, count: int) -> ScriptCall[Peeked]:
        """Return a page of the tasks in this state: ready (in one queue), scheduled, running or dead. For `queue` and
        `task`, "" stands for every queue or task. The call reads `count` tasks, at most BATCH. For running tasks,
        `offset` counts owners, not tasks."""
        return self._call("peek", pack((state, queue, task, offset, count)), parse_peeked)

    def nodes(self) -> ScriptCall[list[Node]]:
        """Return the nodes whose masters are alive or were until recently, at most BATCH."""
        return self._call("nodes", NOTHING, parse_nodes)

    def events(self, after: str, count: int) -> ScriptCall[EventsPage]:
        """Return up to `count` task events, at most BATCH, and the first and the last id of the stream.

        The page begins after the event `after`, which is an event's id, "0" for all events, or "$" for none.
        """
        return self._call("events", pack((after, count)), parse_events)

    def audit(self) -> ScriptCall[Audit]:
        """Return the task counts of the namespace."""
        return self._call("audit", pack(ENDS_OF_GONE), parse_audit)

    def lists(self) -> ScriptCall[Lists]:
        """Return the names of the lists that contain tasks, and the number of entries in them."""
        return self._call("lists", NOTHING, parse_lists)

    def list_ids(self, lists: Sequence[str], read: int) -> ScriptCall[ListedIds]:
        """Return up to BATCH ids in these lists. The first `read` entries of the first list are skipped, because an
        earlier call has read them."""
        return self._call("list_ids", pack((read, *lists)), parse_listed_ids)

    def bodies(self, cursor: str) -> ScriptCall[Bodies]:
        """Return a chunk of the stored tasks that are neither delayed nor dead, and so must be in some list. Begin with
        cursor "0"."""
        return self._call("bodies", pack((cursor,)), parse_bodies)

    def unplaced(self, ids: Sequence[bytes]) -> ScriptCall[list[bytes]]:
        """Return which of these tasks are unplaced. `ids` has up to BATCH tasks that a scan found in no lane. Such a
        task is unplaced if it is still stored, and is neither delayed, dead nor in flight."""
        return self._call("unplaced", pack(ids), list)
