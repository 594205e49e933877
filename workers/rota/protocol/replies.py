"""The classes of the values that the replies of the scripts are parsed into. Those of the scripts that only read are in
`rota.protocol.views`.

Scripts return statuses, numbers and lists of bytes, mostly in the order of the fields of the value. A reply has another
form only if Rota has a bug, or if the reply does not come from Rota's scripts. The parser then raises an error, which
`rota.server.server_errors.read_reply` reports as an error of the server.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from rota.protocol.entry import Entry, parse_entry
from rota.protocol.scripts import Raw, names_of, reply, status_of, statuses_of, time_or_none
from rota.protocol.tiers import QueueShare
from rota.protocol.wire import text_of


def _entries(raw: Sequence[Raw]) -> tuple[Entry, ...]:
    return tuple(map(parse_entry, raw))


def _pairs(raw: Sequence[Raw]) -> Iterable[tuple[Raw, Raw]]:
    return zip(raw[::2], raw[1::2], strict=True)


@dataclass(frozen=True, slots=True)
class Promoted:
    """The result of promoting tasks that are due."""

    moved: Mapping[str, int]  # number of tasks moved, by queue
    buried: int  # number of items that could not be read and were set aside as dead
    next_due_us: int | None  # earliest due time of the tasks that are not due yet, or None
    now_us: int
    more: bool  # whether the limit was reached, so that there may be more due tasks and the caller should call again
    # Names of schedules whose occurrences were skipped because the previous one has not ended.
    left_out: tuple[str, ...] = ()


def parse_promoted(raw: Raw) -> Promoted:
    """Parse the reply to `promote`, with the values of Promoted in this order: `[now, next due or "", more 0|1, buried,
    [queue, count, ...], [schedule, ...]]`."""
    now, next_due, more, buried, pairs, left_out = raw
    moved = {text_of(queue): int(count) for queue, count in _pairs(pairs)}
    return Promoted(moved, int(buried), time_or_none(next_due), int(now), bool(more), names_of(left_out))


@dataclass(frozen=True, slots=True)
class Renewed:
    """The result of renewing leases."""

    lost: tuple[str, ...]  # names of owners that are no longer registered
    cancelled: frozenset[bytes]  # texts of the entries in flight whose tasks have been requested to be cancelled


parse_renewed = reply(Renewed, names_of, frozenset)


class CancelOrder(NamedTuple):
    """A request to cancel a running task, which the script `cancel` leaves for the node of the task's owner."""

    owner: str
    task_id: str
    ready_us: int  # `ready_us` of the task's entry; it distinguishes this task from a later one with the same id
    kill_after_seconds: float | None  # how long to wait before the task's process is killed; None to never kill it


def parse_cancel_order(raw: bytes) -> CancelOrder:
    """Parse the text of a CancelOrder: `MILLISECONDS ID READY OWNER`. If the task still runs after MILLISECONDS, its
    process is killed. MILLISECONDS is `-` if the process must not be killed. Raises ValueError if the text has another
    form."""
    kill_after, task_id, ready, owner = text_of(raw).split(" ", 3)
    return CancelOrder(owner, task_id, int(ready), None if kill_after == "-" else int(kill_after) / 1000)


@dataclass(frozen=True, slots=True)
class Reaped:
    """The result of reaping an owner."""

    alive: bool  # whether nothing was changed, because the lease has not expired or a grace period is in force
    settled: int  # number of the reported outcomes that took effect
    requeued: tuple[Entry, ...]  # entries that were put back in their lanes
    dead: tuple[Entry, ...]  # entries that were set aside as dead
    stale: tuple[bytes, ...] = ()  # texts of entries whose outcomes had no effect


parse_reaped = reply(Reaped, lambda status: status == b"alive", int, _entries, _entries, tuple)


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of a poller's sweep. Times are Redis time in microseconds."""

    now_us: int
    rescues: int  # number of doorbells that were rung because entries waited although their doorbell had no token
    grace_until_us: int  # no owner may be reaped for an expired lease before this time
    expired: tuple[str, ...]  # owners whose leases have expired
    next_due_us: int | None  # earliest due time of the delayed set, or None
    is_leader: bool = False  # whether this poller does the fleet's scans
    legacy_items: int = 0  # number of legacy items in the delayed set that still have to be adopted
    next_schedule_us: int | None = None  # when a schedule must next be checked, or None
    undeclared: tuple[str, ...] = ()  # names of schedules that no node declares any longer
    watched: tuple[str, ...] = ()  # the keys in which new work would appear; empty if there are too many to watch
    # Whether none of the `watched` keys exists. There is then nothing to do until one of them is created or until
    # `lease_ends_us`.
    is_quiet: bool = False
    lease_ends_us: int | None = None  # the earliest time at which a lease can expire, or None
    # Whether this poller is a reserve. Enough other pollers sweep for the fleet, so the call has done nothing.
    is_reserve: bool = False


parse_swept = reply(
    Swept, int, int, int, names_of, time_or_none, bool, int, time_or_none, names_of, names_of, bool, time_or_none, bool
)


@dataclass(frozen=True, slots=True)
class AdoptedScheduled:
    """The result of adopting legacy items of the delayed set: how many became tasks, and the queue and the reason of
    each item that became dead at once."""

    adopted: int
    dead: tuple[tuple[str, str], ...]


def pairs_of_texts(raw: Raw) -> tuple[tuple[str, str], ...]:
    """Split a flat list of names into pairs: the first item with the second, the third with the fourth, and so on."""
    return tuple((text_of(queue), text_of(reason)) for queue, reason in _pairs(raw))


parse_adopted_scheduled = reply(AdoptedScheduled, int, pairs_of_texts)


class RestoreStatus(StrEnum):
    """The result of restoring a live task that was in no lane, list or set."""

    RESTORED = "restored"  # the task is back in its lane
    ENDED = "ended"  # the task had been cancelled, and has now ended
    DEAD = "dead"  # the task is dead, because its queue is not known
    PLACED = "placed"  # nothing was changed, because the task is no longer live, or is in a lane, list or set after all


parse_restored = statuses_of(RestoreStatus)


class CancelStatus(StrEnum):
    """The result of a cancel, which depends on the state of the task."""

    CANCELLED = "cancelled"  # the task was waiting, and has ended
    RUNNING = "running"  # the task is running, and its worker will be notified
    DEAD = "dead"
    UNKNOWN = "unknown"


parse_cancel = status_of(CancelStatus)


@dataclass(frozen=True, slots=True)
class Bounded:
    """The result of a call that processes a limited number of items. If `more` is true, there are more items, and the
    caller should call again."""

    count: int
    more: bool


parse_bounded = reply(Bounded, int, bool)


@dataclass(frozen=True, slots=True)
class Attended:
    """The reply to a consumer that extends its lease."""

    registered: bool  # whether the consumer is still registered; if not, the other fields are empty
    cancelled: frozenset[bytes]  # texts of the consumer's entries whose tasks are to be cancelled
    # How masters serve the consumer's queues. A queue that no master serves has the defaults.
    shares: tuple[QueueShare, ...]


class LegacySource(NamedTuple):
    """A key from which legacy items are taken."""

    key: str
    queue: str = ""  # the queue of its items; "" if each item states its queue
    task: str = ""  # the task that gets each item as its only argument; "" if each item states its task


class FromSource(NamedTuple):
    """The result for one source: how many items the call took, how many are left, and what is wrong with the source (""
    if nothing is)."""

    taken: int
    left: int
    fault: str


@dataclass(frozen=True, slots=True)
class AdoptedLegacy:
    """The result of adopting items from legacy sources."""

    now_us: int
    is_leader: bool  # whether this poller is the one that reads the legacy sources for the whole fleet
    next_due_us: int | None  # earliest due time of the items in sorted sets, or None
    more: bool  # whether there are more items to take now
    sources: tuple[FromSource, ...]  # one for each source, in the order of the call
    dead: tuple[tuple[str, str], ...]  # the queue and the reason of each item that became dead at once


def _of_sources(raw: Raw) -> tuple[FromSource, ...]:
    thirds = zip(raw[::3], raw[1::3], raw[2::3], strict=True)
    return tuple(FromSource(int(taken), int(left), text_of(fault)) for taken, left, fault in thirds)


parse_adopted_legacy = reply(AdoptedLegacy, int, bool, time_or_none, bool, _of_sources, pairs_of_texts)
