"""What the transitions return, as values: the reply side of the store. `views` has that of the read-only scripts.

Scripts return words, numbers and lists of bytes, most in the order of the fields that they become. A reply of another
shape is a bug on our side, or no answer of ours. It surfaces as an error of its parser, and callers see it as one of
the server: see `rota.server.server_errors.read_reply`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from rota.protocol.entry import Entry, parse_entry
from rota.protocol.wire import text_of

T = TypeVar("T")

Raw = Any  # bytes | int | None | list of these, as hiredis reads them


def reply(make: Callable[..., T], *parts: Callable[[Raw], Any]) -> Callable[[Raw], T]:
    """The parser of a list that has one item for each field of a value, read by these in their order."""

    def parse(raw: Raw) -> T:
        return make(*[part(item) for part, item in zip(parts, raw, strict=True)])

    return parse


def names_of(raw: Sequence[Raw]) -> tuple[str, ...]:
    """A list of names."""
    return tuple(map(text_of, raw))


def _entries(raw: Sequence[Raw]) -> tuple[Entry, ...]:
    return tuple(map(parse_entry, raw))


def time_or_none(raw: Raw) -> int | None:
    """Microseconds, or "" for no time."""
    return int(raw) if raw else None


def _pairs(raw: Sequence[Raw]) -> Iterable[tuple[Raw, Raw]]:
    return zip(raw[::2], raw[1::2], strict=True)


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of one enqueued item.

    `duplicate`: the id is live, the first one stays. `holder`: the id of the task that holds the unique
    key, else "". `unserved`: accepted, though no running master serves the queue. `unseen`: accepted, though there was
    never a fleet in this namespace.
    """

    duplicate: bool = False
    holder: str = ""
    unserved: bool = False
    unseen: bool = False


_ACCEPTED = Enqueued()  # nearly every answer
_ENQUEUED = {
    "ok": _ACCEPTED,
    "unserved": Enqueued(unserved=True),
    "unseen": Enqueued(unseen=True),
    "duplicate": Enqueued(duplicate=True),
}


def parse_enqueued(raw: Raw) -> list[Enqueued]:
    """One word an item: `ok`, `unserved`, `unseen`, `duplicate` or `held ID`."""
    return [_ACCEPTED if word == b"ok" else _parse_enqueued_word(text_of(word)) for word in raw]


def _parse_enqueued_word(text: str) -> Enqueued:
    word, _, holder = text.partition(" ")
    if word == "held":
        return Enqueued(duplicate=True, holder=holder)
    if word not in _ENQUEUED:
        raise ValueError(f"enqueue answered {text!r}")
    return _ENQUEUED[word]


class TurnWord(StrEnum):
    """`ok`: here is what you hold now (perhaps nothing). `plenty`: this, and so much is left that you may claim ahead.
    `again`: entries you hold and did not name. `lost`: you are no longer registered. `more`: work was bounded, or the
    turn came too late to claim: call again at once with the same tokens. `alone`: an entry that you hold, or that is
    next, has to run alone: listen at no doorbell, and ask again when a task of yours has ended."""

    OK = "ok"
    PLENTY = "plenty"
    AGAIN = "again"
    LOST = "lost"
    MORE = "more"
    ALONE = "alone"


class Claim(NamedTuple):
    """An entry now held, with its task's body."""

    entry: Entry
    body: bytes


class TurnReply(NamedTuple):
    """What a turn returns.

    `now_us`: Redis time in microseconds. `wait_us`: how long until a rate limit lets the next entry through, 0 when
    none holds one back, or all picks were used. `stale`: texts of settled entries that were no longer held.
    `dropped`: entries ended at the claim because they had been cancelled while they waited. `alone`: the entry that
    has to run alone, for the next turn to name.
    """

    word: TurnWord
    now_us: int
    wait_us: int
    stale: tuple[bytes, ...]
    claims: tuple[Claim, ...]
    dropped: tuple[Entry, ...]
    alone: bytes = b""


_TURN_WORDS: Final = {word.value.encode(): word for word in TurnWord}


def parse_turn(raw: Raw) -> TurnReply:
    """`[word, now, wait, [stale...], [entry, body, ...], [dropped entry...]]`, and behind these the entry that
    has to run alone, if any."""
    word, now, wait, stale, pairs, dropped, *alone = raw
    claims = tuple(map(_claim_of, zip(map(parse_entry, pairs[::2]), pairs[1::2], strict=True)))
    ended = tuple(map(parse_entry, dropped))
    return TurnReply(_TURN_WORDS[word], int(now), int(wait), tuple(stale), claims, ended, *alone)


_claim_of: Final = partial(tuple.__new__, Claim)  # as with entries: a claim brings a hundred


class ThrottleWord(StrEnum):
    """`start`: it may. `throttled`: it is out of its owner's hands until its turn comes. `late`: that would be too late
    for it. `gone`: its owner does not hold it, or it was cancelled."""

    START = "start"
    THROTTLED = "throttled"
    LATE = "late"
    GONE = "gone"


class Throttled(NamedTuple):
    """What a task with a rate of its own is to do. `us`: in how many microseconds it may start, or until when (Redis
    time) it is delayed; else 0."""

    word: ThrottleWord
    us: int


parse_throttled = reply(Throttled, lambda word: ThrottleWord(text_of(word)), int)


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


class AnnounceReply(NamedTuple):
    """What a master learns at its heartbeat: how many `nodes` are alive, and whether queues may be closed to claims."""

    nodes: int
    any_closed: bool


parse_announce = reply(AnnounceReply, int, bool)


class CancelOrder(NamedTuple):
    """A running task that is to be cancelled, as `cancel` leaves it for the node of its owner. `ready_us` is its
    entry's: another task of the same id is not meant. `kill_after_seconds`: after that its process is killed, None for
    never."""

    owner: str
    task_id: str
    ready_us: int
    kill_after_seconds: float | None


def parse_order(raw: bytes) -> CancelOrder:
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


def parse_restored(raw: Raw) -> list[RestoreWord]:
    """One word an id."""
    return [RestoreWord(text_of(word)) for word in raw]


class CancelWord(StrEnum):
    """What a cancel found: it waited and is ended, it runs and will be told, it is dead, or it is unknown."""

    CANCELLED = "cancelled"
    RUNNING = "running"
    DEAD = "dead"
    UNKNOWN = "unknown"


def parse_cancel(raw: Raw) -> CancelWord:
    """One word."""
    return CancelWord(text_of(raw))


@dataclass(frozen=True, slots=True)
class Bounded:
    """How many things a bounded call dealt with, and whether there are more: then call again."""

    count: int
    more: bool


parse_bounded = reply(Bounded, int, bool)
