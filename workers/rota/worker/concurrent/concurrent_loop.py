"""The loop of a worker that runs many tasks at once, with asyncio in the main thread. All I/O of the worker is here,
except the I/O of its tasks.

The loop claims as many tasks as its concurrency allows, and starts all of them at once. No claimed task waits for
another, so the master never has to take a task back. Only one turn is under way at a time; tasks that end during a turn
are settled by the next turn.
"""

import asyncio
import contextlib
import signal
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import FrameType
from typing import Final

from rota.child.child_process import EXIT_OVERWRITTEN, SOFT_LIMIT_SIGNAL, Orphaned
from rota.child.child_settings import WorkerSettings
from rota.child.slots import Phase, boottime_ns
from rota.durations import NANOSECONDS
from rota.protocol.entry import MICROSECONDS
from rota.protocol.outcome import ARGS_PER_SETTLEMENT, DONE, Release, Settlement
from rota.protocol.scripts import ScriptCall
from rota.protocol.turns import Claim, TurnReply, TurnStatus
from rota.server.address import address_of
from rota.server.aio_connection import AioConnection
from rota.server.link import Outages
from rota.server.server_errors import ServerError
from rota.soft_limit import soft_limit
from rota.tasks.claimed_call import StartSteps
from rota.telemetry.recorder import Recorder
from rota.worker.attempt import NO_TASK, Attempt, AttemptMaker
from rota.worker.claims import Claimed, Ledger
from rota.worker.concurrent.concurrent_tasks import ConcurrentExecutor, RunningTask, StackLogger, StepWatcher, belong_to
from rota.worker.concurrent.connections import AioBell, AioStartChecker, turns_connection
from rota.worker.loop_state import (
    HOLD_SECONDS,
    LAST_QUERY_SECONDS,
    REST_SECONDS,
    STEPS,
    Mode,
    Need,
    Step,
    WorkerLoop,
    need_of,
)
from rota.worker.redis_times import Anchor

# Interval between heartbeats while tasks run. It is short, so that the master notices a loop that is blocked for a
# second.
_HEARTBEAT_SECONDS: Final = 0.25
# Interval between checks whether another worker has taken the entry that has to run alone.
_QUARANTINE_SECONDS: Final = 1.0
_ALWAYS: Final = 1 << 62  # a deadline that never passes, because no claim is taken back from this kind of worker


@dataclass(slots=True, kw_only=True)
class ConcurrentLoop(WorkerLoop):
    """The loop of a worker that runs many tasks at once, from its first turn to its exit code."""

    settings: WorkerSettings
    maker: AttemptMaker
    starts: StartSteps  # asks Redis whether a task may start
    recorder: Recorder
    _ledger: Ledger = field(init=False)  # the held tasks, and the outcomes that no reply has confirmed
    _steps: StepWatcher = field(init=False)  # watches the steps of coroutines
    _stacks: StackLogger = field(init=False)  # logs the stacks of running tasks when the master requests it
    _outages: Outages = field(init=False)
    _connection: AioConnection = field(init=False)  # for turns, and for queries about whether a task may start
    _doorbells: AioBell = field(init=False)  # waits at the doorbells over a separate connection
    _executor: ConcurrentExecutor = field(init=False)
    _runner: asyncio.Runner = field(default_factory=asyncio.Runner)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)  # set to end a wait
    _running: dict[int, RunningTask] = field(default_factory=dict)  # the running tasks, by task index
    _fault: BaseException | None = None  # the exception that has to end the worker, if there is one
    _has_ending: bool = False  # whether a limit or cancel signal has arrived since the tasks were last checked
    _heartbeat_timer: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        WorkerLoop.__post_init__(self)
        address = address_of(self.settings.server)
        name = f"rota:worker:{self.process.owner}"
        self._ledger = Ledger(self.settings.concurrency)
        self._stacks = StackLogger(self._slot)
        self._steps = StepWatcher(self.maker.no_copies, self._blocked)
        self._outages = Outages(name, self.recorder)
        self._connection = turns_connection(address, self._outages)
        self._doorbells = AioBell(self.bell, address, Outages(f"{name}:bell", self.recorder), self._rung)
        self._executor = ConcurrentExecutor(
            self.maker, AioStartChecker(self.starts, self._connection, self._outages).check_start
        )

    def run(self) -> int:
        """Run the worker until it has a reason to exit, and return the exit code. Raises Orphaned if the master has
        died."""
        return self._runner.run(self._work())

    def close(self) -> None:
        """Cancel the asyncio tasks that finished Rota tasks left behind, and close the loop. Rota tasks that still run
        end with the process."""
        if not self._running:
            self._runner.close()

    async def _work(self) -> int:
        self._set_up(asyncio.get_running_loop())
        while self._slot.is_intact:
            if self._fault is not None:
                raise self._fault
            self._slot.heartbeat()
            self._stacks.log_if_requested(self._running.values())
            mode, need = self._mode_and_need()
            if mode is not Mode.WORKING:
                await self._doorbells.leave()
            match STEPS[mode][need]:
                case Step.CLAIM:
                    await self._take_turn(min(self._ledger.free, self.recycling.left(self._attempts)))
                case Step.SETTLE:
                    await self._take_turn(0)
                case Step.QUERY:
                    await self._query_held_tasks()
                case Step.LEAVE if not self._ledger.running:
                    return self._exit_code
                case Step.PARK:
                    await self._park()
                case _:
                    # Claim again after the wait, because tasks may have arrived or a doorbell may have rung.
                    self._idle = False
                    await self._rest(HOLD_SECONDS.get(mode, REST_SECONDS))
        return await self._leave_without_slot()

    def _set_up(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.set_task_factory(self._steps.make_task)
        loop.set_default_executor(ThreadPoolExecutor(self._ledger.concurrency, "rota-task"))
        loop.add_reader(self.signals.fileno(), self._signalled)
        loop.add_reader(self.process.death_fd, self._orphaned)
        soft_limit.install(SOFT_LIMIT_SIGNAL, self._steps.is_cancelled)
        signal.signal(SOFT_LIMIT_SIGNAL, self._on_limit_signal)
        self._heartbeat()

    # Events that wake the loop

    def _signalled(self) -> None:
        self.signals.empty()
        self._raise_endings()  # end the tasks now, because the loop may be waiting in a turn for seconds
        self._wake.set()

    def _orphaned(self) -> None:
        asyncio.get_running_loop().remove_reader(self.process.death_fd)
        self._fault = Orphaned()
        self._wake.set()

    def _on_limit_signal(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal that the master sends for a cancellation or a soft limit. If a plain function is running in
        the loop, this handler ends it. The loop ends a coroutine later, between two of its steps."""
        self._has_ending = True
        self.signals.wake()
        soft_limit.signalled(number, frame)

    def _rung(self, queues: Iterable[str]) -> None:
        self._ledger.tokens.extend(queues)
        self._idle = False
        self._wake.set()

    def _blocked(self, running: RunningTask, seconds: float) -> None:
        task = NO_TASK if running.attempt is None else running.attempt.name
        self.report.blocked(running.entry.queue, task, running.entry.id, seconds)

    def _heartbeat(self) -> None:
        self._slot.heartbeat()
        self.report.log_lines.record()
        self.recycling.check_memory(boottime_ns())
        seconds = _HEARTBEAT_SECONDS if self._ledger.running else self.settings.beat_seconds / 2
        self._heartbeat_timer = asyncio.get_running_loop().call_later(seconds, self._heartbeat)

    async def _rest(self, seconds: float) -> bool:
        """Wait until something wakes the loop, but at most `seconds`. Returns whether the loop was woken before the
        time was up."""
        timer = asyncio.get_running_loop().call_later(seconds, self._wake.set)
        await self._wake.wait()
        self._wake.clear()
        is_over = timer.when() <= asyncio.get_running_loop().time()
        timer.cancel()
        return not is_over

    def _mode_and_need(self) -> tuple[Mode, Need]:
        now_ns = boottime_ns()
        ledger = self._ledger
        self.report.running(ledger.running)
        mode = self._check_mode(now_ns, Phase.BUSY if ledger.running else Phase.IDLE)
        return mode, need_of(
            unconfirmed=ledger.has_unconfirmed,
            may_hold_more=ledger.may_hold_more,
            turn_due=self._is_turn_due(mode, now_ns),
            nothing_found=self._idle or not ledger.free,
        )

    def _raise_endings(self) -> None:
        if self._has_ending:
            self._has_ending = False
            for running in self._running.values():
                running.raise_ending()

    async def _park(self) -> None:
        """Wait until something wakes the loop. During the wait, listen at the doorbells if the worker may claim another
        task."""
        if self._ledger.free and not self._ledger.quarantined:
            self._doorbells.listen()
        most = _QUARANTINE_SECONDS if self._ledger.quarantined else REST_SECONDS
        if not await self._rest(min(self._wait_us / MICROSECONDS or most, most)):
            self._idle = False

    # Turns

    async def _take_turn(self, picks: int) -> None:
        error = await self._try_turn(picks)
        if error is not None:
            await self._rest(self._outages.failed(error))

    async def _query_held_tasks(self) -> None:
        """Send one last query for the tasks that this worker still holds, before it exits. If there is no reply within
        `LAST_QUERY_SECONDS`, the worker exits, and the master gives back the tasks."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_QUERY_SECONDS):
                await self._try_turn(0)
        self._ledger.may_hold_more = False

    async def _try_turn(self, picks: int) -> ServerError | None:
        """Make a turn that claims up to `picks` tasks. Returns the error if there was no reply."""
        call = self._turn(picks)
        sent_ns = boottime_ns()
        try:
            reply = await self._connection.run(call)
        except ServerError as error:
            self._sent_before = True
            self._load.occupy(self._ledger.running, sent_ns)
            return error
        self._take_reply(reply, picks, self._note_immediate_reply(reply, sent_ns))
        return None

    def _turn(self, picks: int) -> ScriptCall[TurnReply]:
        return self._call(self._ledger.turn(picks, boottime_ns()))

    async def _leave_without_slot(self) -> int:
        """Settle the finished tasks from this process's own records, and return the exit code. Called when a task has
        overwritten the slot, so that the master can no longer see what this worker runs."""
        with contextlib.suppress(ServerError):
            await self._connection.run(self._turn(0))
        return EXIT_OVERWRITTEN

    def _take_reply(self, reply: TurnReply, picks: int, anchor: Anchor) -> None:
        self.report.turn(reply, picks)
        for text in reply.stale:
            self.report.stale(text, sent_before=self._sent_before)
        self._ledger.take_reply(reply)
        self._take_status(reply, anchor, self._ledger.running)
        self._idle = reply.status is TurnStatus.QUARANTINE or (
            reply.status is TurnStatus.OK and len(reply.claims) < picks
        )
        if reply.claims:
            self._take_claims(reply.claims, anchor)
        self._load.occupy(self._ledger.running, anchor.received_ns)
        self._load.show()

    def _take_claims(self, claims: Sequence[Claim], anchor: Anchor) -> None:
        """Start the claimed tasks.

        If this worker may no longer claim, or if a task has overwritten the slot in the meantime, give the tasks back
        instead. A server that has lost writes may return more tasks than the worker may run. The worker gives back the
        excess too.
        """
        may_start = self._slot.is_intact and self._check_mode(anchor.received_ns, Phase.BUSY) is Mode.WORKING
        starts = self._ledger.free if may_start else 0
        for claim in claims[:starts]:
            self._start(claim, anchor)
        note = self.report.released if self.signals.stop_requested else self.report.given_back
        for claim in reversed(claims[starts:]):  # in reverse order, so that the queue keeps its order
            self._finish(Settlement(claim.entry, Release()))
            note(claim.entry)

    # Tasks

    def _start(self, claim: Claim, anchor: Anchor) -> None:
        task_index = self._ledger.add(claim.entry.id)
        if not self._running and self._heartbeat_timer is not None:
            self._heartbeat_timer.cancel()
            self._heartbeat()
        self._attempts += 1
        self._load.started += 1
        running = self._running[task_index] = RunningTask(claim.entry, self._slot.record(task_index))
        claimed = Claimed(claim.entry, claim.body, anchor, 0, _ALWAYS)
        running.driver = self._steps.drive(self._run(running, claimed), running)

    async def _run(self, running: RunningTask, claimed: Claimed) -> None:
        try:
            await self._carry_out(running, claimed)
        except BaseException as error:  # noqa: BLE001 - a fault of the worker ends the worker
            self._fault = error
        self._wake.set()

    async def _carry_out(self, running: RunningTask, claimed: Claimed) -> None:
        belong_to(running)
        attempt = await self._executor.attempt(running, claimed)
        if isinstance(attempt, Attempt):
            self._ended(attempt)
        else:
            # The attempt is not counted here. It was counted when the task was claimed, so that the worker never claims
            # more tasks than it may run.
            self._attempts -= 1
        running.record.end()
        task_index = running.record.task_index
        del self._running[task_index]
        if attempt is None:
            self._ledger.forget(task_index)
        else:
            self._ledger.remove(task_index)
        self._idle = False
        self.recycling.worked(self._attempts, boottime_ns())

    def _ended(self, attempt: Attempt) -> None:
        settlement = attempt.settlement()
        # Store the outcome before the task is removed from the slot. From here on, the outcome survives even if this
        # worker is killed.
        self._finish(settlement)
        self.report.attempt(attempt)
        self._count(attempt)
        self.maker.call_failure_hooks(attempt)

    def _count(self, attempt: Attempt) -> None:
        load = self._load
        load.ran(round(attempt.runtime_seconds * NANOSECONDS))
        if attempt.entry.failures or attempt.entry.crashes:
            load.later_attempts += 1
        if attempt.outcome is not DONE:
            self._count_failure(attempt)

    def _finish(self, settlement: Settlement) -> None:
        packed = self._ledger.finish(settlement)
        if self._slot.is_intact:
            self._slot.add_outcomes(ARGS_PER_SETTLEMENT, packed)
