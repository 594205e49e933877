"""The arguments and the reply of a turn, in which a worker settles and claims tasks. This module also defines the
request to start a task with a rate limit, and the order of the next claims, which the script `explain` returns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple

from rota.protocol.entry import Entry, parse_entry
from rota.protocol.scripts import Raw, reply, status_of
from rota.protocol.tiers import NO_LIMITS
from rota.protocol.wire import NOTHING, Packed, shown, text_of


class RateRequest(NamedTuple):
    """A request to start a task that has a rate limit."""

    entry: bytes
    name: str  # starts with the same name are counted together
    interval_us: int  # microseconds from one start to the next
    burst: int  # number of tasks that may start at once after a time without starts
    latest_us: int | None = None  # the latest time at which the task may start, by Redis time; None for any time


@dataclass(frozen=True, slots=True)
class Turn:
    """The arguments of one turn."""

    limit: int  # maximum number of entries to claim; 0 to settle tasks only
    # Ids of the tasks that the worker holds. None if the worker has received the reply to each claim, so that the
    # script need not compare `held` with the list in Redis.
    held: Sequence[str] | None = ()
    tokens: Sequence[str] = ()  # queues from whose doorbells this worker has taken a token since its last turn
    settlements: Packed = NOTHING  # packed by `outcome.join_settlements`
    limits: Packed = NO_LIMITS  # limits that replace `limit` for certain queues, packed by `pack_limits`
    # The results of `outcome.plain_lines`, for tasks whose outcomes have that short form. They are not in
    # `settlements`.
    plain: Sequence[bytes] = ()
    # How often a queue is chosen. If `picks` is above 1, each pick claims one entry, as if the worker made that many
    # turns.
    picks: int = 1
    # The `quarantined` entry of the last reply. It has to run alone, so this worker first finishes all its other tasks.
    # If `quarantined` is set, `held` must be a list.
    quarantined: bytes = b""
    # If Redis time is later than this, the turn claims nothing, and the reply is `more`. 0 for no such limit. It must
    # be 0 if `held` is a list.
    claim_by_us: int = 0


class TurnStatus(StrEnum):
    """The result of a turn, which shows what the worker should do next."""

    OK = "ok"  # the worker now holds exactly the claims of this reply, if any
    BACKLOGGED = "backlogged"  # like OK, but so many entries are left that the worker should prefetch
    AGAIN = "again"  # the claims are entries that Redis already listed for the worker but that were not in `held`
    LOST = "lost"  # the worker is no longer registered
    # The script has reached a limit, or came too late to claim. The worker should make another turn at once, with the
    # same tokens.
    MORE = "more"
    # An entry that the worker holds, or the entry that is next, has to run alone. The worker must not wait at a
    # doorbell, and must make a turn when one of its tasks has ended.
    QUARANTINE = "quarantine"


class Claim(NamedTuple):
    """An entry that the worker now holds, with the body of its task."""

    entry: Entry
    body: bytes


class TurnReply(NamedTuple):
    """The reply to a turn."""

    status: TurnStatus
    now_us: int  # Redis time in microseconds
    # Microseconds until a rate limit permits the next entry; 0 if no rate limit holds it back, or if every pick has
    # claimed an entry.
    wait_us: int
    stale: tuple[bytes, ...]  # texts of settled entries that the worker did not hold any longer
    claims: tuple[Claim, ...]
    # Entries that ended when they were claimed, because they had been cancelled while they waited.
    dropped: tuple[Entry, ...]
    quarantined: bytes = b""  # the entry that has to run alone, which the next turn has to send


_TURN_STATUSES: Final = {status.value.encode(): status for status in TurnStatus}


def parse_turn(raw: Raw) -> TurnReply:
    """Parse the reply to a turn, with the values of TurnReply: `[status, now, wait, [stale...], [entry, body, ...],
    [dropped entry...]]`. If an entry has to run alone, its text is a seventh item."""
    status, now, wait, stale, pairs, dropped, *quarantined = raw
    claims = tuple(map(_claim_of, zip(map(parse_entry, pairs[::2]), pairs[1::2], strict=True)))
    ended = tuple(map(parse_entry, dropped))
    return TurnReply(_TURN_STATUSES[status], int(now), int(wait), tuple(stale), claims, ended, *quarantined)


# Calling `tuple.__new__` is faster than calling the class; one turn claims up to a hundred entries.
_claim_of: Final = partial(tuple.__new__, Claim)


class ThrottleStatus(StrEnum):
    """Whether a task with a rate limit may start."""

    START = "start"  # the task may start
    THROTTLED = "throttled"  # the task may not start yet; it was delayed, and its owner no longer holds it
    LATE = "late"  # the task must not start, because it could start only after `latest_us`
    GONE = "gone"  # the owner does not hold the task, or the task was cancelled


class Throttled(NamedTuple):
    """The reply to a request to start a task that has a rate limit."""

    status: ThrottleStatus
    # With START, microseconds until the task may start. With THROTTLED, Redis time until which the task is delayed.
    # Otherwise 0.
    us: int


parse_throttled = reply(Throttled, status_of(ThrottleStatus), int)

DEFAULT_CLAIMS = 10
MOST_CLAIMS = 1000
EXPLAIN_OWNER = "explain:0:0"
"""The owner for which `explain` predicts claims. No real owner has the nonce 0."""


class EntryInOrder(NamedTuple):
    """An entry that workers would claim next, with the name of its task ("" if the name cannot be read)."""

    entry: Entry
    name: str


class QueueInOrder(NamedTuple):
    """The state of a queue, before and after the claims that `ClaimOrder` lists."""

    queue: str
    tier: int
    cost: int  # virtual time that one entry takes
    cap: int  # maximum number of entries that run at once in the fleet; 0 for no cap
    interval_us: int  # microseconds from one start to the next; 0 for no rate limit
    entries: int  # number of entries before these claims; `running` and `time` refer to the same moment
    running: int  # number of the queue's entries that run in the fleet
    time: int | None  # the queue's virtual time; None if it was never served
    left: int  # number of entries after the last of these claims
    is_open: bool  # whether nothing prevents claims from the queue
    wait_us: int  # microseconds for which the rate limit holds the next entry back; 0 if it does not
    paused: bool  # whether a person paused the queue
    condition: str  # name of the condition that decides whether the queue is open; "" if it is always open
    closed: bool  # whether `condition` keeps the queue closed
    opens_us: int  # Unix microseconds of the time until which the queue is closed; 0 if not known
    fault: str  # what is wrong with the condition


@dataclass(frozen=True, slots=True)
class ClaimOrder:
    """The claims that workers would make next. `is_whole` is true if `claims` contains as many claims as were
    requested, or all claims that workers would make."""

    now_us: int
    is_whole: bool
    claims: tuple[EntryInOrder, ...]
    queues: tuple[QueueInOrder, ...]


def _number(raw: Raw) -> int:
    """Return a number that was stored in Redis, or 0 if another program has stored something else in its place."""
    return int(raw) if isinstance(raw, int) or raw.isdigit() else 0


def _time(raw: Raw) -> int | None:
    time, _, turn = raw.partition(b" ")
    return int(time) if time.isdigit() and turn.isdigit() else None


def _shown(raw: Raw) -> str:
    return shown(text_of(raw))


_QUEUE: tuple[Callable[[Raw], Any], ...] = (
    text_of,
    *[int] * 5,
    _number,
    _time,
    int,
    bool,
    int,
    bool,
    _shown,
    bool,
    int,
    _shown,
)
_queue = reply(QueueInOrder, *_QUEUE)


def _claims(raw: Sequence[Raw]) -> tuple[EntryInOrder, ...]:
    pairs = zip(raw[::2], raw[1::2], strict=True)
    return tuple(EntryInOrder(parse_entry(text), _shown(name)) for text, name in pairs)


parse_order = reply(ClaimOrder, int, bool, _claims, lambda raw: tuple(map(_queue, raw)))
