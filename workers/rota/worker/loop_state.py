"""What a worker may do now, what it does next, and what it shows of that, however many tasks it runs at once; and when
it has done enough, and asks for a fresh one in its place.

The next step is a table of what the worker may do (`Mode`) and what is to be seen to first (`Need`); it is pure.
"""

import math
import mmap
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from rota.child.child_life import EXIT_DRAINED, EXIT_LOST, Fence, Life, StopSignals
from rota.child.slots import Phase, RecycleReason, Slot, boottime_ns
from rota.durations import NANOSECONDS
from rota.protocol.command import Command
from rota.protocol.store import Store
from rota.protocol.turns import Turn, TurnReply, TurnWord
from rota.protocol.wire import Packed
from rota.telemetry import log, log_events
from rota.worker.doorbells import Bell
from rota.worker.redis_times import Anchor, RedisClock
from rota.worker.worker_report import Report

_MEBIBYTE: Final = 1 << 20
_EVERY_NS: Final = 100_000_000  # a look at memory takes 3 us, a short task no more than 10
_LINE_BYTES: Final = 128


class Span(NamedTuple):
    """How many attempts a worker makes: from `ask_at` on it asks to be replaced, and works on until the master has it
    leave; at `end_at` it claims no more."""

    ask_at: int
    end_at: int


ENDLESS: Final = Span(sys.maxsize, sys.maxsize)


def span_of(max_tasks: int, jitter: float, random: float) -> Span:
    """The span of a life of `max_tasks` attempts at most, 0 for no limit.

    `random` in [0, 1): workers that started together must not all ask together, so up to the share `jitter` is taken
    off.
    """
    if max_tasks == 0:
        return ENDLESS
    return Span(max(1, math.ceil(max_tasks * (1 - jitter * random))), max_tasks)


class Growth:
    """Resident memory less what was resident when this was made. Pages that it shares with its zygote count in both."""

    def __init__(self, max_mb: int) -> None:
        self._most_pages = max_mb * _MEBIBYTE // mmap.PAGESIZE
        self._fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._first_pages = self._resident_pages()
        self._looked_ns = 0

    def is_due(self, at_ns: int) -> bool:
        """Whether it is time for another look, between two tasks."""
        return at_ns - self._looked_ns > _EVERY_NS

    def is_over(self, at_ns: int) -> bool:
        """Look whether it has grown by more than it may."""
        self._looked_ns = at_ns
        return self._resident_pages() - self._first_pages > self._most_pages

    def _resident_pages(self) -> int:
        return int(os.pread(self._fd, _LINE_BYTES, 0).split()[1])


class RecycleRequest:
    """Shows the master why this worker asks to be replaced. `growth` is None where memory has no limit."""

    def __init__(self, life: Life, span: Span, growth: Growth | None) -> None:
        self._life = life
        self._span = span
        self._growth = growth

    def is_spent(self, attempts: int) -> bool:
        """Whether it has made all attempts of its span."""
        return attempts >= self._span.end_at

    def left(self, attempts: int) -> int:
        """How many more it may make."""
        return max(0, self._span.end_at - attempts)

    def worked(self, attempts: int, at_ns: int) -> None:
        """It has run what it had, `attempts` in its life so far; ask if that is enough, or too much memory is held."""
        if attempts >= self._span.ask_at:
            self._ask(RecycleReason.MAX_TASKS)
        if self._growth is not None and self._growth.is_due(at_ns):
            self.look_at_memory(at_ns)

    def look_at_memory(self, at_ns: int) -> None:
        """Ask if too much memory is held."""
        if self._growth is not None and self._growth.is_over(at_ns):
            self._ask(RecycleReason.MAX_RSS)

    def _ask(self, reason: RecycleReason) -> None:
        """The first reason there was is the one that is shown."""
        if self._life.slot.recycle_reason is RecycleReason.NONE:
            self._life.slot.recycle_reason = reason
            self._life.ring_master()


class Step(Enum):
    """What comes next."""

    RUN = "run"  # what is claimed
    CLAIM = "claim"  # by a turn, which settles too
    SETTLE = "settle"  # by a turn that claims nothing
    PARK = "park"  # at the doorbells
    HOLD = "hold"  # still, while nothing may be claimed
    GIVE_BACK = "give back"  # what was claimed and not started
    ASK = "ask"  # once, what an unanswered claim has brought
    LEAVE = "leave"


class _Key(Enum):
    """A key of the table. Enum's own hash is a function of Python's, for which a worker that was woken would wait."""

    __hash__ = object.__hash__


class Mode(_Key):
    """What this worker may do now; of several the first holds."""

    LOST = "lost"  # its owner is no longer registered
    LEAVING = "leaving"  # a stop was asked for
    FENCED = "fenced"  # its lease may have run out
    QUIET = "quiet"  # the master asked it to claim nothing
    SPENT = "spent"  # it has made all its attempts
    WORKING = "working"  # none of these


class Need(_Key):
    """What is to be seen to first."""

    OVERRUN = "overrun"  # tasks were claimed so long ago that they may have been given back
    CLAIMED = "claimed"  # tasks are claimed and not started
    UNCONFIRMED = "unconfirmed"  # there are outcomes or tokens that no answer has named yet
    UNANSWERED = "unanswered"  # work was asked for, and no answer has come
    TURN = "turn"  # the last turn was long ago
    SLEEP = "sleep"  # the last claim found nothing, and nobody rang since
    WORK = "work"  # none of these


def _row(*steps: Step) -> dict[Need, Step]:
    return dict(zip(Need, steps, strict=True))


# For each need, in their order: OVERRUN, CLAIMED, UNCONFIRMED, UNANSWERED, TURN, SLEEP, WORK.
# Who claims nothing gives back what it has not started: others may start it, and it is not to be charged with a lease
# that may be lost.
_RESTING = _row(Step.GIVE_BACK, Step.GIVE_BACK, Step.SETTLE, Step.SETTLE, Step.SETTLE, Step.HOLD, Step.HOLD)
STEPS: Final = {
    Mode.LOST: dict.fromkeys(Need, Step.LEAVE),
    Mode.LEAVING: _row(Step.GIVE_BACK, Step.GIVE_BACK, Step.SETTLE, Step.ASK, Step.LEAVE, Step.LEAVE, Step.LEAVE),
    Mode.FENCED: _RESTING,
    Mode.QUIET: _RESTING,
    Mode.SPENT: _RESTING,
    Mode.WORKING: _row(Step.GIVE_BACK, Step.RUN, Step.CLAIM, Step.CLAIM, Step.CLAIM, Step.PARK, Step.CLAIM),
}


def mode_of(*, lost: bool, leaving: bool, fenced: bool, quiet: bool, spent: bool) -> Mode:
    """The first mode that holds."""
    if lost:
        return Mode.LOST
    if leaving:
        return Mode.LEAVING
    if fenced:
        return Mode.FENCED
    if quiet:
        return Mode.QUIET
    return Mode.SPENT if spent else Mode.WORKING


def need_of(*, unconfirmed: bool, unanswered: bool, turn_due: bool, nothing_found: bool) -> Need:
    """What is to be seen to first by one that has claimed nothing it has not started."""
    if unconfirmed:
        return Need.UNCONFIRMED
    if unanswered:
        return Need.UNANSWERED
    if turn_due:
        return Need.TURN
    return Need.SLEEP if nothing_found else Need.WORK


def is_passed_on(name: str, reply: TurnReply, served_as: Callable[[str], str]) -> bool:
    """Whether the doorbell token that woke this worker need not be passed on to another one.

    A turn that claims from a queue and leaves entries there rings for it, and for its pattern when any queue of that
    has something; one that finds nothing need not ring at all. Only when it claims from a queue that is served as
    another `name` alone may there be entries for which it rang nobody.
    """
    if reply.word is not TurnWord.OK and reply.word is not TurnWord.PLENTY:
        return False
    return not reply.claims or name in [served_as(claim.entry.queue) for claim in reply.claims]


HOLD_SECONDS: Final = {Mode.FENCED: 0.2}
REST_SECONDS: Final = 5.0  # while it is quiet, when nothing wakes it
LAST_ASK_SECONDS: Final = 0.5  # how long a worker that leaves waits for Redis to say what it still holds
# While nothing is claimed it asks what Redis knows of it; more often behind the fence, as the answer may be `lost`.
_TURN_PERIODS_NS: Final = {Mode.FENCED: NANOSECONDS, Mode.QUIET: 5 * NANOSECONDS, Mode.SPENT: 5 * NANOSECONDS}

_AT_WORK: Final = {Phase.IDLE, Phase.BUSY}  # from one to the other many times a second, which is no news


@dataclass(slots=True, kw_only=True)
class WorkerLoop:
    """One life of a worker. `tiers` in wire form."""

    life: Life
    store: Store
    tiers: Packed
    signals: StopSignals
    fence: Fence
    bell: Bell
    report: Report
    recycling: RecycleRequest
    _slot: Slot = field(init=False)
    _clock: RedisClock = field(default_factory=RedisClock)
    _ready: bool = False
    _lost: bool = False
    _fenced: bool = False
    _shown: Phase = Phase.BOOTING
    _idle: bool = False
    _wait_us: int = 0
    _attempts: int = 0
    _last_turn_ns: int = 0
    _named_ns: int = 0  # when a turn was answered at once last
    _round_trip_ns: int = 0  # what that took
    _sent_before: bool = False
    _told_in_slot: tuple[int, int] = (0, 0)
    _recalled: int = 0

    def __post_init__(self) -> None:
        self._slot = self.life.slot

    def _call(self, turn: Turn) -> Command[TurnReply]:
        """The turn as it is to be sent now; noted is which outcomes in the slot it tells, and what was recalled so
        far."""
        self._told_in_slot, self._recalled = self._slot.outcomes_left, self._slot.recalled
        return self.store.turn(self.life.owner, self.tiers, turn)

    def _look(self, now_ns: int, phase: Phase = Phase.IDLE) -> Mode:
        """See what it may do, and show it; `phase`: that of one that may claim."""
        fenced, quiet, leaving = self.fence.is_up(now_ns), self._slot.quiet_asked, self.signals.asked
        if fenced is not self._fenced:
            self._tell_fence(fenced)
        if leaving or quiet:
            phase = Phase.DRAINING if leaving else Phase.QUIET
        if phase is not self._shown and (self._ready or leaving):
            self._show(phase)
        spent = self.recycling.is_spent(self._attempts)
        return mode_of(lost=self._lost, leaving=leaving, fenced=fenced, quiet=quiet, spent=spent)

    def _is_turn_due(self, mode: Mode, now_ns: int) -> bool:
        period_ns = _TURN_PERIODS_NS.get(mode)
        return not self._clock.is_good(now_ns) if period_ns is None else now_ns - self._last_turn_ns >= period_ns

    def _tell_fence(self, is_up: bool) -> None:
        self._fenced = is_up
        if is_up:
            log.logger().warning(log_events.WORKER_FENCED, owner=self.life.owner)

    def _show(self, phase: Phase) -> None:
        """Show the master that this worker leaves, or is quiet, or is so no more."""
        before, self._shown = self._shown, phase
        self._slot.phase = phase
        if not {before, phase} <= _AT_WORK:
            self.life.ring_master()

    def _say_ready(self) -> None:
        """The first answer has come: this worker works."""
        self._ready = True
        self._show(Phase.QUIET if self._slot.quiet_asked else Phase.IDLE)
        log.logger().info(log_events.WORKER_STARTED, owner=self.life.owner)

    def _answered_at_once(self, reply: TurnReply, sent_ns: int) -> Anchor:
        """Note that a turn was answered which waited for nothing; returns what is known of Redis time by it."""
        if not self._ready:
            self._say_ready()
        received_ns = self._named_ns = boottime_ns()
        self._round_trip_ns = received_ns - sent_ns
        self.report.turn_took(self._round_trip_ns / NANOSECONDS)
        return self._clock.answered(reply.now_us, sent_ns, received_ns)

    def _take_word(self, reply: TurnReply, anchor: Anchor, held: int) -> None:
        """Note what an answer says of this worker, which held so many tasks. Of outcomes it has named none stays in the
        slot."""
        self._slot.drop_outcomes(*self._told_in_slot)
        self._sent_before = False
        self._lost = reply.word is TurnWord.LOST
        self._wait_us = reply.wait_us
        self._last_turn_ns = anchor.received_ns
        if self._lost:
            log.logger().error(log_events.WORKER_LOST, owner=self.life.owner, held=held)

    @property
    def _exit_code(self) -> int:
        return EXIT_LOST if self._lost else EXIT_DRAINED
