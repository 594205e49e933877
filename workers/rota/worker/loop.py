"""The worker's loop: looks what it may do and has to see to, takes one step, and looks again. All its I/O is here."""

import contextlib
from dataclasses import dataclass
from typing import Final

from rota.child.life import EXIT_DRAINED, EXIT_LOST, EXIT_OVERWRITTEN, NANOSECONDS, Fence, Life
from rota.child.signals import StopSignals
from rota.child.slots import Phase, boottime_ns
from rota.child.wait import Waiter
from rota.protocol.entry import MICROSECONDS
from rota.protocol.outcome import ARGS_PER_SETTLEMENT, Settlement
from rota.protocol.replies import TurnReply, TurnWord
from rota.protocol.store import NO_LIMITS, Command, Store
from rota.protocol.wire import Packed
from rota.server.link import Link
from rota.server.server_errors import ServerError
from rota.telemetry import events, log
from rota.worker.attempt import Bench, make_attempt, tell_of_death
from rota.worker.bell import Bell
from rota.worker.decide import STEPS, Mode, Need, Step, is_passed_on, mode_of, need_of
from rota.worker.holding import Holding
from rota.worker.portion import Portions, Stretch
from rota.worker.recycling import Recycling
from rota.worker.report import Report
from rota.worker.times import Anchor, RedisClock

CLAIM_LIMIT: Final = 1  # of a queue whose tasks are long, or not known yet
_HOLD_SECONDS: Final = 0.2
_REST_SECONDS: Final = 5.0  # while it is quiet, when nothing wakes it
# While nothing is claimed it asks what Redis knows of it; more often behind the fence, as the answer may be `lost`.
_TURN_PERIODS_NS: Final = {Mode.FENCED: 1_000_000_000, Mode.QUIET: 5_000_000_000, Mode.SPENT: 5_000_000_000}
_LAST_WORD_SECONDS: Final = 0.5  # who leaves with nothing known in hand waits no longer for anybody


@dataclass(frozen=True, slots=True)
class Tools:
    """What the loop works with. `tiers` in wire form."""

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
    recycling: Recycling


class Loop:
    """One life of a worker, from its first turn to its exit code."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._slot = tools.life.slot
        self._holding = Holding()
        self._clock = RedisClock()
        self._portions = Portions()
        self._ready = False
        self._lost = False
        self._fenced = False
        self._idle = False
        self._wait_us = 0
        self._attempts = 0
        self._last_turn_ns = 0
        self._sent_before = False
        self._recalled = 0
        self._last_run = b""

    def run(self) -> int:
        """Work until there is a reason to leave; answers the exit code. Raises Orphaned."""
        while self._slot.is_intact:
            self._slot.beat()
            mode, need = self._look()
            match STEPS[mode][need]:
                case Step.RUN:
                    self._run_claimed()
                case Step.CLAIM:
                    self._take_turn(CLAIM_LIMIT)
                case Step.SETTLE:
                    self._take_turn(0)
                case Step.PARK:
                    self._park()
                case Step.HOLD:
                    self._hold(mode)
                case Step.GIVE_BACK:
                    self._give_back()
                case Step.ASK:
                    self._ask_what_is_held()
                case Step.LEAVE:
                    return EXIT_LOST if self._lost else EXIT_DRAINED
        return self._leave_without_slot()

    # Looking

    def _look(self) -> tuple[Mode, Need]:
        now_ns, holding, tools = boottime_ns(), self._holding, self._tools
        fenced, quiet = tools.fence.is_up(now_ns), self._slot.quiet_asked
        self._tell_of_change(fenced=fenced, quiet=quiet)
        spent = tools.recycling.is_spent(self._attempts)
        mode = mode_of(lost=self._lost, leaving=tools.signals.asked, fenced=fenced, quiet=quiet, spent=spent)
        return mode, need_of(
            claimed=bool(holding.waiting),
            overrun=holding.is_overrun(now_ns),
            untold=holding.owing,
            unanswered=holding.asked,
            turn_due=self._is_turn_due(mode, now_ns),
            nothing_found=self._idle,
        )

    def _is_turn_due(self, mode: Mode, now_ns: int) -> bool:
        period_ns = _TURN_PERIODS_NS.get(mode)
        return not self._clock.is_good(now_ns) if period_ns is None else now_ns - self._last_turn_ns >= period_ns

    def _tell_of_change(self, *, fenced: bool, quiet: bool) -> None:
        """Log a fence that went up; show the master that this worker leaves, or is quiet, or is so no more."""
        if fenced and not self._fenced:
            log.logger().warning(events.WORKER_FENCED, owner=self._tools.life.owner)
        self._fenced = fenced
        if self._tools.signals.asked:
            self._show(Phase.DRAINING)
        elif self._ready:
            self._show(Phase.QUIET if quiet else Phase.IDLE)

    def _show(self, phase: Phase) -> None:
        if self._slot.phase is not phase:
            self._slot.phase = phase
            self._tools.life.ring_master()

    def _leave_without_slot(self) -> int:
        """A task wrote over it. So nobody could tell any more what runs here: settle and give back from memory."""
        for settlement in self._holding.give_back():
            self._holding.finish(settlement)
        with contextlib.suppress(ServerError):  # then the master gives back what is held
            self._tools.link.connection().run(self._turn(0, NO_LIMITS))
        return EXIT_OVERWRITTEN

    # Turns

    def _take_turn(self, limit: int) -> None:
        error = self._try_turn(limit)
        if error is not None:
            self._tools.waiter.pause(self._tools.link.failed(error))

    def _ask_what_is_held(self) -> None:
        """On the way out, once and not for long. Without an answer the master gives back what was claimed."""
        with self._tools.waiter.within(_LAST_WORD_SECONDS):
            error = self._try_turn(0)
        if error is not None:
            self._tools.link.failed(error)
            self._holding.ask_no_more()

    def _try_turn(self, limit: int) -> ServerError | None:
        """Make a turn; answers the error that kept it from being answered."""
        call, sent_ns = self._turn(limit, self._portions.limits()), boottime_ns()
        try:
            reply = self._tools.link.connection().run(call)
        except ServerError as error:
            self._sent_before = self._holding.has_outcomes
            return error
        if not self._ready:
            self._say_ready()
        received_ns = boottime_ns()
        self._tools.report.turn_took((received_ns - sent_ns) / NANOSECONDS)
        self._take_answer(reply, limit, self._clock.answered(reply.now_us, sent_ns, received_ns))
        return None

    def _turn(self, limit: int, limits: Packed) -> Command[TurnReply]:
        tools = self._tools
        return tools.store.turn(tools.life.owner, tools.tiers, self._holding.turn(limit, limits))

    def _say_ready(self) -> None:
        """The first answer has come: this worker works."""
        self._ready = True
        self._show(Phase.QUIET if self._slot.quiet_asked else Phase.IDLE)
        log.logger().info(events.WORKER_STARTED, owner=self._tools.life.owner)

    def _take_answer(self, reply: TurnReply, limit: int, anchor: Anchor) -> None:
        tools = self._tools
        tools.link.worked()
        tools.report.turn(reply, limit)
        self._tell_stale(reply)
        if self._holding.has_outcomes:
            self._slot.clear_outcomes()
        self._holding.answered(reply, anchor)
        if len(reply.claims) > 1 and self._slot.ask_for_watch():
            tools.life.ring_master()
        self._sent_before = False
        self._lost = reply.word is TurnWord.LOST
        self._idle = limit > 0 and reply.word is TurnWord.OK and not reply.claims
        self._wait_us = reply.wait_us
        self._last_turn_ns = anchor.received_ns
        if self._lost:
            log.logger().error(events.WORKER_LOST, owner=tools.life.owner, held=len(self._holding.waiting))

    def _tell_stale(self, reply: TurnReply) -> None:
        """Outcomes that found nothing, but for those that a recall had settled or given back before."""
        recalled_before, self._recalled = self._recalled, self._slot.recalled
        was_recalled = self._recalled != recalled_before and reply.word is not TurnWord.LOST
        for text in reply.stale:
            by_recall = was_recalled and text != self._last_run
            if not (by_recall or self._holding.was_given_back(text)):
                self._tools.report.stale(text, sent_before=self._sent_before)

    # Waiting for work

    def _park(self) -> None:
        """Wait at the doorbells until one rings, the time is over, or a signal comes."""
        self._tools.report.log_lines.record()
        self._tools.recycling.look_at_memory(boottime_ns())
        seconds = self._tools.bell.patience(self._wait_us)
        if seconds:
            self._listen(seconds)
        else:
            self._tools.waiter.pause(self._wait_us / MICROSECONDS)
            self._idle = False

    def _listen(self, seconds: float) -> None:
        tools, sent_ns = self._tools, boottime_ns()
        # One task at most: should this process be stopped meanwhile, no more than that stands still with it.
        turn = self._turn(CLAIM_LIMIT, NO_LIMITS)
        try:
            heard = tools.bell.listen(tools.link.connection(), tools.waiter, seconds, turn)
        except ServerError as error:
            self._look_again()
            tools.waiter.pause(tools.link.failed(error))
            return
        if heard is None:
            self._look_again()
            return
        anchor = self._clock.answered_late(heard.reply.now_us, sent_ns, boottime_ns())
        self._take_answer(heard.reply, CLAIM_LIMIT, anchor)
        if heard.queue and not is_passed_on(heard.queue, heard.reply):
            self._holding.tokens.append(heard.queue)
            self._take_turn(0)

    def _look_again(self) -> None:
        """Listen no more on this connection: a token or a claim may have been lost with it, or may still come."""
        self._tools.link.close()
        self._idle = False
        self._last_turn_ns = 0

    def _hold(self, mode: Mode) -> None:
        """Claim nothing for a while, or until a signal comes."""
        self._idle = False  # what was there, and who rang, is looked for when this is over
        self._tools.waiter.pause(_HOLD_SECONDS if mode is Mode.FENCED else _REST_SECONDS)

    # Tasks

    def _run_claimed(self) -> None:
        """Run what is claimed, in order, until nothing of it is left or there is a reason to look around."""
        self._slot.phase = Phase.BUSY
        self._tools.report.busy()
        tools, stretch = self._tools, Stretch(self._holding.waiting[0].entry.queue, boottime_ns())
        while self._holding.waiting and self._run_next(stretch.at_ns):
            stretch.ended(boottime_ns())
            if tools.signals.asked or tools.recycling.is_spent(self._attempts) or tools.fence.is_up(stretch.at_ns):
                break
        self._portions.worked(stretch)
        tools.report.idle()
        self._slot.phase = Phase.IDLE
        tools.recycling.worked(self._attempts, stretch.at_ns)

    def _run_next(self, at_ns: int) -> bool:
        """Run the next entry; False when it may not be started without asking."""
        claimed = self._holding.next()
        attempt = make_attempt(self._tools.bench, claimed, at_ns)
        if attempt is None:
            self._holding.put_back(claimed)
            return False
        settlement = Settlement(attempt.entry, attempt.verdict.outcome)
        if not self._slot.is_intact:
            self._holding.finish(settlement)
            return False
        # A recall made before its outcome is in the slot cannot have settled it; a later one can.
        self._last_run = attempt.entry.text if self._slot.recalled != self._recalled else b""
        # Before the task is taken off the slot: from here on a kill loses nothing.
        self._finish(settlement)
        self._tools.report.attempt(attempt)
        tell_of_death(self._tools.bench, attempt)
        self._slot.beat()
        self._slot.end_task()
        self._attempts += 1
        return True

    def _give_back(self) -> None:
        report = self._tools.report
        tell = report.released if self._tools.signals.asked else report.given_back
        for settlement in self._holding.give_back():
            self._finish(settlement)
            tell(settlement.entry)

    def _finish(self, settlement: Settlement) -> None:
        self._slot.add_outcomes(ARGS_PER_SETTLEMENT, self._holding.finish(settlement))
