"""What a worker has claimed and owes an answer for, and how much it claims next. Pure.

Outcomes stay until an answer has named them, whatever goes wrong in between; an outcome sent twice finds nothing the
second time, one forgotten is a task run twice. Tokens of doorbells stay until an answer other than `more`: only such an
answer has passed them on.

`InFlight` are the books of a worker that runs one task at a time, `Ledger` those of one that runs many. `Prefetch` says
how many tasks to claim at once, and when the next turn is sent, by what tasks took recently.
"""

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from rota.durations import NANOSECONDS
from rota.protocol.entry import Entry
from rota.protocol.outcome import Release, Settlement, join_settlements, pack_settlement, plain_lines
from rota.protocol.tiers import NO_LIMITS, pack_limits
from rota.protocol.turns import Claim, Turn, TurnReply, TurnWord
from rota.protocol.wire import Packed
from rota.worker.redis_times import Anchor

CLAIM_NS: Final = 5_000_000  # what a claim is worth, and for how long its entries may be started without asking
# So old may a claim be when the next one is made: the master recalls nothing of one that is younger than 25 ms.
UNRECALLED_US: Final = 20_000
UNRECALLED_NS: Final = UNRECALLED_US * 1000
# However sure a worker is of what it holds, so often it says so: a server that lost writes, or took up a turn after
# the worker had given that up, may hold more for it, for ever.
NAMED_EVERY_NS: Final = NANOSECONDS
_ALWAYS: Final = 1 << 62
_NO_ANCHOR: Final = Anchor(0, 0, 0)


class Claimed(NamedTuple):
    """An entry to be started, and the reading of Redis time that came with its claim.

    `unstarted`: how many come after it; at least 1 while a turn is under way that may bring more. `start_by_ns`
    (CLOCK_BOOTTIME): later it may have been given back by the master, so Redis has to be asked first.
    """

    entry: Entry
    body: bytes
    anchor: Anchor
    unstarted: int
    start_by_ns: int


_claimed: Final = partial(tuple.__new__, Claimed)  # as entries are


@dataclass(slots=True)
class _Told:
    """Outcomes that are told together, `plain` those that are done and of which there is no more to say."""

    finished: list[bytes] = field(default_factory=list)
    plain: list[bytes] = field(default_factory=list)

    def take(self, later: "_Told") -> None:
        """Take over what ended later."""
        self.finished += later.finished
        self.plain += later.plain
        later.clear()

    def clear(self) -> None:
        """There are none any more."""
        self.finished.clear()
        self.plain.clear()


@dataclass(slots=True, kw_only=True)
class Unanswered:
    """What no answer has named. `tokens`: of doorbells. `asked`: something may be held that is not on these books, as
    work was asked for and no answer has come, or as something was forgotten. Tasks may go on to end while a turn is
    under way, so the outcomes that were sent and those that came later are kept apart."""

    tokens: list[str] = field(default_factory=list)
    asked: bool = False
    _sent: _Told = field(default_factory=_Told)
    _later: _Told = field(default_factory=_Told)

    @property
    def has_outcomes(self) -> bool:
        """Whether there are outcomes to send to Redis."""
        sent, later = self._sent, self._later
        return bool(later.plain or later.finished or sent.plain or sent.finished)

    @property
    def unconfirmed(self) -> bool:
        """Whether there are outcomes or tokens that no answer has named."""
        return bool(self.has_outcomes or self.tokens)

    def finish(self, settlement: Settlement) -> bytes:
        """Keep an outcome until an answer names it; returns it packed."""
        packed = pack_settlement(settlement)
        lines = plain_lines(settlement)
        if lines:
            self._later.plain.append(lines)
        else:
            self._later.finished.append(packed)
        return packed

    def tell(self) -> tuple[Packed, tuple[bytes, ...]]:
        """All of them, for the turn to make now: settlements, and lines of plain ones."""
        self._sent.take(self._later)
        return join_settlements(self._sent.finished), tuple(self._sent.plain)

    def named(self) -> None:
        """An answer to that turn has come, which has named them."""
        self._sent.clear()


@dataclass(slots=True)
class InFlight(Unanswered):
    """The books between two answers of a worker that runs one task at a time."""

    waiting: deque[Claim] = field(default_factory=deque)
    _given_back: set[bytes] = field(default_factory=set)
    _anchor: Anchor = _NO_ANCHOR
    _start_by_ns: int = 0

    def is_overrun(self, at_ns: int) -> bool:
        """Whether entries wait that may not be started any more without asking."""
        return bool(self.waiting) and at_ns > self._start_by_ns

    def turn(self, limit: int, limits: Packed = NO_LIMITS) -> Turn:
        """The turn to make now; the same again until it is answered."""
        self.asked |= limit > 0
        held = tuple(claim.entry.id for claim in self.waiting)
        settlements, plain = self.tell()
        return Turn(limit, held, tuple(self.tokens), settlements, limits, plain)

    def pipelined(self, limit: int, limits: Packed) -> Turn:
        """The turn to send now, whose answer is read when all that waits was run. Nothing else is under way."""
        self.asked = True
        settlements, plain = self.tell()
        claim_by_us = self._anchor.now_us + UNRECALLED_US  # Redis read that time before the claim arrived
        return Turn(limit, None, (), settlements, limits, plain, claim_by_us=claim_by_us)

    def answered(self, reply: TurnReply, anchor: Anchor, ran_until_ns: int = 0) -> None:
        """An answer has come: what it named is off the books, what it brought is on them. `ran_until_ns`: of a
        pipelined turn, when the last task that was run meanwhile had ended."""
        self.asked = ran_until_ns > self._anchor.received_ns + UNRECALLED_NS
        self.named()
        self._given_back.clear()
        if reply.word is not TurnWord.MORE:
            self.tokens.clear()
        if self.asked:
            return  # what came may have been recalled since: as if it were lost, the next turn asks what is held
        if reply.claims and not self.waiting:
            # The master recalls only entries behind a task that runs, so the first of a claim may start at any time.
            self._anchor, self._start_by_ns = anchor, _ALWAYS
        self.waiting.extend(reply.claims)

    def next(self) -> Claimed:
        """Take the entry to be started next. Raises IndexError when none waits."""
        entry, body = self.waiting.popleft()
        anchor, start_by_ns = self._anchor, self._start_by_ns
        self._start_by_ns = anchor.received_ns + CLAIM_NS
        return _claimed((entry, body, anchor, len(self.waiting) or int(self.asked), start_by_ns))

    def put_back(self, claimed: Claimed) -> None:
        """It was not started after all."""
        self.waiting.appendleft(Claim(claimed.entry, claimed.body))

    def give_back(self) -> list[Settlement]:
        """Turn what was not started into releases; the last claimed first, so that their order is kept."""
        released = [Settlement(claim.entry, Release()) for claim in reversed(self.waiting)]
        self.waiting.clear()
        self._given_back.update(settlement.entry.text for settlement in released)
        return released

    def was_given_back(self, text: bytes) -> bool:
        """Whether the entry is among those given back: that the master had done so before is no surprise."""
        return text in self._given_back


@dataclass(slots=True)
class Ledger(Unanswered):
    """The books of `places` tasks at once. `alone`: for which entry this worker empties its hands."""

    places: int
    alone: bytes = b""
    _held: dict[int, str] = field(default_factory=dict)
    _free: list[int] = field(init=False)
    _sent_tokens: int = 0
    _named_ns: int | None = None
    _forgot: bool = False

    def __post_init__(self) -> None:
        self._free = list(reversed(range(self.places)))  # the first places first: those never used take no memory

    @property
    def running(self) -> int:
        """How many places are taken."""
        return len(self._held)

    @property
    def free(self) -> int:
        """How many are not."""
        return len(self._free)

    def turn(self, picks: int, at_ns: int) -> Turn:
        """The turn to make now, for so many tasks. What is held is named only when it may not be known to be just that,
        as the script compares it with the list."""
        held = tuple(self._held.values()) if self._names_held(at_ns) else None
        self.asked |= picks > 0
        self._forgot = False
        self._sent_tokens = len(self.tokens)
        settlements, plain = self.tell()
        return Turn(
            min(picks, 1),
            held,
            tuple(self.tokens),
            settlements,
            plain=plain,
            picks=max(picks, 1),
            alone=self.alone,
        )

    def answered(self, reply: TurnReply) -> None:
        """An answer to that turn has come."""
        self.asked = self._forgot  # what was forgotten since the turn was made, the answer tells nothing of
        self.alone = reply.alone
        if reply.word is not TurnWord.MORE:
            del self.tokens[: self._sent_tokens]
        self.named()

    def seat(self, task_id: str) -> int:
        """Give a claimed task a place; returns that."""
        place = self._free.pop()
        self._held[place] = task_id
        return place

    def leave(self, place: int) -> None:
        """The task in this place has ended, or was not started and is another's now."""
        del self._held[place]
        self._free.append(place)

    def forget(self, place: int) -> None:
        """It was not started after all, and is still held: an answer will bring it again."""
        self.leave(place)
        self.asked = self._forgot = True

    def _names_held(self, at_ns: int) -> bool:
        is_due = self._named_ns is None or at_ns - self._named_ns >= NAMED_EVERY_NS
        if is_due or self.asked or self.alone:
            self._named_ns = at_ns
            return True
        return False


PIPELINED_NS: Final = 1_500_000  # what those tasks of a claim are worth behind which the next turn does not wait
AHEAD_NS: Final = 15_000_000  # where there is plenty, how long the one may take that it does not wait behind
MOST: Final = 128  # by now the round trip's share of a task hardly falls; what dies with a worker stays small
_FALL: Final = 0.25  # of the way down to what the last claim took
_LONGEST_SHARE: Final = 1 / 16
_GROWTH: Final = 4


@dataclass(slots=True)
class ClaimTimes:
    """What the tasks of a claim that were run so far took; `at_ns` is when the last one ended. `queue`: its pattern, if
    it has one."""

    queue: str
    at_ns: int
    tasks: int = 0
    total_ns: int = 0
    longest_ns: int = 0

    def ended(self, at_ns: int) -> None:
        """Count a task that ended."""
        took_ns = at_ns - self.at_ns
        self.at_ns = at_ns
        self.tasks += 1
        self.total_ns += took_ns
        if took_ns > self.longest_ns:  # noqa: PLR1730 - as in `Histogram.observe`
            self.longest_ns = took_ns


@dataclass(slots=True)
class _Pace:
    """What tasks of a queue take, in nanoseconds, and how many to claim next."""

    mean_ns: float = 0.0
    longest_ns: float = 0.0
    limit: int = 1

    def follow(self, batch: ClaimTimes) -> None:
        self.mean_ns = _followed(self.mean_ns, batch.total_ns / batch.tasks)
        self.longest_ns = _followed(self.longest_ns, batch.longest_ns)
        worth_ns = max(self.mean_ns, self.longest_ns * _LONGEST_SHARE, 1.0)
        self.limit = max(1, min(int(CLAIM_NS / worth_ns), _GROWTH * self.limit, MOST))


def _followed(known: float, seen: float) -> float:
    return seen if seen > known else known + (seen - known) * _FALL


class Prefetch:
    """How many tasks of each queue to claim at once; of the queues of a pattern alike. `limits`, for a turn: the queues
    and patterns of which several may be claimed.

    A claim should be worth about 5 ms of work: short tasks come many at a time, so that the round trip and the script
    are shared among them; a task of 5 ms or longer comes alone. What a task of the queue takes is known from the recent
    claims: their mean, or a share of the longest task, whichever is more, so that of a queue with a long task now and
    then less is claimed than its mean allows. Both rise at once and fall by a share a claim. The number grows at most
    fourfold from one claim to the next, since the first tasks say little.
    """

    def __init__(self) -> None:
        self.limits: Packed = NO_LIMITS
        self._paces: dict[str, _Pace] = {}

    def left_at_turn(self, queue: str, tasks: int, *, is_plenty: bool) -> int:
        """How many of so many tasks of a claim are still to be run when the next turn is sent, whose answer has come
        when they have; 0: it is sent behind them, as where one of them may take so long, or wait so long for a
        processor, that the answer would be late. One alone, behind which others may be idle for what it brings, only
        where there is plenty."""
        pace = self._paces.get(queue)
        if pace is None or pace.longest_ns > AHEAD_NS:
            return 0
        is_short = pace.longest_ns <= CLAIM_NS
        left = min(tasks // 2, int(PIPELINED_NS / max(pace.mean_ns, 1.0))) if is_short else 0
        return left if left > 1 else int(is_plenty)

    def learn(self, batch: ClaimTimes) -> None:
        """Take in what the tasks of a claim took."""
        if not batch.tasks:
            return
        pace = self._paces.setdefault(batch.queue, _Pace())
        before = pace.limit
        pace.follow(batch)
        if pace.limit != before:
            self.limits = pack_limits({name: each.limit for name, each in self._paces.items() if each.limit > 1})
