"""What the transitions return, as values: the reply side of the store. `views` has that of the read-only scripts.

Scripts return words, numbers and lists of bytes, most in the order of the fields that they become. A reply of another
shape is a bug on our side, or no answer of ours. It surfaces as an error of its parser, and callers see it as one of
the server: see `rota.server.server_errors.read_reply`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from rota.protocol.command import Raw, names_of, reply, time_or_none, word_of, words_of
from rota.protocol.entry import Entry, parse_entry
from rota.protocol.tiers import QueueShare
from rota.protocol.wire import text_of


def _entries(raw: Sequence[Raw]) -> tuple[Entry, ...]:
    return tuple(map(parse_entry, raw))


def _pairs(raw: Sequence[Raw]) -> Iterable[tuple[Raw, Raw]]:
    return zip(raw[::2], raw[1::2], strict=True)


@dataclass(frozen=True, slots=True)
class Promoted:
    """`moved`: how many a queue. `next_due_us`: the earliest due time still waiting, or None.
    `buried`: garbage set aside. `more`: the limit was reached, call again. `left_out`: the schedule of each occurrence
    that was left out, as one before it had not ended."""

    moved: Mapping[str, int]
    buried: int
    next_due_us: int | None
    now_us: int
    more: bool
    left_out: tuple[str, ...] = ()


def parse_promoted(raw: Raw) -> Promoted:
    """`[now, next due or "", more 0|1, buried, [queue, count, ...], [schedule, ...]]`"""
    now, next_due, more, buried, pairs, left_out = raw
    moved = {text_of(queue): int(count) for queue, count in _pairs(pairs)}
    return Promoted(moved, int(buried), time_or_none(next_due), int(now), bool(more), names_of(left_out))


@dataclass(frozen=True, slots=True)
class Renewed:
    """`lost`: owners no longer registered. `cancelled`: texts of entries in flight that somebody asked to cancel."""

    lost: tuple[str, ...]
    cancelled: frozenset[bytes]


parse_renewed = reply(Renewed, names_of, frozenset)


class CancelOrder(NamedTuple):
    """A running task that is to be cancelled, as `cancel` leaves it for the node of its owner. `ready_us` is its
    entry's: another task of the same id is not meant. `kill_after_seconds`: after that its process is killed, None for
    never."""

    owner: str
    task_id: str
    ready_us: int
    kill_after_seconds: float | None


def parse_cancel_order(raw: bytes) -> CancelOrder:
    """`MILLISECONDS-or-- ID READY OWNER`. Raises ValueError for anything else."""
    kill_after, task_id, ready, owner = text_of(raw).split(" ", 3)
    return CancelOrder(owner, task_id, int(ready), None if kill_after == "-" else int(kill_after) / 1000)


@dataclass(frozen=True, slots=True)
class Retired:
    """`alive`: the lease had not run out after all, nothing was done. `settled`: how many of the given
    outcomes counted. `requeued`: entries as they now stand in their lanes. `dead`: entries set aside. `stale`: texts of
    outcomes that did not count."""

    alive: bool
    settled: int
    requeued: tuple[Entry, ...]
    dead: tuple[Entry, ...]
    stale: tuple[bytes, ...] = ()


parse_retired = reply(Retired, lambda word: word == b"alive", int, _entries, _entries, tuple)


@dataclass(frozen=True, slots=True)
class Swept:
    """`rescues`: doorbells rung for entries for which nobody had rung. `expired`: owners whose lease ran
    out. `grace_until_us`: before this Redis time nobody may be retired as expired. `next_due_us`: the
    earliest due time of the delayed set, or None. `walks`: whether this poller is the one that walks for the
    fleet. `untold`: how many items of the delayed set nobody adopted yet. `next_schedule_us`: when a schedule is to be
    looked at, or None. `undeclared`: schedules that no node declares any more. `watched`: the keys in which new
    work appears; empty if there are too many. `is_quiet`: none of these keys exists, and there is nothing else to do
    until one of them does, or until `lease_ends_us`, when the first lease may expire, or None."""

    now_us: int
    rescues: int
    grace_until_us: int
    expired: tuple[str, ...]
    next_due_us: int | None
    walks: bool = False
    untold: int = 0
    next_schedule_us: int | None = None
    undeclared: tuple[str, ...] = ()
    watched: tuple[str, ...] = ()
    is_quiet: bool = False
    lease_ends_us: int | None = None


parse_swept = reply(
    Swept, int, int, int, names_of, time_or_none, bool, int, time_or_none, names_of, names_of, bool, time_or_none
)


@dataclass(frozen=True, slots=True)
class AdoptedScheduled:
    """How many items became tasks; queue and reason of each that is dead at once."""

    adopted: int
    dead: tuple[tuple[str, str], ...]


def pairs_of_texts(raw: Raw) -> tuple[tuple[str, str], ...]:
    """A list of texts as pairs."""
    return tuple((text_of(queue), text_of(reason)) for queue, reason in _pairs(raw))


parse_adopted_scheduled = reply(AdoptedScheduled, int, pairs_of_texts)


class RestoreWord(StrEnum):
    """What became of a task that stood nowhere: it is back in its lane, it had been cancelled and is ended, it is dead
    as nothing says which lane is its own; or it is not there, or stands somewhere after all."""

    RESTORED = "restored"
    ENDED = "ended"
    DEAD = "dead"
    PLACED = "placed"


parse_restored = words_of(RestoreWord)


class CancelWord(StrEnum):
    """What a cancel found: it waited and is ended, it runs and will be told, it is dead, or it is unknown."""

    CANCELLED = "cancelled"
    RUNNING = "running"
    DEAD = "dead"
    UNKNOWN = "unknown"


parse_cancel = word_of(CancelWord)


@dataclass(frozen=True, slots=True)
class Bounded:
    """How many things a bounded call dealt with, and whether there are more: then call again."""

    count: int
    more: bool


parse_bounded = reply(Bounded, int, bool)


@dataclass(frozen=True, slots=True)
class Attended:
    """What a consumer is told. `registered`: whether it still is; if not, the rest is empty. `cancelled`: texts
    of entries it holds that somebody asked to cancel. `shares`: how the fleet's masters serve its queues; plain ones
    where none does."""

    registered: bool
    cancelled: frozenset[bytes]
    shares: tuple[QueueShare, ...]


class ClassicSource(NamedTuple):
    """A key to take from. `queue`: where its items go, "" where each says itself. `task`: what each item is the one
    argument of, "" where each says itself."""

    key: str
    queue: str = ""
    task: str = ""


class FromSource(NamedTuple):
    """What one call took from a source, what it left there, and what is wrong with the source ("": nothing)."""

    taken: int
    left: int
    fault: str


@dataclass(frozen=True, slots=True)
class AdoptedClassic:
    """What was taken from sources, in their order. `on_duty`: whether this poller is the one that listens for the
    fleet. `next_due_us`: of what waits in sorted sets. `more`: there is more to take now. `dead`: queue and reason of
    each item that is dead at once."""

    now_us: int
    on_duty: bool
    next_due_us: int | None
    more: bool
    sources: tuple[FromSource, ...]
    dead: tuple[tuple[str, str], ...]


def _of_sources(raw: Raw) -> tuple[FromSource, ...]:
    thirds = zip(raw[::3], raw[1::3], raw[2::3], strict=True)
    return tuple(FromSource(int(taken), int(left), text_of(fault)) for taken, left, fault in thirds)


parse_adopted_classic = reply(AdoptedClassic, int, bool, time_or_none, bool, _of_sources, pairs_of_texts)
