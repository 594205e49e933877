"""The worker's loop: looks what it may do and has to see to, takes one step, and looks again. All its I/O is here."""

import contextlib
from dataclasses import dataclass, field
from typing import Final

from rota.child.child_life import EXIT_OVERWRITTEN, Waiter
from rota.child.slots import Phase, boottime_ns
from rota.protocol.entry import MICROSECONDS
from rota.protocol.outcome import ARGS_PER_SETTLEMENT, DONE
from rota.protocol.turns import ThrottleWord, TurnReply, TurnWord
from rota.server.link import Link, Pipelined
from rota.server.server_errors import ServerError
from rota.telemetry import log
from rota.worker.attempt import Attempt
from rota.worker.claims import NAMED_EVERY_NS, UNRECALLED_NS, Claimed, ClaimTimes, InFlight, Prefetch
from rota.worker.executor import Executor
from rota.worker.loop_state import (
    HOLD_SECONDS,
    LAST_ASK_SECONDS,
    REST_SECONDS,
    STEPS,
    Mode,
    Need,
    Step,
    WorkerLoop,
    is_passed_on,
    need_of,
)
from rota.worker.redis_times import Anchor

CLAIM_LIMIT: Final = 1  # of a queue whose tasks are long, or not known yet


@dataclass(slots=True, kw_only=True)
class Loop(WorkerLoop):
    """The loop of a worker that runs one task at a time, from its first turn to its exit code."""

    link: Link
    waiter: Waiter
    executor: Executor
    _in_flight: InFlight = field(default_factory=InFlight)
    _prefetch: Prefetch = field(default_factory=Prefetch)
    _is_plenty: bool = False
    _recalled_before: int = 0
    _last_run: bytes = b""

    def run(self) -> int:
        """Work until there is a reason to leave; returns the exit code. Raises Orphaned."""
        while self._slot.is_intact:
            self._slot.beat()
            mode, need = self._mode_and_need()
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
                    return self._exit_code
        return self._leave_without_slot()

    # Looking

    def _mode_and_need(self) -> tuple[Mode, Need]:
        now_ns, in_flight = boottime_ns(), self._in_flight
        mode = self._look(now_ns)
        if in_flight.waiting:
            return mode, Need.OVERRUN if in_flight.is_overrun(now_ns) else Need.CLAIMED
        return mode, need_of(
            unconfirmed=in_flight.unconfirmed,
            unanswered=in_flight.asked,
            turn_due=self._is_turn_due(mode, now_ns),
            nothing_found=self._idle,
        )

    def close(self) -> None:
        """Close what tasks have used."""
        self.executor.runner.close()

    def _leave_without_slot(self) -> int:
        """A task wrote over it, so nobody could see any more what runs here: settle and give back from memory."""
        for settlement in self._in_flight.give_back():
            self._in_flight.finish(settlement)
        with contextlib.suppress(ServerError):  # then the master gives back what is held
            self.link.connection().run(self._call(self._in_flight.turn(0)))
        return EXIT_OVERWRITTEN

    # Turns

    def _take_turn(self, limit: int) -> None:
        error = self._try_turn(limit)
        if error is not None:
            self.waiter.pause(self.link.failed(error))

    def _take_pipelined(self, turn: Pipelined[TurnReply], ran_until_ns: int) -> None:
        """Take the answer of a turn that was sent while the last tasks of a claim were still to be run."""
        try:
            reply = turn.answer()
        except ServerError as error:
            self._sent_before = self._in_flight.has_outcomes
            self.waiter.pause(self.link.failed(error))
            return
        anchor = self._clock.answered_late(reply.now_us, turn.sent_ns, boottime_ns())
        self._take_answer(reply, CLAIM_LIMIT, anchor, ran_until_ns)

    def _ask_what_is_held(self) -> None:
        """On the way out, once and not for long. Without an answer the master gives back what was claimed."""
        with self.waiter.within(LAST_ASK_SECONDS):
            error = self._try_turn(0)
        if error is not None:
            self.link.failed(error)
            self._in_flight.asked = False

    def _try_turn(self, limit: int) -> ServerError | None:
        """Make a turn; returns the error that kept it from being answered."""
        call, sent_ns = self._call(self._in_flight.turn(limit, self._prefetch.limits)), boottime_ns()
        try:
            reply = self.link.connection().run(call)
        except ServerError as error:
            self._sent_before = self._in_flight.has_outcomes
            return error
        self._take_answer(reply, limit, self._answered_at_once(reply, sent_ns))
        return None

    def _take_answer(self, reply: TurnReply, limit: int, anchor: Anchor, ran_until_ns: int = 0) -> None:
        self.link.worked()
        self._report_stale(reply)
        self._in_flight.answered(reply, anchor, ran_until_ns)
        # What may have been recalled counts when another answer brings it again.
        self.report.turn(reply, limit, counts_claims=not self._in_flight.asked)
        self._is_plenty = reply.word is TurnWord.PLENTY
        if len(reply.claims) > 1:
            self._ask_for_watch()
        self._take_word(reply, anchor, len(self._in_flight.waiting))
        self._idle = limit > 0 and reply.word is TurnWord.OK and not reply.claims

    def _ask_for_watch(self) -> None:
        """Something waits, or will, behind a task that runs."""
        if self._slot.ask_for_watch():
            self.life.ring_master()

    def _report_stale(self, reply: TurnReply) -> None:
        """Outcomes that found nothing, but for those that a recall had settled or given back before."""
        # What this turn told ended since the one before it was sent.
        was_recalled = self._slot.recalled != self._recalled_before and reply.word is not TurnWord.LOST
        self._recalled_before = self._recalled
        for text in reply.stale:
            by_recall = was_recalled and text != self._last_run
            if not (by_recall or self._in_flight.was_given_back(text)):
                self.report.stale(text, sent_before=self._sent_before)

    # Waiting for work

    def _park(self) -> None:
        """Wait at the doorbells until one rings, the time is over, or a signal comes."""
        self.report.log_lines.record()
        self.recycling.look_at_memory(boottime_ns())
        seconds = self.bell.patience(self._wait_us)
        if seconds:
            self._listen(seconds)
        else:
            self.waiter.pause(self._wait_us / MICROSECONDS)
            self._idle = False

    def _listen(self, seconds: float) -> None:
        sent_ns = boottime_ns()
        # One task at most: should this process be stopped meanwhile, no more than that stands still with it.
        turn = self._call(self._in_flight.turn(CLAIM_LIMIT))
        try:
            heard = self.bell.listen(self.link.connection(), self.waiter, seconds, turn)
        except ServerError as error:
            self._look_again()
            self.waiter.pause(self.link.failed(error))
            return
        if heard is None:
            self._look_again()
            return
        anchor = self._clock.answered_late(heard.reply.now_us, sent_ns, boottime_ns())
        self._take_answer(heard.reply, CLAIM_LIMIT, anchor)
        if heard.queue and not is_passed_on(heard.queue, heard.reply, self.report.label_of_queue):
            self._in_flight.tokens.append(heard.queue)
            self._take_turn(0)

    def _look_again(self) -> None:
        """Listen no more on this connection: a token or a claim may have been lost with it, or may still come."""
        self.link.close()
        self._idle = False
        self._last_turn_ns = 0

    def _hold(self, mode: Mode) -> None:
        """Claim nothing for a while, or until a signal comes."""
        self._idle = False  # what was there, and who rang, is looked for when this is over
        self.waiter.pause(HOLD_SECONDS.get(mode, REST_SECONDS))

    # Tasks

    def _run_claimed(self) -> None:
        """Run what is claimed, in order, until nothing of it is left or there is a reason to look around."""
        self._slot.phase = Phase.BUSY
        self.report.running(1)
        batch = ClaimTimes(self.report.label_of_queue(self._in_flight.waiting[0].entry.queue), boottime_ns())
        next_turn = self._run_batch(batch)
        log.logger().write_held()
        self._prefetch.learn(batch)
        self.report.running(0)
        self._slot.phase = Phase.IDLE
        self.recycling.worked(self._attempts, batch.at_ns)
        if next_turn is not None:
            self._take_pipelined(next_turn, batch.at_ns)

    def _run_batch(self, batch: ClaimTimes) -> Pipelined[TurnReply] | None:
        """Run them; returns the next turn, if it was sent before the last of them were run."""
        next_turn, in_flight = None, self._in_flight
        tasks = min(len(in_flight.waiting), self.recycling.left(self._attempts))
        send_at = self._send_at(batch, tasks)
        self.report.holds_lines = send_at > 1  # only where tasks are short: they hold up no line for long
        for left in range(tasks, 0, -1):
            if left == send_at and not in_flight.is_overrun(batch.at_ns):
                self._ask_for_watch()
                log.logger().write_held()  # of what is settled by a turn the lines are written
                next_turn = self.link.pipeline(self._call(in_flight.pipelined(CLAIM_LIMIT, self._prefetch.limits)))
            ended_ns = self._run_next(batch.at_ns)
            if not ended_ns:
                break
            batch.ended(ended_ns)
            if self.signals.asked or self.fence.is_up(ended_ns):
                break
        return next_turn

    def _send_at(self, batch: ClaimTimes, tasks: int) -> int:
        """How many of so many are left when the next turn is sent; 0 if behind all of them: when these are the last of
        this life, or one is wanted that names what is held, and is answered at once: Redis time is known from such. Or
        when the way to the server is so long that a turn would come too late to claim anything."""
        are_last = tasks == self.recycling.left(self._attempts)
        is_far = self._round_trip_ns > UNRECALLED_NS // 2
        if are_last or is_far or self._in_flight.tokens or batch.at_ns - self._named_ns >= NAMED_EVERY_NS:
            return 0
        return self._prefetch.left_at_turn(batch.queue, tasks, is_plenty=self._is_plenty)

    def _run_next(self, at_ns: int) -> int:
        """Run the next entry; returns when it had ended, 0 when nothing may be started without asking."""
        claimed = self._in_flight.next()
        attempt, slot = self.executor.attempt(claimed, at_ns), self._slot
        if not isinstance(attempt, Attempt):
            return self._unstarted(claimed, attempt)
        packed = self._in_flight.finish(attempt.settlement())
        if slot.is_undisturbed(self._recalled):
            self._last_run = b""
        elif slot.is_intact:  # a recall made before its outcome is in the slot cannot have settled it; a later one can
            self._last_run = attempt.entry.text
        else:
            return 0
        # Before the task is taken off the slot: from here on a kill loses nothing.
        slot.add_outcomes(ARGS_PER_SETTLEMENT, packed)
        self.report.attempt(attempt)
        if attempt.outcome is not DONE:
            self.executor.maker.call_failure_hooks(attempt)
        ended_ns = boottime_ns()
        slot.beat(ended_ns)
        attempt.record.end()
        self._attempts += 1
        return ended_ns

    def _unstarted(self, claimed: Claimed, word: ThrottleWord | None) -> int:
        if word is ThrottleWord.THROTTLED:
            return boottime_ns()
        self._in_flight.put_back(claimed)
        return 0

    def _give_back(self) -> None:
        report = self.report
        note = report.released if self.signals.asked else report.given_back
        for settlement in self._in_flight.give_back():
            self._slot.add_outcomes(ARGS_PER_SETTLEMENT, self._in_flight.finish(settlement))
            note(settlement.entry)
