"""The tasks that a worker holds, the outcomes that Redis has not confirmed yet, and how much to claim next. This module
does no I/O.

Outcomes are kept until a reply confirms them, even if errors occur in between. If an outcome is sent twice, the second
one changes nothing. But if an outcome is lost, its task runs twice. Doorbell tokens are kept until a reply other than
`more` arrives, because only such a reply shows that Redis has passed the tokens on to other workers.

`InFlight` is the record of a worker that runs one task at a time. `Ledger` is the record of a worker that runs many.
`Prefetch` decides from recent run times how many tasks to claim at once, and when to send the next turn.
"""

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from rota.durations import NANOSECONDS
from rota.protocol.entry import Entry
from rota.protocol.outcome import Release, Settlement, join_settlements, pack_settlement, plain_lines
from rota.protocol.tiers import NO_LIMITS, pack_limits
from rota.protocol.turns import Claim, Turn, TurnReply, TurnStatus
from rota.protocol.wire import Packed
from rota.worker.redis_times import Anchor

# The tasks of a claim should take about this long together. Entries of a claim that is older than this may only be
# started after a turn.
CLAIM_NS: Final = 5_000_000
# A pipelined turn must claim before the previous claim is this old, and the worker takes the new claims from the reply
# only if the tasks of the previous claim have ended by that age. The master takes nothing back from a claim that is
# younger than 25 ms.
SAFE_CLAIM_AGE_US: Final = 20_000
SAFE_CLAIM_AGE_NS: Final = SAFE_CLAIM_AGE_US * 1000
# A worker lists its held tasks at least this often, even if nothing suggests that Redis holds others for it. Otherwise,
# if the server lost writes, or processed a turn that the worker had given up on, it would hold tasks forever that this
# worker does not know.
LIST_HELD_EVERY_NS: Final = NANOSECONDS
_ALWAYS: Final = 1 << 62
_NO_ANCHOR: Final = Anchor(0, 0, 0)


class Claimed(NamedTuple):
    """A claimed entry that is about to be started, with the reading of Redis time that came with the claim."""

    entry: Entry
    body: bytes
    anchor: Anchor
    # Number of claimed entries that wait behind this one. It is at least 1 while a turn that may return more entries is
    # under way.
    unstarted: int
    # Time of CLOCK_BOOTTIME. After this time, the worker queries Redis before it starts the task, because the master
    # may have given the entry back.
    start_by_ns: int


_claimed: Final = partial(tuple.__new__, Claimed)  # calling `tuple.__new__` is faster than calling the class


@dataclass(slots=True)
class _Outcomes:
    """Outcomes that are sent together. `plain` holds the successes that need no further fields, and `finished` all
    other outcomes."""

    finished: list[bytes] = field(default_factory=list)
    plain: list[bytes] = field(default_factory=list)

    def take(self, later: "_Outcomes") -> None:
        """Move all outcomes of a later batch into this one."""
        self.finished += later.finished
        self.plain += later.plain
        later.clear()

    def clear(self) -> None:
        """Remove all outcomes."""
        self.finished.clear()
        self.plain.clear()


@dataclass(slots=True, kw_only=True)
class Unconfirmed:
    """The outcomes and doorbell tokens that no reply has confirmed yet.

    Tasks may end while a turn is under way. So the outcomes that the turn sent are kept apart from later ones.
    """

    tokens: list[str] = field(default_factory=list)  # doorbell tokens
    # Whether Redis may hold tasks for this worker that are not recorded here, because a claim has had no reply or
    # because a task was forgotten.
    may_hold_more: bool = False
    _sent: _Outcomes = field(default_factory=_Outcomes)  # sent by a turn that has had no reply yet
    _later: _Outcomes = field(default_factory=_Outcomes)  # not sent yet

    @property
    def has_outcomes(self) -> bool:
        """Whether there are outcomes to send to Redis."""
        sent = self._sent
        later = self._later
        return bool(later.plain or later.finished or sent.plain or sent.finished)

    @property
    def has_unconfirmed(self) -> bool:
        """Whether there are outcomes or tokens that no reply has confirmed."""
        return bool(self.has_outcomes or self.tokens)

    def finish(self, settlement: Settlement) -> bytes:
        """Store an outcome until a reply confirms it. Returns the outcome in packed form."""
        packed = pack_settlement(settlement)
        lines = plain_lines(settlement)
        if lines:
            self._later.plain.append(lines)
        else:
            self._later.finished.append(packed)
        return packed

    def outcomes_to_send(self) -> tuple[Packed, tuple[bytes, ...]]:
        """Return all outcomes for the next turn: the packed settlements, and the lines of the plain outcomes."""
        self._sent.take(self._later)
        return join_settlements(self._sent.finished), tuple(self._sent.plain)

    def outcomes_confirmed(self) -> None:
        """Remove the outcomes that the last turn sent, because its reply has arrived."""
        self._sent.clear()


@dataclass(slots=True)
class InFlight(Unconfirmed):
    """The tasks and outcomes of a worker that runs one task at a time."""

    waiting: deque[Claim] = field(default_factory=deque)  # claimed tasks that have not started
    _given_back: set[bytes] = field(default_factory=set)  # entries that were given back since the last reply
    _anchor: Anchor = _NO_ANCHOR  # the reading of Redis time that came with the last claim
    _start_by_ns: int = 0  # deadline for the next start (CLOCK_BOOTTIME)

    def is_overrun(self, at_ns: int) -> bool:
        """Whether there are waiting entries that were claimed so long ago that the worker has to make a turn before it
        may start them."""
        return bool(self.waiting) and at_ns > self._start_by_ns

    def turn(self, limit: int, limits: Packed = NO_LIMITS) -> Turn:
        """Return the turn to send now. It claims at most `limit` tasks. If there is no reply, the next call returns a
        turn with the same outcomes and tokens."""
        self.may_hold_more |= limit > 0
        held = tuple(claim.entry.id for claim in self.waiting)
        settlements, plain = self.outcomes_to_send()
        return Turn(limit, held, tuple(self.tokens), settlements, limits, plain)

    def pipelined(self, limit: int, limits: Packed) -> Turn:
        """Return a turn that is sent now, but whose reply is read only after all waiting tasks have run. Call this only
        if no other turn is under way."""
        self.may_hold_more = True
        settlements, plain = self.outcomes_to_send()
        # Redis read `now_us` before the reply with the claim arrived. So this limit is too early rather than too late,
        # which is safe.
        claim_by_us = self._anchor.now_us + SAFE_CLAIM_AGE_US
        return Turn(limit, None, (), settlements, limits, plain, claim_by_us=claim_by_us)

    def take_reply(self, reply: TurnReply, anchor: Anchor, ran_until_ns: int = 0) -> None:
        """Process a reply: remove the outcomes and tokens that it confirms, and add the tasks that it returns. For a
        pipelined turn, `ran_until_ns` is the end of the last task that ran in the meantime."""
        self.may_hold_more = ran_until_ns > self._anchor.received_ns + SAFE_CLAIM_AGE_NS
        self.outcomes_confirmed()
        self._given_back.clear()
        if reply.status is not TurnStatus.MORE:
            self.tokens.clear()
        if self.may_hold_more:
            # The master may have taken back the new claims. The next turn lists the held tasks, and the reply to it
            # returns the tasks that Redis still holds for this worker.
            return
        if reply.claims and not self.waiting:
            # The master takes back only entries behind a running task, so the first entry of a claim may start at any
            # time.
            self._anchor = anchor
            self._start_by_ns = _ALWAYS
        self.waiting.extend(reply.claims)

    def next(self) -> Claimed:
        """Remove and return the entry to start next. Raises IndexError if no entry waits."""
        entry, body = self.waiting.popleft()
        anchor = self._anchor
        start_by_ns = self._start_by_ns
        self._start_by_ns = anchor.received_ns + CLAIM_NS
        return _claimed((entry, body, anchor, len(self.waiting) or int(self.may_hold_more), start_by_ns))

    def put_back(self, claimed: Claimed) -> None:
        """Put an entry that was not started back to the front of the waiting entries."""
        self.waiting.appendleft(Claim(claimed.entry, claimed.body))

    def give_back(self) -> list[Settlement]:
        """Remove the entries that were not started, and return a release for each. The entry that was claimed last
        comes first, so that the queue keeps its order."""
        released = [Settlement(claim.entry, Release()) for claim in reversed(self.waiting)]
        self.waiting.clear()
        self._given_back.update(settlement.entry.text for settlement in released)
        return released

    def was_given_back(self, text: bytes) -> bool:
        """Whether the worker has given back the entry since the last reply. If so, the master may have given it back
        first, which is not an error."""
        return text in self._given_back


@dataclass(slots=True)
class Ledger(Unconfirmed):
    """The tasks and outcomes of a worker that runs up to `concurrency` tasks at once."""

    concurrency: int  # maximum number of tasks that run at once
    # An entry that has to run alone, if there is one. The worker claims no tasks until its other tasks have ended.
    quarantined: bytes = b""
    _held: dict[int, str] = field(default_factory=dict)  # ids of the held tasks, by task index
    _free: list[int] = field(init=False)  # free task indexes
    _sent_tokens: int = 0  # number of tokens in the turn under way
    _listed_ns: int | None = None  # CLOCK_BOOTTIME when a turn last listed the held tasks
    _has_forgotten: bool = False  # whether a task was forgotten after the last turn was made

    def __post_init__(self) -> None:
        # The lowest free index is used first, because parts of the slot that were never used take no memory.
        self._free = list(reversed(range(self.concurrency)))

    @property
    def running(self) -> int:
        """The number of tasks that the worker holds."""
        return len(self._held)

    @property
    def free(self) -> int:
        """The number of further tasks that the worker may claim."""
        return len(self._free)

    def turn(self, picks: int, at_ns: int) -> Turn:
        """Return the turn to send now, which claims up to `picks` tasks.

        If Redis may hold tasks for this worker that the worker does not know of, the turn lists the tasks that it
        knows, and the reply returns the others. At other times a turn has this list only once a second, because the
        script takes time to compare it.
        """
        held = tuple(self._held.values()) if self._lists_held(at_ns) else None
        self.may_hold_more |= picks > 0
        self._has_forgotten = False
        self._sent_tokens = len(self.tokens)
        settlements, plain = self.outcomes_to_send()
        return Turn(
            min(picks, 1),
            held,
            tuple(self.tokens),
            settlements,
            plain=plain,
            picks=max(picks, 1),
            quarantined=self.quarantined,
        )

    def take_reply(self, reply: TurnReply) -> None:
        """Process the reply to the last turn. Removes the outcomes and tokens that the reply confirms, and stores which
        entry has to run alone."""
        # The reply does not list tasks that the worker dropped after it had sent the turn.
        self.may_hold_more = self._has_forgotten
        self.quarantined = reply.quarantined
        if reply.status is not TurnStatus.MORE:
            del self.tokens[: self._sent_tokens]
        self.outcomes_confirmed()

    def add(self, task_id: str) -> int:
        """Record a claimed task under a free task index, and return that index."""
        task_index = self._free.pop()
        self._held[task_index] = task_id
        return task_index

    def remove(self, task_index: int) -> None:
        """Free the index of a task that this worker no longer holds, because the task has ended, or because it may not
        start and Redis has taken it back."""
        del self._held[task_index]
        self._free.append(task_index)

    def forget(self, task_index: int) -> None:
        """Free the index of a task that was not started but that Redis still holds for this worker. A later reply
        returns the task again."""
        self.remove(task_index)
        self.may_hold_more = self._has_forgotten = True

    def _lists_held(self, at_ns: int) -> bool:
        is_due = self._listed_ns is None or at_ns - self._listed_ns >= LIST_HELD_EVERY_NS
        if is_due or self.may_hold_more or self.quarantined:
            self._listed_ns = at_ns
            return True
        return False


# The next turn is sent before the last few tasks of a claim, if those tasks are expected to take at most this long
# together.
PIPELINED_NS: Final = 1_500_000
# If the queue is backlogged, the next turn is sent before the last task, if that task is expected to take at most this
# long.
PREFETCH_NS: Final = 15_000_000
MOST: Final = 128  # most tasks of one claim: a larger claim would hardly save time, but a crash would affect more tasks
# If the tasks of a claim were shorter than estimated, the estimate falls by this share of the difference.
_FALL: Final = 0.25
_LONGEST_SHARE: Final = 1 / 16
_GROWTH: Final = 4


@dataclass(slots=True)
class ClaimTimes:
    """The run times of the tasks of one claim."""

    queue: str  # name of the queue, or its pattern if it has one
    at_ns: int  # CLOCK_BOOTTIME when the last task ended
    tasks: int = 0
    total_ns: int = 0
    longest_ns: int = 0
    squares_ns: int = 0  # sum of the squared run times

    def ended(self, at_ns: int) -> None:
        """Add a task that ended at `at_ns` (CLOCK_BOOTTIME)."""
        took_ns = at_ns - self.at_ns
        self.at_ns = at_ns
        self.tasks += 1
        self.total_ns += took_ns
        self.squares_ns += took_ns * took_ns
        if took_ns > self.longest_ns:  # noqa: PLR1730 - faster than `max`, as in `Histogram.observe`
            self.longest_ns = took_ns


@dataclass(slots=True)
class _RunTimes:
    """Estimates of the run times of a queue's tasks, and the number of tasks to claim next."""

    mean_ns: float = 0.0
    longest_ns: float = 0.0
    limit: int = 1

    def update(self, batch: ClaimTimes) -> None:
        self.mean_ns = _smoothed(self.mean_ns, batch.total_ns / batch.tasks)
        self.longest_ns = _smoothed(self.longest_ns, batch.longest_ns)
        worth_ns = max(self.mean_ns, self.longest_ns * _LONGEST_SHARE, 1.0)
        self.limit = max(1, min(int(CLAIM_NS / worth_ns), _GROWTH * self.limit, MOST))


def _smoothed(known: float, seen: float) -> float:
    return seen if seen > known else known + (seen - known) * _FALL


class Prefetch:
    """Decides how many tasks of each queue to claim at once. The result is `limits`, which the next turn sends: the
    queues and patterns from which more than one task may be claimed, with the number of tasks. All queues of a pattern
    share one estimate.

    A claim should hold about 5 ms of work. Many short tasks are claimed at once, so that they share one round trip and
    one script call. A task of 5 ms or longer is claimed alone. The estimate for a task comes from the recent claims of
    its queue. It is the mean run time, or a sixteenth of the longest run time if that is more. A queue with occasional
    long tasks therefore gets smaller claims than its mean alone would allow. Both the mean and the longest run time
    rise at once when the tasks of a claim took longer, and fall gradually when they take less time. The number of tasks
    grows at most fourfold from one claim to the next, because the first tasks are a small sample.
    """

    def __init__(self) -> None:
        self.limits: Packed = NO_LIMITS
        self._run_times: dict[str, _RunTimes] = {}

    def left_at_turn(self, queue: str, tasks: int, *, is_backlogged: bool) -> int:
        """Return how many of the `tasks` of a claim are still to run when the worker sends the next turn. The worker
        sends that turn early, so that the reply has arrived when the last of these tasks ends.

        Returns 0 if the turn must be sent after all tasks. This is the case if one task may take so long that the newly
        claimed tasks would be too old when it ends. (A task may take long because it waits for a processor.) Returns 1
        only if the queue is backlogged. Otherwise the newly claimed task would wait in this process while other workers
        are idle.
        """
        run_times = self._run_times.get(queue)
        if run_times is None or run_times.longest_ns > PREFETCH_NS:
            return 0
        is_short = run_times.longest_ns <= CLAIM_NS
        left = min(tasks // 2, int(PIPELINED_NS / max(run_times.mean_ns, 1.0))) if is_short else 0
        return left if left > 1 else int(is_backlogged)

    def learn(self, batch: ClaimTimes) -> None:
        """Update the estimates with the run times of a claim."""
        if not batch.tasks:
            return
        run_times = self._run_times.setdefault(batch.queue, _RunTimes())
        before = run_times.limit
        run_times.update(batch)
        if run_times.limit != before:
            self.limits = pack_limits({name: each.limit for name, each in self._run_times.items() if each.limit > 1})
