"""The scripts that only read, a part of the typed store (see `rota.protocol.store`), and what they return, as values:
the books, where an id stands, the queues, the dead."""

from collections.abc import Sequence
from dataclasses import dataclass

from rota.protocol.command import Command, Raw, Transitions, names_of, reply
from rota.protocol.entry import Kind
from rota.protocol.nodes import Node, parse_nodes
from rota.protocol.outcome import Ended, parse_ended
from rota.protocol.task_states import EventsPage, parse_events
from rota.protocol.wire import NOTHING, pack, shown, text_of


def _shown_name(raw: Raw) -> str:
    return shown(text_of(raw))


def _as_it_is(raw: Raw) -> Raw:
    return raw


@dataclass(frozen=True, slots=True)
class Audit:
    """The books: what was accepted against what ended and what is live, in tasks."""

    accepted: int
    done: int
    cancelled: int
    expired: int
    purged: int
    live: int

    @property
    def missing(self) -> int:
        """Tasks the books cannot account for; 0 unless something is wrong."""
        return self.accepted - self.done - self.cancelled - self.expired - self.purged - self.live


parse_audit = reply(Audit, *[int] * 6)


@dataclass(frozen=True, slots=True)
class Lists:
    """How many entries stand in lists, and the names of the lists that hold some."""

    entries: int
    names: tuple[str, ...]


parse_lists = reply(Lists, int, names_of)


@dataclass(frozen=True, slots=True)
class Standing:
    """Of the lists asked for: how many are read whole, how many entries of the next one are read, and ids."""

    lists: int
    read: int
    ids: list[bytes]


parse_standing = reply(Standing, int, int, list)


@dataclass(frozen=True, slots=True)
class Bodies:
    """Ids of live tasks that must stand in a list, and where to go on; "0" at the end."""

    cursor: str
    ids: list[bytes]


parse_bodies = reply(Bodies, text_of, list)


@dataclass(frozen=True, slots=True)
class TaskState:
    """Where an id stands. `state` is pending, scheduled, ready, running, dead, cancelled, done, expired, purged or
    unknown; times in microseconds of Redis time, 0 when they do not apply. `accounts`: of its attempts, a line each,
    latest last. `result`: what it returned, while that is kept; None when nothing is. `ended_us`: when a dead task
    died. `ended`: how it ended, while that is remembered. `kind` and `ready_us` as in its entry, while it has one.
    `looked_at`: through how many texts of the memory of ends, when there are more and nothing was found. `follows`:
    of a pending task what has to end first, `task ID` or `group ID`."""

    state: str
    queue: str = ""
    due_us: int = 0
    failures: int = 0
    crashes: int = 0
    losses: int = 0
    owner: str = ""
    body: bytes = b""
    accounts: bytes = b""
    result: bytes | None = None
    progress: bytes = b""
    ended_us: int = 0
    ended: Ended | None = None
    kind: str = ""
    ready_us: int = 0
    looked_at: int = 0
    follows: str = ""


def _ended(raw: Raw) -> Ended | None:
    return parse_ended(raw) if raw else None


def _kind(raw: Raw) -> str:
    return Kind(text_of(raw)).label if raw else ""


parse_status = reply(
    TaskState, text_of, text_of, *[int] * 4, _shown_name, *[_as_it_is] * 4, int, _ended, _kind, int, int
)


def parse_waited(raw: Raw) -> list[TaskState | None]:
    """`[a state or nil...]`, of the first at least."""
    if not raw:
        raise ValueError("nothing that was asked about is answered")
    return [None if state is None else _parse_waited(state) for state in raw]


def _parse_waited(raw: Raw) -> TaskState:
    try:
        return parse_status(raw)
    except ValueError:  # what stands in place of a record is none: that must not keep others waiting
        return TaskState("unknown")


@dataclass(frozen=True, slots=True)
class QueueState:
    """One queue's numbers, its name as it can be shown; ages in microseconds, 0 when there is nothing to be old.
    `closed_age_us`: for how long nobody may claim from it, as it is paused or its condition keeps entries waiting.
    `closed_by`: the condition that keeps it closed, `condition_error`: what is wrong with that one; else ""."""

    queue: str
    ready: int
    scheduled: int
    overdue: int
    inflight: int
    dead: int
    accepted: int
    oldest_ready_age_us: int
    oldest_overdue_age_us: int
    paused: bool
    served: bool
    closed_age_us: int = 0
    closed_by: str = ""
    condition_error: str = ""


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of queues at one instant of Redis time. `cursor`: where the next portion begins, "0" after the last."""

    now_us: int
    owners: int
    queues: tuple[QueueState, ...]
    cursor: str = "0"

    @property
    def more(self) -> bool:
        """Whether there are queues that are not among these."""
        return self.cursor != "0"


def parse_overview(raw: Raw) -> Overview:
    """`[now, owners, cursor, a list a queue...]`"""
    now, owners, cursor, *rows = raw
    return Overview(int(now), int(owners), tuple(map(_parse_queue_state, rows)), text_of(cursor))


_parse_queue_state = reply(QueueState, _shown_name, *[int] * 8, bool, bool, int, _shown_name, _shown_name)


@dataclass(frozen=True, slots=True)
class ClosedQueue:
    """A queue from which nobody may claim, for how long by now: it is paused (`closed_by` is ""), or the condition
    `closed_by` keeps entries waiting. `error`: what is wrong with that condition, "" when nothing is."""

    queue: str
    closed_age_us: int
    closed_by: str
    error: str


def parse_closed(raw: Raw) -> tuple[ClosedQueue, ...]:
    """`[a list a queue...]`"""
    return tuple(sorted(map(_parse_closed_queue, raw), key=lambda closed: closed.queue))


_parse_closed_queue = reply(ClosedQueue, _shown_name, int, _shown_name, _shown_name)


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """One consumer, names as they can be shown; `lease_left_us` in microseconds, 0 when it has run out."""

    owner: str
    lease_left_us: int
    held: int
    queues: str


@dataclass(frozen=True, slots=True)
class Consumers:
    """How many consumers there are, and as many of them as a call names."""

    total: int
    rows: tuple[ConsumerState, ...]

    @property
    def held(self) -> int:
        """Tasks that these hold."""
        return sum(row.held for row in self.rows)


def parse_consumers(raw: Raw) -> Consumers:
    """`[total, a list a consumer...]`"""
    total, *rows = raw
    return Consumers(int(total), tuple(map(_parse_consumer, rows)))


_parse_consumer = reply(ConsumerState, _shown_name, int, int, _shown_name)


@dataclass(frozen=True, slots=True)
class DeadTask:
    """One task in the dead set; `died_us` in microseconds of Redis time, `epitaph` a JSON object."""

    id: str
    died_us: int
    queue: str
    epitaph: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class DeadPage:
    """A page of the dead set, latest first, and how many there are in all."""

    total: int
    tasks: tuple[DeadTask, ...]


def parse_dead_page(raw: Raw) -> DeadPage:
    """`[total, a list a task...]`"""
    total, *rows = raw
    return DeadPage(int(total), tuple(map(_parse_dead_task, rows)))


_parse_dead_task = reply(DeadTask, text_of, int, text_of, _as_it_is, _as_it_is)


@dataclass(frozen=True, slots=True)
class PeekedTask:
    """One task where it stands; its names as they can be shown, "" where they are not known. Times in microseconds of
    Redis time, 0 when they are not known. `since_us`: when it came into its lane, or died. `told`: its epitaph, or the
    progress of one that runs."""

    id: str
    queue: str
    name: str
    due_us: int
    since_us: int
    failures: int
    crashes: int
    losses: int
    owner: str
    told: bytes


@dataclass(frozen=True, slots=True)
class Peeked:
    """A page: how many tasks were `looked_at` for it, and where the next one begins, None behind the last."""

    now_us: int
    looked_at: int
    next_offset: int | None
    tasks: tuple[PeekedTask, ...]


def parse_peeked(raw: Raw) -> Peeked:
    """`[now, looked at, next offset or "", [a list a task...]]`"""
    now, looked_at, following, rows = raw
    return Peeked(int(now), int(looked_at), int(following) if following else None, tuple(map(_parse_peeked_task, rows)))


_parse_peeked_task = reply(PeekedTask, *[_shown_name] * 3, *[int] * 5, _shown_name, _as_it_is)


class Looks(Transitions):
    """What is asked about one namespace."""

    def overview(self, queues: Sequence[str], cursor: str = "0") -> Command[Overview]:
        """The numbers of up to BATCH named queues, and of a portion of all that are known; begin with cursor "0"."""
        return self._command("overview", pack((cursor, *queues)), parse_overview)

    def status(self, task_id: str, looked_at: int = 0) -> Command[TaskState]:
        """Where an id stands. Looks into its lanes only as far as BATCH entries from the head, and through the memory
        of ends for some milliseconds: `TaskState.looked_at` says where to go on."""
        return self._command("status", pack((task_id, looked_at)), parse_status)

    def wait(self, client: str, asked: Sequence[tuple[str, str]]) -> Command[list[TaskState | None]]:
        """What became of up to BATCH tasks, each (goal, id): `s` its start, `e` its end, `r` that and its result. None:
        it has not come yet, and the reply list of this client will tell. Those it had no room for are left out."""
        args = (word for question in asked for word in question)
        return self._command("wait", pack((client, *args)), parse_waited)

    def consumers(self) -> Command[Consumers]:
        """The consumers: at most BATCH of them."""
        return self._command("consumers", NOTHING, parse_consumers)

    def dead_page(self, offset: int, count: int) -> Command[DeadPage]:
        """A page of the dead set, latest first; `count` up to BATCH."""
        return self._command("dead", pack((offset, count)), parse_dead_page)

    def peek(self, place: str, queue: str, task: str, offset: int, count: int) -> Command[Peeked]:
        """A page of the tasks that are ready (in a queue), scheduled, running or dead; "" for every queue or task.
        Looks at `count`, up to BATCH; of those that run `offset` counts owners."""
        return self._command("peek", pack((place, queue, task, offset, count)), parse_peeked)

    def nodes(self) -> Command[list[Node]]:
        """The nodes whose masters live, or lived until a moment ago, at most BATCH of them."""
        return self._command("nodes", NOTHING, parse_nodes)

    def events(self, place: str, count: int) -> Command[EventsPage]:
        """Up to `count` task events behind a place: the id of one, "0" before all, "$" behind them; at most BATCH."""
        return self._command("events", pack((place, count)), parse_events)

    def audit(self) -> Command[Audit]:
        """The books of the namespace."""
        return self._command("audit", NOTHING, parse_audit)

    def lists(self) -> Command[Lists]:
        """The lists in which tasks stand."""
        return self._command("lists", NOTHING, parse_lists)

    def standing(self, lists: Sequence[str], read: int) -> Command[Standing]:
        """Up to BATCH ids that stand in these lists, behind the `read` ones at the tail of the first."""
        return self._command("standing", pack((read, *lists)), parse_standing)

    def bodies(self, cursor: str) -> Command[Bodies]:
        """A portion of the live tasks that are neither delayed nor dead; begin with cursor "0"."""
        return self._command("bodies", pack((cursor,)), parse_bodies)

    def unplaced(self, ids: Sequence[bytes]) -> Command[list[bytes]]:
        """Of up to BATCH ids those of live tasks that are not delayed, dead or in flight."""
        return self._command("unplaced", pack(ids), list)
