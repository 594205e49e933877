"""The loop of a worker that runs one task at a time. All of the worker's I/O is here.

Each iteration determines the worker's mode and its most urgent need, and takes one step. The life of a task:

1. A turn claims the task. A turn is one script call, which settles finished tasks and claims new ones in the same round
   trip. If tasks of the queue are short, it claims several, and the others wait in this process (`Prefetch`).
2. The worker writes the task's entry into its slot. If the process dies from here on, the master knows which task ran.
3. The worker checks whether it may still start the task. The master may have given back a prefetched task that has
   waited for longer than 5 ms, and some tasks need permission from Redis, for example because of a rate limit. A task
   that may not start is given back.
4. The worker calls the function, inside the hooks. `SoftLimit` ends the function at the task's soft time limit. At the
   hard limit the master kills the worker.
5. The worker derives the outcome from the return value or the exception: done, retry, dead, cancelled or expired.
6. The worker writes the outcome into its slot before it removes the task from there. If the worker is killed after
   that, the master settles the task with this outcome. If it is killed earlier, the attempt counts as a crash, or as a
   failure if the hard time limit was reached.
7. The failure hooks run, if the attempt failed.
8. The next turn sends the outcome. The worker repeats outcomes until a reply confirms them. This is safe because an
   outcome that arrives twice changes nothing the second time, whereas the task would run twice if its outcome were
   lost.
"""

import contextlib
from dataclasses import dataclass, field
from typing import Final

from rota.child.child_process import EXIT_OVERWRITTEN, Waiter
from rota.child.slots import Phase, boottime_ns
from rota.protocol.entry import MICROSECONDS
from rota.protocol.outcome import ARGS_PER_SETTLEMENT, DONE
from rota.protocol.turns import ThrottleStatus, TurnReply, TurnStatus
from rota.server.link import Link, Pipelined
from rota.server.server_errors import ServerError
from rota.telemetry import log
from rota.worker.attempt import Attempt
from rota.worker.claims import LIST_HELD_EVERY_NS, SAFE_CLAIM_AGE_NS, Claimed, ClaimTimes, InFlight, Prefetch
from rota.worker.executor import Executor
from rota.worker.loop_state import (
    HOLD_SECONDS,
    LAST_QUERY_SECONDS,
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

CLAIM_LIMIT: Final = 1  # how many tasks to claim from a queue whose tasks are long or whose run times are unknown


@dataclass(slots=True, kw_only=True)
class Loop(WorkerLoop):
    """The loop of a worker that runs one task at a time, from its first turn to its exit code."""

    link: Link
    waiter: Waiter
    executor: Executor
    # The claimed tasks, and the outcomes that no reply has confirmed.
    _in_flight: InFlight = field(default_factory=InFlight)
    _prefetch: Prefetch = field(default_factory=Prefetch)  # how many tasks to claim from each queue
    _is_backlogged: bool = False  # whether the last reply reported a backlog
    _prefetch_returned_before: int = 0  # the slot's `prefetch_returned` when the turn before the last was sent
    # Entry of the last task, if the master may have settled that task when it returned prefetched tasks.
    _last_run: bytes = b""

    def run(self) -> int:
        """Run the worker until it has a reason to exit, and return the exit code. Raises Orphaned if the master has
        died."""
        while self._slot.is_intact:
            self._slot.heartbeat()
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
                case Step.QUERY:
                    self._query_held_tasks()
                case Step.LEAVE:
                    return self._exit_code
        return self._leave_without_slot()

    # State

    def _mode_and_need(self) -> tuple[Mode, Need]:
        now_ns = boottime_ns()
        in_flight = self._in_flight
        mode = self._check_mode(now_ns)
        if in_flight.waiting:
            return mode, Need.OVERRUN if in_flight.is_overrun(now_ns) else Need.CLAIMED
        return mode, need_of(
            unconfirmed=in_flight.has_unconfirmed,
            may_hold_more=in_flight.may_hold_more,
            turn_due=self._is_turn_due(mode, now_ns),
            nothing_found=self._idle,
        )

    def close(self) -> None:
        """Close the runner, and with it the event loop of async tasks."""
        self.executor.runner.close()

    def _leave_without_slot(self) -> int:
        """Settle the finished tasks and give back the rest, based on this process's own records. Return the exit code.
        Called when a task has overwritten the slot, so that the master can no longer see what this worker runs."""
        for settlement in self._in_flight.give_back():
            self._in_flight.finish(settlement)
        with contextlib.suppress(ServerError):  # If the turn fails, the master gives back the held tasks.
            self.link.connection().run(self._call(self._in_flight.turn(0)))
        return EXIT_OVERWRITTEN

    # Turns

    def _take_turn(self, limit: int) -> None:
        error = self._try_turn(limit)
        if error is not None:
            self.waiter.pause(self.link.failed(error))

    def _take_pipelined(self, turn: Pipelined[TurnReply], ran_until_ns: int) -> None:
        """Read and process the reply to a turn that was sent before the last tasks of a claim were run."""
        try:
            reply = turn.reply()
        except ServerError as error:
            self._sent_before = self._in_flight.has_outcomes
            self._load.occupy(0, turn.sent_ns)
            self.waiter.pause(self.link.failed(error))
            return
        anchor = self._clock.from_delayed_reply(reply.now_us, turn.sent_ns, boottime_ns())
        self._take_reply(reply, CLAIM_LIMIT, anchor, ran_until_ns)

    def _query_held_tasks(self) -> None:
        """Send one last query for the tasks that this worker still holds, before it exits. If there is no reply within
        `LAST_QUERY_SECONDS`, the worker exits, and the master gives back the tasks."""
        with self.waiter.within(LAST_QUERY_SECONDS):
            error = self._try_turn(0)
        if error is not None:
            self.link.failed(error)
            self._in_flight.may_hold_more = False

    def _try_turn(self, limit: int) -> ServerError | None:
        """Make a turn that claims up to `limit` tasks. Returns the error if there was no reply."""
        call = self._call(self._in_flight.turn(limit, self._prefetch.limits))
        sent_ns = boottime_ns()
        try:
            reply = self.link.connection().run(call)
        except ServerError as error:
            self._sent_before = self._in_flight.has_outcomes
            # If Redis is unavailable, no task counts as running from the time of this turn.
            self._load.occupy(0, sent_ns)
            return error
        self._take_reply(reply, limit, self._note_immediate_reply(reply, sent_ns))
        return None

    def _take_reply(self, reply: TurnReply, limit: int, anchor: Anchor, ran_until_ns: int = 0) -> None:
        self.link.succeeded()
        self._report_stale(reply)
        in_flight = self._in_flight
        in_flight.take_reply(reply, anchor, ran_until_ns)
        self._load.occupy(1 if in_flight.waiting or in_flight.may_hold_more else 0, anchor.received_ns)
        # The master may have taken back these claims. In that case do not count them now, because a later reply returns
        # the claims that are left.
        self.report.turn(reply, limit, counts_claims=not in_flight.may_hold_more)
        self._is_backlogged = reply.status is TurnStatus.BACKLOGGED
        if len(reply.claims) > 1:
            self._request_watch()
        self._take_status(reply, anchor, len(in_flight.waiting))
        self._idle = limit > 0 and reply.status is TurnStatus.OK and not reply.claims

    def _request_watch(self) -> None:
        """Ask the master to watch this worker, because claimed tasks wait, or will wait, behind the running task. If
        that task takes long, the master returns them to their queue."""
        if self._slot.request_watch():
            self.process.ring_master()

    def _report_stale(self, reply: TurnReply) -> None:
        """Report the outcomes for which Redis found no entry. If the master has already settled the task or taken it
        back, this is expected and is not reported."""
        # All outcomes of this turn belong to tasks that ended after the previous turn was sent, so if the master has
        # returned tasks since then, that explains why the outcomes found no entry.
        was_returned = (
            self._slot.prefetch_returned != self._prefetch_returned_before and reply.status is not TurnStatus.LOST
        )
        self._prefetch_returned_before = self._prefetch_returned
        for text in reply.stale:
            by_return = was_returned and text != self._last_run
            if not (by_return or self._in_flight.was_given_back(text)):
                self.report.stale(text, sent_before=self._sent_before)

    # Waiting for work

    def _park(self) -> None:
        """Wait at the doorbells until one rings, the wait times out, or a signal arrives."""
        self.report.log_lines.record()
        self.recycling.check_memory(boottime_ns())
        seconds = self.bell.wait_seconds(self._wait_us)
        if seconds:
            self._listen(seconds)
        else:
            self.waiter.pause(self._wait_us / MICROSECONDS)
            self._idle = False

    def _listen(self, seconds: float) -> None:
        sent_ns = boottime_ns()
        # Claim at most one task here. If this process is stopped in the meantime, only that task is held up.
        turn = self._call(self._in_flight.turn(CLAIM_LIMIT))
        try:
            waited = self.bell.listen(self.link.connection(), self.waiter, seconds, turn)
        except ServerError as error:
            self._reconnect()
            self.waiter.pause(self.link.failed(error))
            return
        if waited is None:
            self._reconnect()
            return
        anchor = self._clock.from_delayed_reply(waited.reply.now_us, sent_ns, boottime_ns())
        self._take_reply(waited.reply, CLAIM_LIMIT, anchor)
        if waited.queue and not is_passed_on(waited.queue, waited.reply, self.report.label_of_queue):
            self._in_flight.tokens.append(waited.queue)
            self._take_turn(0)

    def _reconnect(self) -> None:
        """Close the connection, so that the next step claims again over a new one. A token or a claim may have been
        lost with the old connection, or may still arrive on it."""
        self.link.close()
        self._idle = False
        self._last_turn_ns = 0

    def _hold(self, mode: Mode) -> None:
        """Claim nothing for a while, or until a signal arrives."""
        self._idle = False  # claim again after the wait, because tasks may have arrived or a doorbell may have rung
        self.waiter.pause(HOLD_SECONDS.get(mode, REST_SECONDS))

    # Tasks

    def _run_claimed(self) -> None:
        """Run the claimed tasks in order, until none is left or the worker has to check its mode."""
        self._slot.phase = Phase.BUSY
        self.report.running(1)
        batch = ClaimTimes(self.report.label_of_queue(self._in_flight.waiting[0].entry.queue), boottime_ns())
        self._load.occupy(1, batch.at_ns)
        self._load.show_started(also=1)
        next_turn = self._run_batch(batch)
        log.logger().write_held()
        self._prefetch.learn(batch)
        self._show_load(batch)
        self.report.running(0)
        self._slot.phase = Phase.IDLE
        self.recycling.worked(self._attempts, batch.at_ns)
        if next_turn is not None:
            self._take_pipelined(next_turn, batch.at_ns)

    def _show_load(self, batch: ClaimTimes) -> None:
        load = self._load
        load.started += batch.tasks
        load.ended += batch.tasks
        load.run_ns += batch.total_ns
        load.squares_ns += batch.squares_ns
        load.show()

    def _run_batch(self, batch: ClaimTimes) -> Pipelined[TurnReply] | None:
        """Run the claimed tasks, and count each of them in `batch`. Returns the next turn if it was sent before the
        last tasks ran, or None."""
        next_turn = None
        in_flight = self._in_flight
        tasks = min(len(in_flight.waiting), self.recycling.left(self._attempts))
        send_at = self._send_at(batch, tasks)
        # Log lines are held back only if tasks are short, so that no line is delayed for long.
        self.report.holds_lines = send_at > 1
        for left in range(tasks, 0, -1):
            if left == send_at and not in_flight.is_overrun(batch.at_ns):
                self._request_watch()
                log.logger().write_held()  # write the log lines of finished tasks before a turn settles these tasks
                next_turn = self.link.pipeline(self._call(in_flight.pipelined(CLAIM_LIMIT, self._prefetch.limits)))
            ended_ns = self._run_next(batch.at_ns)
            if not ended_ns:
                break
            batch.ended(ended_ns)
            if self.signals.stop_requested or self.fence.is_up(ended_ns):
                break
        return next_turn

    def _send_at(self, batch: ClaimTimes, tasks: int) -> int:
        """Return how many of the `tasks` of this claim are left to run when the worker sends its next turn, or 0 to
        send the turn after all of the tasks.

        The turn is sent after all tasks if they are the last tasks that this worker may run, or if the round trip is so
        long that an early turn would reach Redis too late to claim anything. It is also sent after all tasks if it has
        to pass on doorbell tokens or to list the tasks that this worker holds, because an early turn does neither.
        """
        are_last = tasks == self.recycling.left(self._attempts)
        is_far = self._round_trip_ns > SAFE_CLAIM_AGE_NS // 2
        if are_last or is_far or self._in_flight.tokens or batch.at_ns - self._listed_ns >= LIST_HELD_EVERY_NS:
            return 0
        return self._prefetch.left_at_turn(batch.queue, tasks, is_backlogged=self._is_backlogged)

    def _run_next(self, at_ns: int) -> int:
        """Run the next claimed task. Returns the time at which it ended (CLOCK_BOOTTIME), or 0 if the worker has to
        make a turn before it may start another task."""
        claimed = self._in_flight.next()
        attempt = self.executor.attempt(claimed, at_ns)
        slot = self._slot
        if not isinstance(attempt, Attempt):
            return self._unstarted(claimed, attempt)
        packed = self._in_flight.finish(attempt.settlement())
        if slot.is_undisturbed(self._prefetch_returned):
            self._last_run = b""
        # If the master returned prefetched tasks during this attempt, it settled this task only if the outcome was
        # already in the slot.
        elif slot.is_intact:
            self._last_run = attempt.entry.text
        else:
            return 0
        # Store the outcome before the task is removed from the slot. From here on, the outcome survives even if this
        # worker is killed.
        slot.add_outcomes(ARGS_PER_SETTLEMENT, packed)
        self.report.attempt(attempt)
        entry = attempt.entry
        if entry.failures or entry.crashes:
            self._load.later_attempts += 1
        if attempt.outcome is not DONE:
            self._count_failure(attempt)
            self.executor.maker.call_failure_hooks(attempt)
        ended_ns = boottime_ns()
        slot.heartbeat(ended_ns)
        attempt.record.end()
        self._attempts += 1
        return ended_ns

    def _unstarted(self, claimed: Claimed, status: ThrottleStatus | None) -> int:
        if status is ThrottleStatus.THROTTLED:
            self._load.later_attempts += 1  # the task will count as started when it has run
            return boottime_ns()
        self._in_flight.put_back(claimed)
        return 0

    def _give_back(self) -> None:
        report = self.report
        note = report.released if self.signals.stop_requested else report.given_back
        for settlement in self._in_flight.give_back():
            self._slot.add_outcomes(ARGS_PER_SETTLEMENT, self._in_flight.finish(settlement))
            note(settlement.entry)
