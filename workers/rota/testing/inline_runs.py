"""Attempts in the process of the test, made as a worker makes them, and calls that run where they are enqueued."""

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

from rota.child.child_life import SOFT_LIMIT_SIGNAL
from rota.child.slot_layout import METRICS_AT, ROSTER_PART_BYTES
from rota.child.slot_record import TaskRecord
from rota.child.slots import Slot, boottime_ns
from rota.client.inquiries import ResultNotStored, TaskDead, result_of
from rota.client.status import status_of
from rota.durations import MICROSECONDS, NANOSECONDS
from rota.protocol.body import decode_body
from rota.protocol.new_tasks import NewTask
from rota.protocol.outcome import CancelledOutcome, DeadOutcome, Done, Expired, Outcome, Release, RetryOutcome
from rota.protocol.task_states import State
from rota.protocol.turns import ThrottleWord
from rota.soft_limit import SoftLimit, soft_limit
from rota.tasks.claimed_call import DefaultTerms, MayStart, Preparer
from rota.tasks.fleet_settings import DEFAULT_MAX_RESULT_KB, DEFAULT_TIME_LIMIT_SECONDS
from rota.tasks.hooks import default_hooks
from rota.tasks.registry import default_registry
from rota.tasks.retry_rules import DeadReason
from rota.testing.kept_tasks import OWNER, Books, KeptTask
from rota.testing.stand_in import StandIn, standing_in
from rota.worker.application import NoCopies, Runner
from rota.worker.attempt import Attempt, AttemptMaker, ShortLimits
from rota.worker.claims import Claimed
from rota.worker.executor import Executor
from rota.worker.redis_times import Anchor

_LOOK_SECONDS: Final = 0.005
_limited: Final[list[TaskRecord]] = []  # what runs under a soft limit
IN_TESTS: Final = DefaultTerms()


def is_in_main_thread() -> bool:
    """Whether this thread can be told: Python runs handlers of signals in the main one alone."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def limit_enforced(record: TaskRecord) -> Iterator[None]:
    """Have what the record shows to run be told when it is over its soft limit. To be used in the main thread."""
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


@cache  # the handler stays, as those that are to be called at forks do
def _install() -> None:
    soft_limit.install(SOFT_LIMIT_SIGNAL, lambda: any(record.is_cancelled() for record in _limited))


def _watch(record: TaskRecord, over: threading.Event) -> None:
    main = threading.main_thread().ident
    assert main is not None
    while not over.wait(_LOOK_SECONDS):
        times = record.times()
        is_over = times is not None and 0 < times.soft_deadline_ns <= boottime_ns()
        if is_over or record.is_cancelled():
            signal.pthread_kill(main, SOFT_LIMIT_SIGNAL)


_LONGEST_NS: Final = 1 << 62
RETRY: Final = "retry"
_LONGEST_DELAY: Final = 1.0  # in place of a random number: what jitter draws at most, so that each run is the same


@dataclass(frozen=True, slots=True)
class Ran:
    """One attempt that was made. `outcome`: done, retry (there is a further attempt, `delay` seconds from then), dead,
    expired or cancelled. `exception`: what the task raised; `error` says it in a line, or why it could not be called.
    `result`: what it returned, as its handle has it, where `result_ttl` has that kept."""

    task: str
    id: str
    attempt: int
    outcome: str
    exception: BaseException | None = None
    error: str = ""
    delay: float = 0.0
    result: Any = None

    @property
    def has_failed(self) -> bool:
        """Whether it came to nothing, be there a further attempt or not."""
        return self.outcome in (RETRY, State.DEAD)


class Manner(NamedTuple):
    """How tasks are run: whether one that failed is tried again, and whether soft limits are told."""

    retries: bool
    limits: bool


def run_attempt(books: Books, kept: KeptTask, now_us: int, manner: Manner) -> Ran:
    """Make the next attempt of a task, and write down what came of it. Raises KeyboardInterrupt."""
    entry, attempt = kept.entry, _attempt(kept, now_us, manner)
    books.settle(kept, attempt)
    told = Ran(decode_body(kept.body).name, entry.id, entry.attempt, "", attempt.exception, attempt.error)
    return _with_outcome(told, attempt.outcome, kept)


def raise_failure(ran: Ran, kept: KeptTask) -> NoReturn:
    """Raise what the task raised, or TaskDead for one that could not even be called."""
    if ran.exception is not None:
        raise ran.exception
    raise TaskDead(f"task {ran.id} ({ran.task}) is dead: {ran.error}", status_of(ran.id, kept.found()))


def _with_outcome(ran: Ran, outcome: Outcome, kept: KeptTask) -> Ran:
    match outcome:
        case Done():
            return replace(ran, outcome=State.DONE.value, result=_returned(kept))
        case RetryOutcome(delay_us):
            return replace(ran, outcome=RETRY, delay=delay_us / MICROSECONDS)
        case DeadOutcome():
            return replace(ran, outcome=State.DEAD.value)
        case Expired():
            return replace(ran, outcome=State.EXPIRED.value)
        case CancelledOutcome():
            return replace(ran, outcome=State.CANCELLED.value)
        case Release():  # nothing that runs here is given back
            raise AssertionError(ran)
        case _:
            assert_never(outcome)


def _returned(kept: KeptTask) -> Any:
    """As a handle has it."""
    found = kept.found()
    try:
        return result_of(status_of(kept.entry.id, found), found.result)
    except ResultNotStored:
        return None


def _attempt(kept: KeptTask, now_us: int, manner: Manner) -> Attempt:
    slot = Slot(memoryview(bytearray(METRICS_AT)), memoryview(bytearray(ROSTER_PART_BYTES)))
    limited = manner.limits and is_in_main_thread()
    runner = _Runner(soft_limit if limited else SoftLimit())
    now_ns = boottime_ns()
    claimed = Claimed(kept.entry, kept.body, Anchor(now_us, now_ns, now_ns), 0, _LONGEST_NS)
    executor = _executor(slot, runner)
    kept.state, kept.record = State.RUNNING, executor.record
    try:
        with limit_enforced(executor.record) if limited else nullcontext():
            attempt = executor.attempt(claimed, now_ns)
    finally:
        runner.close()
    assert isinstance(attempt, Attempt), "nobody asks before it starts"
    if isinstance(attempt.exception, KeyboardInterrupt):
        raise attempt.exception
    if isinstance(attempt.outcome, RetryOutcome) and not manner.retries:
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
    return Executor(maker, slot.record(0), runner, lambda attempt: MayStart(attempt.entry, ThrottleWord.START))


class _Runner(Runner):
    """A worker's, but for a coroutine of a task that is called where an event loop runs already: that one gets a thread
    of its own, with a loop of its own."""

    def _await(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        if asyncio._get_running_loop() is None:  # noqa: SLF001 - the public one raises instead
            return super()._await(coroutine)
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(contextvars.copy_context().run, self._await_and_close, coroutine).result()

    def _await_and_close(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        try:
            return super()._await(coroutine)
        finally:
            self.close()


_HOW_TO_RUN: Final = "eager() runs what a task enqueues after that task, so nothing in it can wait for that"
_running: ContextVar["tuple[_Line, deque[KeptTask]] | None"] = ContextVar("rota_testing_running", default=None)
"""Which block runs the task of this context, and what that block runs after it."""


@contextmanager
def eager(*, retries: bool = False, limits: bool = False, raises: bool = True) -> Iterator[list[Ran]]:
    """Run each call that is enqueued in the block, in this process, before the enqueue returns; gives the attempts that
    were made.

    It is run whenever it is due. What a task enqueues runs after it. `retries`: what failed is tried again, at once,
    as its options say; else the first failure is its last. `limits`: the soft time limit is raised, in what the main
    thread enqueues. `raises`: what a task raised at last comes out of the enqueue; else its handle says that it is
    dead. Handles answer inside the block, with results as workers keep them (`result_ttl`).
    """
    line = _Line(Manner(retries, limits), raises=raises)
    with standing_in(StandIn(line.books, line.accepted, _HOW_TO_RUN)):
        yield line.ran


class _Line:
    """Runs what is enqueued, one behind the other; what a task enqueues stands behind all before it."""

    def __init__(self, manner: Manner, *, raises: bool) -> None:
        self.books = Books(_now_us)
        self.ran: list[Ran] = []
        self._manner = manner
        self._raises = raises

    def accepted(self, _namespace: str, tasks: Sequence[tuple[NewTask, KeptTask]]) -> None:
        """Run them; in a task, leave them for after it."""
        line = deque(kept for _, kept in tasks)
        running = _running.get()
        if running is not None and running[0] is self:
            running[1].extend(line)
        else:
            self._run_all(line)

    def _run_all(self, line: deque[KeptTask]) -> None:
        token = _running.set((self, line))
        try:
            while line:
                kept = line.popleft()
                if kept.ended is None:  # else it was cancelled
                    self._run(kept)
        finally:
            _running.reset(token)

    def _run(self, kept: KeptTask) -> None:
        ran = self._attempt(kept)
        while ran.outcome == RETRY:
            self.books.promote(kept)
            ran = self._attempt(kept)
        if self._raises and ran.outcome == State.DEAD:
            raise_failure(ran, kept)

    def _attempt(self, kept: KeptTask) -> Ran:
        ran = run_attempt(self.books, kept, _now_us(), self._manner)
        self.ran.append(ran)
        return ran


def _now_us() -> int:
    return round(time.time() * MICROSECONDS)
