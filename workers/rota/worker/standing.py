"""What a worker may do now, and what it shows of that, however many tasks it runs at once."""

from dataclasses import dataclass, field
from typing import Final

from rota.child.life import EXIT_DRAINED, EXIT_LOST, NANOSECONDS, Fence, Life
from rota.child.signals import StopSignals
from rota.child.slots import Phase, Slot
from rota.protocol.command import Command
from rota.protocol.store import Store
from rota.protocol.turns import Turn, TurnReply, TurnWord
from rota.protocol.wire import Packed
from rota.telemetry import events, log
from rota.worker.bell import Bell
from rota.worker.decide import Mode, mode_of
from rota.worker.recycling import Recycling
from rota.worker.report import Report
from rota.worker.times import Anchor, RedisClock

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
    recycling: Recycling
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
            log.logger().warning(events.WORKER_FENCED, owner=self.life.owner)

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
        log.logger().info(events.WORKER_STARTED, owner=self.life.owner)

    def _take_word(self, reply: TurnReply, anchor: Anchor, held: int) -> None:
        """Note what an answer says of this worker, which held so many tasks. Of outcomes it has named none stays in the
        slot."""
        self._slot.drop_outcomes(*self._told_in_slot)
        self._sent_before = False
        self._lost = reply.word is TurnWord.LOST
        self._wait_us = reply.wait_us
        self._last_turn_ns = anchor.received_ns
        if self._lost:
            log.logger().error(events.WORKER_LOST, owner=self.life.owner, held=held)

    @property
    def _exit_code(self) -> int:
        return EXIT_LOST if self._lost else EXIT_DRAINED
