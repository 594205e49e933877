"""The replies of the transitions, as values. The replies of the scripts that only read are in `views`.

Scripts return statuses, numbers and lists of bytes, mostly in the order of the fields that they become. A reply of
another shape is a bug in Rota, or does not come from our scripts. Its parser raises an error, which callers see as an
error of the server: see `rota.server.server_errors.read_reply`.
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
    buried: int  # number of unreadable items that were set aside as dead
    next_due_us: int | None  # earliest due time of the tasks that still wait, or None
    now_us: int
    more: bool  # whether the limit was reached; the caller should then call again
    left_out: tuple[str, ...] = ()  # schedules of occurrences that were skipped to avoid an overlap


def parse_promoted(raw: Raw) -> Promoted:
    """Parse `[now, next due or "", more 0|1, buried, [queue, count, ...], [schedule, ...]]`."""
    now, next_due, more, buried, pairs, left_out = raw
    moved = {text_of(queue): int(count) for queue, count in _pairs(pairs)}
    return Promoted(moved, int(buried), time_or_none(next_due), int(now), bool(more), names_of(left_out))


@dataclass(frozen=True, slots=True)
class Renewed:
    """The result of renewing leases."""

    lost: tuple[str, ...]  # owners that are no longer registered
    cancelled: frozenset[bytes]  # texts of entries in flight whose cancellation was requested


parse_renewed = reply(Renewed, names_of, frozenset)


class CancelOrder(NamedTuple):
    """The order to cancel a running task, which the script `cancel` leaves for the node of the task's owner."""

    owner: str
    task_id: str
    ready_us: int  # `ready_us` of the task's entry, which excludes later tasks with the same id
    kill_after_seconds: float | None  # when to kill the task's process if the task still runs; None for never


def parse_cancel_order(raw: bytes) -> CancelOrder:
    """Parse `MILLISECONDS-or-- ID READY OWNER`. Raises ValueError if the text has another form."""
    kill_after, task_id, ready, owner = text_of(raw).split(" ", 3)
    return CancelOrder(owner, task_id, int(ready), None if kill_after == "-" else int(kill_after) / 1000)


@dataclass(frozen=True, slots=True)
class Reaped:
    """The result of reaping an owner."""

    alive: bool  # whether the lease had not expired after all; then nothing was done
    settled: int  # number of the given outcomes that took effect
    requeued: tuple[Entry, ...]  # the entries that are now in their lanes
    dead: tuple[Entry, ...]  # entries that were set aside as dead
    stale: tuple[bytes, ...] = ()  # texts of entries whose outcomes had no effect


parse_reaped = reply(Reaped, lambda status: status == b"alive", int, _entries, _entries, tuple)


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of a poller's sweep. Times are Redis time in microseconds."""

    now_us: int
    rescues: int  # number of doorbells rung for entries that waited without a token
    grace_until_us: int  # until this time, no owner may be reaped because of an expired lease
    expired: tuple[str, ...]  # owners whose leases have expired
    next_due_us: int | None  # earliest due time of the delayed set, or None
    is_leader: bool = False  # whether this poller scans for the fleet
    legacy_items: int = 0  # number of items of the delayed set that were not adopted yet
    next_schedule_us: int | None = None  # when the next schedule must be checked, or None
    undeclared: tuple[str, ...] = ()  # schedules that no node declares any longer
    watched: tuple[str, ...] = ()  # the keys in which new work can appear; empty if there are too many
    is_quiet: bool = False  # no `watched` key exists, so there is nothing to do until one does or until `lease_ends_us`
    lease_ends_us: int | None = None  # when the first lease may expire, or None


parse_swept = reply(
    Swept, int, int, int, names_of, time_or_none, bool, int, time_or_none, names_of, names_of, bool, time_or_none
)


@dataclass(frozen=True, slots=True)
class AdoptedScheduled:
    """The number of items that became tasks, and the queue and the reason of each item that is dead at once."""

    adopted: int
    dead: tuple[tuple[str, str], ...]


def pairs_of_texts(raw: Raw) -> tuple[tuple[str, str], ...]:
    """Return a list of texts as pairs."""
    return tuple((text_of(queue), text_of(reason)) for queue, reason in _pairs(raw))


parse_adopted_scheduled = reply(AdoptedScheduled, int, pairs_of_texts)


class RestoreStatus(StrEnum):
    """The result of restoring a live task that was in no lane, list or set."""

    RESTORED = "restored"  # it is back in its lane
    ENDED = "ended"  # it had been cancelled, and has ended
    DEAD = "dead"  # it is dead because its queue is not known
    PLACED = "placed"  # nothing was done, because the task is not live, or is in a lane, list or set after all


parse_restored = statuses_of(RestoreStatus)


class CancelStatus(StrEnum):
    """The state in which a cancel found the task."""

    CANCELLED = "cancelled"  # it waited, and has ended
    RUNNING = "running"  # it runs, and its worker will be notified
    DEAD = "dead"
    UNKNOWN = "unknown"


parse_cancel = status_of(CancelStatus)


@dataclass(frozen=True, slots=True)
class Bounded:
    """The number of items that a bounded call processed, and whether the caller should call again because there are
    more."""

    count: int
    more: bool


parse_bounded = reply(Bounded, int, bool)


@dataclass(frozen=True, slots=True)
class Attended:
    """The reply to a consumer that extends its lease."""

    registered: bool  # whether the consumer is still registered; if not, the rest is empty
    cancelled: frozenset[bytes]  # texts of entries that it holds whose cancellation was requested
    shares: tuple[QueueShare, ...]  # how masters serve its queues; defaults for queues that no master serves


class LegacySource(NamedTuple):
    """A key from which items are taken."""

    key: str
    queue: str = ""  # the queue of its items; "" if each item states its queue
    task: str = ""  # the task that gets each item as its only argument; "" if each item states its task


class FromSource(NamedTuple):
    """The numbers of items that a call took from a source and left there, and the source's fault ("" for none)."""

    taken: int
    left: int
    fault: str


@dataclass(frozen=True, slots=True)
class AdoptedLegacy:
    """The result of adopting items from legacy sources."""

    now_us: int
    is_leader: bool  # whether this poller listens for the fleet
    next_due_us: int | None  # earliest due time of the items in sorted sets
    more: bool  # whether there are more items to take now
    sources: tuple[FromSource, ...]  # in the order of the call
    dead: tuple[tuple[str, str], ...]  # the queue and the reason of each item that is dead at once


def _of_sources(raw: Raw) -> tuple[FromSource, ...]:
    thirds = zip(raw[::3], raw[1::3], raw[2::3], strict=True)
    return tuple(FromSource(int(taken), int(left), text_of(fault)) for taken, left, fault in thirds)


parse_adopted_legacy = reply(AdoptedLegacy, int, bool, time_or_none, bool, _of_sources, pairs_of_texts)
