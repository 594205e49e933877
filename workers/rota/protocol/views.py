"""What the read-only scripts return, as values: the books, where an id stands, the queues, the dead."""

from collections.abc import Sequence
from dataclasses import dataclass

from rota.protocol.replies import Raw
from rota.protocol.wire import shown, text_of


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


def parse_audit(raw: Raw) -> Audit:
    """`[accepted, done, cancelled, expired, purged, live]`"""
    return Audit(*map(int, raw))


@dataclass(frozen=True, slots=True)
class TaskState:
    """Where an id stands. `state` is scheduled, ready, running, dead, cancelled, done or unknown; times in
    microseconds of Redis time, 0 when they do not apply."""

    state: str
    queue: str = ""
    due_us: int = 0
    failures: int = 0
    crashes: int = 0
    losses: int = 0
    owner: str = ""
    body: bytes = b""
    epitaph: bytes = b""
    result: bytes = b""


def parse_status(raw: Raw) -> TaskState:
    """`[state, queue, due, failures, crashes, losses, owner, body, epitaph, result]`"""
    state, queue, *numbers, owner, body, epitaph, result = raw
    due, failures, crashes, losses = map(int, numbers)
    place = text_of(state), text_of(queue)
    return TaskState(*place, due, failures, crashes, losses, shown(text_of(owner)), body, epitaph, result)


@dataclass(frozen=True, slots=True)
class QueueState:
    """One queue's numbers, its name as it can be shown; ages in microseconds, 0 when there is nothing to be old."""

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


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of all queues at one instant of Redis time."""

    now_us: int
    owners: int
    queues: tuple[QueueState, ...]


def parse_overview(raw: Raw) -> Overview:
    """`[now, owners, [queue, ready, scheduled, overdue, inflight, dead, accepted, ready age, overdue age,
    paused 0|1, served 0|1], ...]`"""
    now, owners, *rows = raw
    return Overview(int(now), int(owners), tuple(_parse_queue_state(row) for row in rows))


def _parse_queue_state(row: Sequence[Raw]) -> QueueState:
    queue, *numbers = row
    ready, scheduled, overdue, inflight, dead, accepted, ready_age, overdue_age, paused, served = map(int, numbers)
    counts = ready, scheduled, overdue, inflight, dead, accepted
    return QueueState(shown(text_of(queue)), *counts, ready_age, overdue_age, bool(paused), bool(served))


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
    """`[total, [id, died, queue, epitaph, body], ...]`"""
    total, *rows = raw
    tasks = (DeadTask(text_of(row[0]), int(row[1]), text_of(row[2]), row[3], row[4]) for row in rows)
    return DeadPage(int(total), tuple(tasks))
