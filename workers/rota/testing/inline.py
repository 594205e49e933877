"""An attempt in this process, by the code with which a worker makes it."""

import asyncio
import contextvars
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, NoReturn, assert_never

from rota.child.life import NANOSECONDS
from rota.child.slot_layout import METRICS_AT, ROSTER_PART_BYTES
from rota.child.slots import Slot, boottime_ns
from rota.client.failures import ResultNotStored, TaskDead
from rota.client.results import result_of
from rota.client.status import status_of
from rota.durations import MICROSECONDS
from rota.protocol.body import decode_body
from rota.protocol.outcome import CancelledOutcome, DeadOutcome, Done, Expired, Outcome, Release, RetryOutcome
from rota.protocol.task_states import State
from rota.protocol.turns import ThrottleWord
from rota.soft_limit import SoftLimit, soft_limit
from rota.tasks.fleet_settings import DEFAULT_MAX_RESULT_KB, DEFAULT_TIME_LIMIT_SECONDS
from rota.tasks.hooks import default_hooks
from rota.tasks.registry import default_registry
from rota.tasks.retry_rules import DeadReason
from rota.testing.books import OWNER, Books, KeptTask
from rota.testing.limits import is_in_main_thread, limit_enforced
from rota.testing.terms import IN_TESTS
from rota.worker.application import NoCopies, Runner
from rota.worker.attempt import Attempt
from rota.worker.attempt_maker import AttemptMaker, ShortLimits
from rota.worker.claims import Claimed
from rota.worker.executor import Executor
from rota.worker.preparation import Preparer
from rota.worker.redis_times import Anchor
from rota.worker.start_permission import MayStart

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
