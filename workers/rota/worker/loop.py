"""The worker's loop: looks at its situation, takes one step, and looks again. All its I/O is here."""

import time
from dataclasses import dataclass
from typing import Final

from rota.child.fence import NANOSECONDS, Fence
from rota.child.life import EXIT_DRAINED, EXIT_LOST, EXIT_RECYCLED, Life
from rota.child.signals import StopSignals
from rota.child.slots import Phase, boottime_ns
from rota.child.wait import Waiter
from rota.protocol.entry import MICROSECONDS
from rota.protocol.outcome import Settlement
from rota.protocol.replies import TurnReply, TurnWord
from rota.protocol.store import Store, Turn
from rota.protocol.wire import Packed
from rota.server.link import Link
from rota.server.server_errors import ServerError
from rota.telemetry import events, log
from rota.worker.attempt import Bench, make_attempt, tell_of_death
from rota.worker.bell import Bell
from rota.worker.decide import Situation, Step, decide
from rota.worker.holding import Holding
from rota.worker.report import Report
from rota.worker.times import Anchor

CLAIM_LIMIT: Final = 1
QUIET_SECONDS: Final = 6.0  # a worker that hears nothing makes a turn this often, in case a bell was lost
_FENCED_TURN_SECONDS: Final = 1.0  # behind the fence it asks more often: the answer may be `lost`
_HOLD_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Tools:
    """What the loop works with. `tiers` in wire form; `life_length` attempts at most, 0 for no limit."""

    life: Life
    store: Store
    tiers: Packed
    link: Link
    waiter: Waiter
    signals: StopSignals
    fence: Fence
    bell: Bell
    bench: Bench
    report: Report
    life_length: int


class Loop:
    """One life of a worker, from its first turn to its exit code."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._slot = tools.life.slot
        self._holding = Holding()
        self._ready = False
        self._lost = False
        self._fenced = False
        self._idle = False
        self._wait_us = 0
        self._attempts = 0
        self._last_turn = float("-inf")
        self._sent_before = False

    def run(self) -> int:
        """Work until there is a reason to leave; answers the exit code. Raises Orphaned."""
        while True:
            self._slot.beat()
            situation = self._situation()
            self._tell_of_change(situation)
            match decide(situation):
                case Step.RUN:
                    self._run_next()
                case Step.CLAIM:
                    self._take_turn(CLAIM_LIMIT)
                case Step.SETTLE:
                    self._take_turn(0)
                case Step.PARK:
                    self._park()
                case Step.HOLD:
                    self._tools.waiter.pause(_HOLD_SECONDS)
                case Step.GIVE_BACK:
                    self._give_back()
                case Step.LEAVE:
                    return self._exit_code()

    # Looking

    def _situation(self) -> Situation:
        fenced = self._tools.fence.is_up()
        patience = _FENCED_TURN_SECONDS if fenced else QUIET_SECONDS
        return Situation(
            lost=self._lost,
            leaving=self._tools.signals.asked or 0 < self._tools.life_length <= self._attempts,
            fenced=fenced,
            waiting=bool(self._holding.waiting),
            owing=self._holding.owing,
            idle=self._idle,
            turn_due=time.monotonic() - self._last_turn > patience,
        )

    def _tell_of_change(self, situation: Situation) -> None:
        """Log a fence that went up; show the master that this worker leaves."""
        if situation.fenced and not self._fenced:
            log.logger().warning(events.WORKER_FENCED, owner=self._tools.life.owner)
        self._fenced = situation.fenced
        if situation.leaving and self._slot.phase is not Phase.DRAINING:
            self._slot.phase = Phase.DRAINING
            self._tools.life.ring_master()

    def _exit_code(self) -> int:
        if self._lost:
            return EXIT_LOST
        return EXIT_DRAINED if self._tools.signals.asked else EXIT_RECYCLED

    # Turns

    def _take_turn(self, limit: int) -> None:
        turn = self._holding.turn(limit)
        sent_ns = boottime_ns()
        try:
            reply = self._ask(turn)
        except ServerError as error:
            self._sent_before = bool(self._holding.finished)
            self._tools.waiter.pause(self._tools.link.failed(error))
            return
        if not self._ready:
            self._say_ready()
        self._take_answer(reply, limit, Anchor(reply.now_us, sent_ns, boottime_ns()))

    def _say_ready(self) -> None:
        """The first answer has come: this worker works."""
        self._ready = True
        self._slot.phase = Phase.IDLE
        self._tools.life.ring_master()
        log.logger().info(events.WORKER_STARTED, owner=self._tools.life.owner)

    def _ask(self, turn: Turn) -> TurnReply:
        tools = self._tools
        return tools.link.connection().run(tools.store.turn(tools.life.owner, tools.tiers, turn))

    def _take_answer(self, reply: TurnReply, limit: int, anchor: Anchor) -> None:
        tools = self._tools
        tools.link.worked()
        tools.report.turn(reply, limit, (anchor.received_ns - anchor.sent_ns) / NANOSECONDS)
        for text in reply.stale:
            tools.report.stale(text, sent_before=self._sent_before)
        if self._holding.finished:
            self._slot.put_outcomes(0, b"")
        self._holding.answered(reply, anchor)
        self._sent_before = False
        self._lost = reply.word is TurnWord.LOST
        self._idle = limit > 0 and reply.word is TurnWord.OK and not reply.claims
        self._wait_us = reply.wait_us
        self._last_turn = time.monotonic()
        if self._lost:
            log.logger().error(events.WORKER_LOST, owner=tools.life.owner, held=len(self._holding.waiting))

    # Waiting for work

    def _park(self) -> None:
        """Wait at the doorbells until one rings, the time is over, or a signal comes."""
        self._tools.report.log_lines.record()
        seconds = self._tools.bell.patience(self._wait_us)
        if seconds:
            self._listen(seconds)
        else:
            self._tools.waiter.pause(self._wait_us / MICROSECONDS)
            self._idle = False

    def _listen(self, seconds: float) -> None:
        tools = self._tools
        try:
            queue = tools.bell.listen(tools.link.connection(), tools.waiter, seconds)
        except ServerError as error:
            self._idle = False  # a token may have been lost with the connection: look before listening again
            tools.waiter.pause(tools.link.failed(error))
            return
        tools.link.worked()
        if queue is None:
            tools.link.close()
        elif queue:
            self._holding.tokens.append(queue)
        self._idle = not queue and not self._wait_us

    # Tasks

    def _run_next(self) -> None:
        claimed = self._holding.waiting.popleft()
        report, slot = self._tools.report, self._slot
        slot.phase = Phase.BUSY
        report.busy()
        attempt = make_attempt(self._tools.bench, claimed)
        self._holding.finished.append(Settlement(attempt.entry, attempt.verdict.outcome))
        self._leave_outcomes()  # before the task is taken off the slot: from here on a kill loses nothing
        report.attempt(attempt)
        tell_of_death(self._tools.bench, attempt)
        slot.end_task()
        report.idle()
        slot.phase = Phase.IDLE
        self._attempts += 1

    def _give_back(self) -> None:
        released = self._holding.give_back()
        self._leave_outcomes()
        for settlement in released:
            self._tools.report.unstarted(settlement.entry, settlement.outcome)

    def _leave_outcomes(self) -> None:
        packed = self._holding.packed()
        self._slot.put_outcomes(packed.count, packed.data)
