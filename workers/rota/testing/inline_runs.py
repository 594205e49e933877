"""Attempts in the test's process that run as they would in a worker, and `eager`, which runs each call when it is
enqueued."""

import asyncio
import contextvars
import signal
import threading
import time
from collections import deque
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, NamedTuple, NoReturn, assert_never

from rota.child.child_process import SOFT_LIMIT_SIGNAL
from rota.child.slot_layout import METRICS_AT, PROCESS_ROW_BYTES
from rota.child.slot_record import TaskRecord
from rota.child.slots import Slot, boottime_ns
from rota.client.inquiries import ResultNotStored, TaskDead, result_of
from rota.client.status import status_of
from rota.durations import MICROSECONDS, NANOSECONDS
from rota.protocol.body import decode_body
from rota.protocol.new_tasks import NewTask
from rota.protocol.outcome import DeadOutcome, Done, EndedEarly, Outcome, Release, RetryOutcome
from rota.protocol.task_states import State
from rota.protocol.turns import ThrottleStatus
from rota.soft_limit import SoftLimit, soft_limit
from rota.tasks.claimed_call import DefaultRunSettings, MayStart, Preparer
from rota.tasks.fleet_settings import DEFAULT_MAX_RESULT_KB, DEFAULT_TIME_LIMIT_SECONDS
from rota.tasks.hooks import default_hooks
from rota.tasks.registry import default_registry
from rota.tasks.retry_rules import DeadReason
from rota.testing.kept_tasks import OWNER, KeptTask, KeptTasks
from rota.testing.stand_in import StandIn, stand_in_installed
from rota.worker.application import NoCopies, Runner
from rota.worker.attempt import Attempt, AttemptMaker, ShortLimits
from rota.worker.claims import Claimed
from rota.worker.executor import Executor
from rota.worker.redis_times import Anchor

_POLL_SECONDS: Final = 0.005
_limited: Final[list[TaskRecord]] = []  # the running tasks that have a soft limit
IN_TESTS: Final = DefaultRunSettings()


def is_in_main_thread() -> bool:
    """Whether this thread is the main thread, the only one in which Python runs signal handlers. Tasks in other threads
    cannot be interrupted."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def limit_enforced(record: TaskRecord) -> Iterator[None]:
    """Interrupt the task whose record this is, if the task exceeds its soft limit during the `with` block. Use this
    only in the main thread."""
    _install()
    over = threading.Event()
    watch = threading.Thread(target=_watch, args=(record, over), name="rota-testing-limit", daemon=True)
    _limited.append(record)
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()
        _limited.remove(record)


@cache  # runs only once, because neither the signal handler nor the functions to call at forks are ever removed
def _install() -> None:
    soft_limit.install(SOFT_LIMIT_SIGNAL, lambda: any(record.is_cancelled() for record in _limited))


def _watch(record: TaskRecord, over: threading.Event) -> None:
    main = threading.main_thread().ident
    assert main is not None
    while not over.wait(_POLL_SECONDS):
        times = record.times()
        is_over = times is not None and 0 < times.soft_deadline_ns <= boottime_ns()
        if is_over or record.is_cancelled():
            signal.pthread_kill(main, SOFT_LIMIT_SIGNAL)


_LONGEST_NS: Final = 1 << 62
# Tests use the longest delay that jitter allows instead of a random delay, so that all runs are the same.
_LONGEST_DELAY: Final = 1.0


@dataclass(frozen=True, slots=True)
class Ran:
    """An attempt that was made in a test."""

    task: str
    id: str
    attempt: int
    outcome: str  # `retry`, or the state in which the task has ended, for example `done`
    exception: BaseException | None = None  # the exception that the task raised
    error: str = ""  # the exception in one line, or why the task could not be called
    delay: float = 0.0  # number of seconds until the next attempt, if the task is retried
    result: Any = None  # the result as the task's handle returns it, if `result_ttl` is set

    @property
    def has_failed(self) -> bool:
        """Whether the attempt failed, regardless of whether it is retried."""
        return self.outcome in (RetryOutcome.label, DeadOutcome.label)


class RunMode(NamedTuple):
    """The options for running tasks: whether failed tasks are retried, and whether soft limits are enforced."""

    retries: bool
    limits: bool


def run_attempt(kept_tasks: KeptTasks, kept: KeptTask, now_us: int, mode: RunMode) -> Ran:
    """Make the next attempt of a task, and store the outcome. A KeyboardInterrupt from the task is not caught."""
    entry = kept.entry
    attempt = _attempt(kept, now_us, mode)
    kept_tasks.settle(kept, attempt)
    ran = Ran(decode_body(kept.body).name, entry.id, entry.attempt, "", attempt.exception, attempt.error)
    return _with_outcome(ran, attempt.outcome, kept)


def raise_failure(ran: Ran, kept: KeptTask) -> NoReturn:
    """Raise the exception of a task that is dead, or TaskDead if the task could not be called."""
    if ran.exception is not None:
        raise ran.exception
    raise TaskDead(f"task {ran.id} ({ran.task}) is dead: {ran.error}", status_of(ran.id, kept.found()))


def _with_outcome(ran: Ran, outcome: Outcome, kept: KeptTask) -> Ran:
    match outcome:
        case Done():
            return replace(ran, outcome=outcome.label, result=_returned(kept))
        case RetryOutcome(delay_us):
            return replace(ran, outcome=outcome.label, delay=delay_us / MICROSECONDS)
        case DeadOutcome() | EndedEarly():
            return replace(ran, outcome=outcome.label)
        case Release():  # cannot happen, because tasks that run here are never given back
            raise AssertionError(ran)
        case _:
            assert_never(outcome)


def _returned(kept: KeptTask) -> Any:
    """Return the task's result as its handle would return it, or None if no result is stored."""
    found = kept.found()
    try:
        return result_of(status_of(kept.entry.id, found), found.result)
    except ResultNotStored:
        return None


def _attempt(kept: KeptTask, now_us: int, mode: RunMode) -> Attempt:
    slot = Slot(memoryview(bytearray(METRICS_AT)), memoryview(bytearray(PROCESS_ROW_BYTES)))
    limited = mode.limits and is_in_main_thread()
    runner = _Runner(soft_limit if limited else SoftLimit())
    now_ns = boottime_ns()
    claimed = Claimed(kept.entry, kept.body, Anchor(now_us, now_ns, now_ns), 0, _LONGEST_NS)
    executor = _executor(slot, runner)
    kept.state = State.RUNNING
    kept.record = executor.record
    try:
        with limit_enforced(executor.record) if limited else nullcontext():
            attempt = executor.attempt(claimed, now_ns)
    finally:
        runner.close()
    assert isinstance(attempt, Attempt), "a task that runs inline always starts"
    if isinstance(attempt.exception, KeyboardInterrupt):
        raise attempt.exception
    if isinstance(attempt.outcome, RetryOutcome) and not mode.retries:
        attempt.die(DeadReason.RETRIES, attempt.error, OWNER)
    executor.maker.call_failure_hooks(attempt)
    return attempt


def _executor(slot: Slot, runner: Runner) -> Executor:
    maker = AttemptMaker(
        round(DEFAULT_TIME_LIMIT_SECONDS * NANOSECONDS),
        Preparer(default_registry, IN_TESTS),
        default_hooks,
        lambda *_: None,
        NoCopies(),
        lambda: _LONGEST_DELAY,
        ShortLimits(slot, lambda: None),
        DEFAULT_MAX_RESULT_KB,
        OWNER,
    )
    return Executor(maker, slot.record(0), runner, lambda attempt: MayStart(attempt.entry, ThrottleStatus.START))


class _Runner(Runner):
    """A worker's runner, except that it also works in a thread in which an event loop is already running. In that case,
    it runs the coroutine of a task in a new thread with its own loop."""

    def _await(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        if asyncio._get_running_loop() is None:  # noqa: SLF001 - the public function raises instead
            return super()._await(coroutine)
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(contextvars.copy_context().run, self._await_and_close, coroutine).result()

    def _await_and_close(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        try:
            return super()._await(coroutine)
        finally:
            self.close()


_HOW_TO_RUN: Final = (
    "if a task enqueues other tasks, eager() runs them only after that task has ended, so it cannot wait for them"
)
_running: ContextVar["tuple[_EagerRuns, deque[KeptTask]] | None"] = ContextVar("rota_testing_running", default=None)
"""The `eager` block that runs the current task of this context, and the tasks that the block will run after that
task."""


@contextmanager
def eager(*, retries: bool = False, limits: bool = False, raises: bool = True) -> Iterator[list[Ran]]:
    """Run each call that is enqueued in the block, in this process, before the enqueue returns. Yields the list of
    attempts.

    A task runs at once, even if it would be due later. The tasks that it enqueues run after it. If `retries` is true,
    failed tasks are retried at once, as their options allow; otherwise the first failure is final. If `limits` is true,
    soft time limits are raised in tasks that the main thread enqueues. If `raises` is true and a task becomes dead, the
    enqueue raises the exception of that task; otherwise only the task's handle reports the death. Handles work inside
    the block, and have the results that a worker would store (`result_ttl`).
    """
    runs = _EagerRuns(RunMode(retries=retries, limits=limits), raises=raises)
    with stand_in_installed(StandIn(runs.kept_tasks, runs.accepted, _HOW_TO_RUN)):
        yield runs.ran


class _EagerRuns:
    """Runs tasks in the order in which they are enqueued. A task that is enqueued by another task is added at the
    end."""

    def __init__(self, mode: RunMode, *, raises: bool) -> None:
        self.kept_tasks = KeptTasks(_now_us)
        self.ran: list[Ran] = []
        self._mode = mode
        self._raises = raises

    def accepted(self, _namespace: str, tasks: Sequence[tuple[NewTask, KeptTask]]) -> None:
        """Run the tasks now. If a running task has enqueued them, run them after that task."""
        accepted = deque(kept for _, kept in tasks)
        running = _running.get()
        if running is not None and running[0] is self:
            running[1].extend(accepted)
        else:
            self._run_all(accepted)

    def _run_all(self, waiting: deque[KeptTask]) -> None:
        token = _running.set((self, waiting))
        try:
            while waiting:
                kept = waiting.popleft()
                if kept.ended is None:  # if it has ended, it was cancelled while it waited
                    self._run(kept)
        finally:
            _running.reset(token)

    def _run(self, kept: KeptTask) -> None:
        ran = self._attempt(kept)
        while ran.outcome == RetryOutcome.label:
            self.kept_tasks.promote(kept)
            ran = self._attempt(kept)
        if self._raises and ran.outcome == State.DEAD:
            raise_failure(ran, kept)

    def _attempt(self, kept: KeptTask) -> Ran:
        ran = run_attempt(self.kept_tasks, kept, _now_us(), self._mode)
        self.ran.append(ran)
        return ran


def _now_us() -> int:
    return round(time.time() * MICROSECONDS)
