"""The round trip of a worker: what the worker sends and claims. Also the starts of tasks with a rate limit, and the
order of the next claims, which the script `explain` returns."""

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
    name: str  # starts are counted under this name
    interval_us: int  # microseconds from one start to the next
    burst: int  # number of starts that may come at once after a pause
    latest_us: int | None = None  # latest start by Redis time; None for any time


@dataclass(frozen=True, slots=True)
class Turn:
    """The arguments of one turn."""

    limit: int  # maximum number of entries to claim; 0 to only settle
    # Ids that were claimed and not settled. None if the worker received all its claims and need not name any.
    held: Sequence[str] | None = ()
    tokens: Sequence[str] = ()  # queues whose doorbells this worker emptied since its last turn
    settlements: Packed = NOTHING  # packed by `outcome.join_settlements`
    limits: Packed = NO_LIMITS  # limits of certain queues, packed by `pack_limits`
    plain: Sequence[bytes] = ()  # `outcome.plain_lines` of tasks that have such lines, instead of their settlements
    # Number of times a queue is chosen. If `picks` is above 1, each pick takes one entry, as that many turns would.
    picks: int = 1
    # `quarantined` of the last reply, which is the entry for which this worker finishes all others. If it is set,
    # `held` names what the worker holds.
    quarantined: bytes = b""
    # From this Redis time on, nothing is claimed, and the reply is `more`. 0 if there is no such time, or if `held` is
    # given.
    claim_by_us: int = 0


class TurnStatus(StrEnum):
    """The status of a turn's reply."""

    OK = "ok"  # the worker now holds exactly these claims, if any
    BACKLOGGED = "backlogged"  # like OK, and enough entries are left for the worker to prefetch
    AGAIN = "again"  # the claims are entries that the worker holds and did not name
    LOST = "lost"  # the worker is no longer registered
    MORE = "more"  # the call reached its bound, or was too late to claim; call again at once with the same tokens
    # An entry that the worker holds, or the next entry, has to run alone. The worker must not wait at a doorbell, and
    # must call again when one of its tasks has ended.
    QUARANTINE = "quarantine"


class Claim(NamedTuple):
    """An entry that the worker now holds, with the body of its task."""

    entry: Entry
    body: bytes


class TurnReply(NamedTuple):
    """The reply to a turn."""

    status: TurnStatus
    now_us: int  # Redis time in microseconds
    wait_us: int  # time until a rate limit permits the next entry; 0 if it holds none back or all picks were used
    stale: tuple[bytes, ...]  # texts of settled entries that the worker no longer held
    claims: tuple[Claim, ...]
    dropped: tuple[Entry, ...]  # entries that ended at the claim because they had been cancelled while they waited
    quarantined: bytes = b""  # the entry that has to run alone, for the next turn to name


_TURN_STATUSES: Final = {status.value.encode(): status for status in TurnStatus}


def parse_turn(raw: Raw) -> TurnReply:
    """Parse `[status, now, wait, [stale...], [entry, body, ...], [dropped entry...]]`. If an entry has to run alone,
    its text follows."""
    status, now, wait, stale, pairs, dropped, *quarantined = raw
    claims = tuple(map(_claim_of, zip(map(parse_entry, pairs[::2]), pairs[1::2], strict=True)))
    ended = tuple(map(parse_entry, dropped))
    return TurnReply(_TURN_STATUSES[status], int(now), int(wait), tuple(stale), claims, ended, *quarantined)


_claim_of: Final = partial(tuple.__new__, Claim)  # faster, as for entries; one turn claims up to a hundred


class ThrottleStatus(StrEnum):
    """The reply to a request to start."""

    START = "start"  # the task may start
    THROTTLED = "throttled"  # the task is delayed, and its owner no longer holds it
    LATE = "late"  # the task would start too late
    GONE = "gone"  # the owner does not hold the task, or the task was cancelled


class Throttled(NamedTuple):
    """The reply to a request to start a task that has a rate limit."""

    status: ThrottleStatus
    us: int  # START: time until the task may start; THROTTLED: Redis time until which it is delayed; otherwise 0


parse_throttled = reply(Throttled, status_of(ThrottleStatus), int)

DEFAULT_CLAIMS = 10
MOST_CLAIMS = 1000
EXPLAIN_OWNER = "explain:0:0"
"""The owner for which claims are explained. No owner has the life 0."""


class EntryInOrder(NamedTuple):
    """An entry that is claimed, and the name of its task ("" if the name cannot be read)."""

    entry: Entry
    name: str


class QueueInOrder(NamedTuple):
    """A queue of a tier, before and after the claims."""

    queue: str
    tier: int
    cost: int  # virtual time of one entry
    cap: int  # maximum number of entries that run at once in the fleet; 0 for no cap
    interval_us: int  # microseconds from one start to the next; 0 for no rate limit
    entries: int  # number of entries before the first claim, like `running` and `time`
    running: int  # number of entries that run in the fleet
    time: int | None  # the queue's virtual time; None if it was never served
    left: int  # number of entries left after the last claim
    is_open: bool  # whether nothing keeps it closed
    wait_us: int  # time for which the rate limit holds the next entry back; 0 if it does not
    paused: bool  # whether a person paused the queue
    condition: str  # name of the condition that decides whether the queue is open; "" if it is always open
    closed: bool  # whether `condition` keeps the queue closed
    opens_us: int  # the time until which the queue is closed; 0 if not known
    fault: str  # what is wrong with the condition


@dataclass(frozen=True, slots=True)
class ClaimOrder:
    """The next claims. `is_whole` is true if there are as many as requested, or all that exist."""

    now_us: int
    is_whole: bool
    claims: tuple[EntryInOrder, ...]
    queues: tuple[QueueInOrder, ...]


def _number(raw: Raw) -> int:
    """Return the number, or 0 if another program wrote something else there."""
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
