"""The round trip of a worker: what it sends, what it claims, when a task with a rate may start, and the order
of the next claims, as the script `explain` returns it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple

from rota.protocol.command import Raw, reply, word_of
from rota.protocol.entry import Entry, parse_entry
from rota.protocol.tiers import NO_LIMITS
from rota.protocol.wire import NOTHING, Packed, shown, text_of


class RateAsked(NamedTuple):
    """Whether the task of this entry may start by now. `name`: whose starts are counted. `latest_us`: when it may start
    at last by Redis time, None for whenever."""

    entry: bytes
    name: str
    interval_us: int
    burst: int
    latest_us: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """The arguments of one turn: `held` ids claimed before and not settled, `tokens` queues whose
    doorbell this worker emptied since its last turn, `settlements` packed by `outcome.join_settlements`,
    `limits` of queues that have one of their own, packed by `pack_limits`. `plain`: of what has some, the
    `outcome.plain_lines` in place of its settlement.
    `held` None: all claims were answered, so there is nothing held to be told of. `picks`: how often a queue is chosen;
    with more than one each takes one entry, as so many turns would. `alone`: that of the answer before, the entry for
    which this worker empties its hands; then it names what it holds. `claim_by_us`: from this Redis time on nothing is
    claimed, and `more` is the answer; 0 for none, and where what is held is named."""

    limit: int
    held: Sequence[str] | None = ()
    tokens: Sequence[str] = ()
    settlements: Packed = NOTHING
    limits: Packed = NO_LIMITS
    plain: Sequence[bytes] = ()
    picks: int = 1
    alone: bytes = b""
    claim_by_us: int = 0


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


parse_throttled = reply(Throttled, word_of(ThrottleWord), int)

DEFAULT_CLAIMS = 10
MOST_CLAIMS = 1000
NOBODY = "explain:0:0"
"""The owner for which claims are explained: no life has the number 0."""


class EntryInOrder(NamedTuple):
    """An entry that is claimed, and the name of its task, "" when none can be read."""

    entry: Entry
    name: str


class QueueInOrder(NamedTuple):
    """A queue of a tier, before the claims and after them.

    `cost`: of one entry, in virtual time. `entries`, `running` and `time` (its virtual time, None when it was never
    served) are from before the first claim. `left` are its entries behind the last one; `is_open`: nothing keeps it
    shut; `wait_us`: how long its rate limit holds the next one back, 0 when it does not. `closed`: its
    `condition` keeps it so, `opens_us`: until then, 0 when that is not known; `fault`: what is wrong with that one.
    """

    queue: str
    tier: int
    cost: int
    cap: int
    interval_us: int
    entries: int
    running: int
    time: int | None
    left: int
    is_open: bool
    wait_us: int
    paused: bool
    condition: str
    closed: bool
    opens_us: int
    fault: str


@dataclass(frozen=True, slots=True)
class ClaimOrder:
    """The next claims. `is_whole`: they are as many as were asked for, or all there are."""

    now_us: int
    is_whole: bool
    claims: tuple[EntryInOrder, ...]
    queues: tuple[QueueInOrder, ...]


def _number(raw: Raw) -> int:
    """What stands where a number should; somebody else's is none."""
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
