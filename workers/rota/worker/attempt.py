"""One attempt: from a claim to its outcome. Nothing here talks to Redis."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, assert_never

from rota.child.slot_task import TaskInSlot
from rota.child.slots import Slot, boottime_ns
from rota.current import CurrentTask, Running
from rota.durations import utc_datetime
from rota.hooks import Hooks
from rota.protocol.entry import Entry
from rota.protocol.epitaph import Epitaph, error_line, traceback_text
from rota.protocol.outcome import DONE, CancelledOutcome, DeadOutcome, Expired, Outcome, RetryOutcome
from rota.retry import GiveUp, decide
from rota.soft_limit import soft_limit
from rota.worker.application import NoCopies, call_hook
from rota.worker.holding import Claimed
from rota.worker.prepare import NotRunnable, Preparer, Runnable, Unfit
from rota.worker.runner import Runner
from rota.worker.times import Times, times_of
from rota.worker.urgency import Urgency

_NANOSECONDS_A_MICROSECOND: Final = 1000
NO_TASK: Final = ""  # the name, in metrics and logs, of a task whose body was never looked at


class Verdict(NamedTuple):
    """How an attempt ended. `reason` is that of a death, else ""; `error` what was wrong, in a line;
    `exception` what the task raised."""

    outcome: Outcome
    reason: str = ""
    error: str = ""
    exception: BaseException | None = None


_WELL: Final = Verdict(DONE)


@dataclass(slots=True)
class Attempt:
    """An attempt, running or ended. `times` are those of a start now, until the function is called.
    `soft_limit_ns` and `soft_deadline_ns` (CLOCK_BOOTTIME) are 0 without a soft limit."""

    entry: Entry
    name: str
    times: Times
    limit_ns: int
    slot: Slot
    runtime_seconds: float = 0.0
    verdict: Verdict = _WELL
    soft_limit_ns: int = 0
    soft_deadline_ns: int = 0
    _current: CurrentTask | None = None

    def current(self) -> CurrentTask:
        """The attempt as the application sees it; made when somebody looks, as most tasks never do."""
        if self._current is None:
            self._current = self._make_current()
        return self._current

    def called(self, times: Times) -> None:
        """The function is called only now."""
        self.times = times
        if self._current is not None:
            self._current.lag_seconds = times.lag_seconds

    def _make_current(self) -> CurrentTask:
        entry = self.entry
        return CurrentTask(
            entry.id,
            self.name,
            entry.queue,
            entry.kind.label,
            entry.attempt,
            entry.crashes,
            utc_datetime(entry.due_us),
            self.times.lag_seconds,
            utc_datetime(self.times.start_us + self.limit_ns // _NANOSECONDS_A_MICROSECOND),
            self._extend,
        )

    def _extend(self) -> datetime | None:
        running = self.slot.current_task()
        if running is None or running.entry != self.entry.text:
            return None  # said by what an earlier task left running, a thread or a coroutine: the limits are another's
        now_ns = boottime_ns()
        if self.soft_limit_ns:
            self.soft_deadline_ns = now_ns + self.soft_limit_ns
            soft_limit.extend(self.soft_deadline_ns)
        self.slot.beat(now_ns)
        self.slot.extend_task(now_ns + self.limit_ns, self.soft_deadline_ns)
        return datetime.now(UTC) + timedelta(microseconds=self.limit_ns // _NANOSECONDS_A_MICROSECOND)


@dataclass(frozen=True, slots=True)
class Bench:
    """What attempts are made with. `limit_ns`: the fleet's time limit in nanoseconds. `started` is told of each start
    before the function is called, as a task that kills its worker has started too. `alone` keeps copies of this process
    out of it. `random` answers a number in [0, 1). `urgency` is told of soft limits.
    """

    limit_ns: int
    preparer: Preparer
    hooks: Hooks
    slot: Slot
    runner: Runner
    started: Callable[[Entry, Times], None]
    alone: NoCopies
    random: Callable[[], float]
    urgency: Urgency


def make_attempt(bench: Bench, claimed: Claimed, at_ns: int) -> Attempt | None:
    """Run what was claimed, unless it cannot be run; the slot names it from here on. Never raises for its sake.

    `at_ns` is the time. None when it came too late to be started without asking: nothing of it was run.
    """
    entry, slot = claimed.entry, bench.slot
    limit_ns, soft_limit_ns = bench.limit_ns, 0
    # Before anything is looked at: whatever ends the process from here on, it is known which task it was.
    slot.start_task(TaskInSlot(entry.text, "", at_ns, at_ns + limit_ns, claimed.anchor.received_ns, claimed.unstarted))
    prepared = _prepare(bench, claimed.body)
    name = NO_TASK if prepared is None else prepared.name
    slot.name_task(name)
    if isinstance(prepared, Runnable):
        limit_ns, soft_limit_ns = prepared.limit_ns, prepared.soft_limit_ns
        slot.extend_task(at_ns + limit_ns, at_ns + soft_limit_ns if soft_limit_ns else 0)
    start_ns = boottime_ns()  # after the slot was written: see `rota.worker.holding`
    if start_ns > claimed.start_by_ns:
        slot.end_task()
        return None
    attempt = Attempt(entry, name, times_of(entry, claimed.anchor, start_ns), limit_ns, slot)
    if soft_limit_ns:
        attempt.soft_limit_ns, attempt.soft_deadline_ns = soft_limit_ns, at_ns + soft_limit_ns
        bench.urgency.met(soft_limit_ns, at_ns)
    attempt.verdict = _carry_out(bench, claimed, prepared, attempt)
    return attempt


def tell_of_death(bench: Bench, attempt: Attempt) -> None:
    """Call the hooks for a task that is dead, once its outcome is in the slot: if one kills the worker, the death
    counts. They have a time limit of their own, the fleet's."""
    if not isinstance(attempt.verdict.outcome, DeadOutcome):
        return
    bench.slot.extend_task(boottime_ns() + bench.limit_ns, 0)
    for hook in bench.hooks.dead:
        call_hook(hook, attempt.current(), attempt.verdict.error)


def _prepare(bench: Bench, body: bytes) -> Runnable | Unfit | None:
    """None for a task that was cancelled after the claim whose answer was lost: its body is gone."""
    if not body:
        return None
    try:
        return bench.preparer.prepare(body)
    except Exception as error:  # noqa: BLE001 - the task boundary: a body nobody foresaw is no reason to end a worker
        return Unfit(NotRunnable.GARBAGE, f"it cannot be prepared: {error_line(error)}")


def _carry_out(bench: Bench, claimed: Claimed, prepared: Runnable | Unfit | None, attempt: Attempt) -> Verdict:
    match prepared:
        case None:
            return Verdict(CancelledOutcome())
        case Unfit(fault, error):
            return _dead(claimed.entry, fault, error, None)
        case Runnable() if _has_expired(prepared, attempt.times.lag_seconds):
            return Verdict(Expired())
        case Runnable():
            exception = _guarded(bench, attempt, lambda: _call(bench, claimed, prepared, attempt))
            return _WELL if exception is None else _judge(bench, prepared, claimed.entry, exception)
        case _:
            assert_never(prepared)


def _guarded(bench: Bench, attempt: Attempt, call: Callable[[], None]) -> BaseException | None:
    try:
        with bench.alone, Running(attempt.current):
            if bench.hooks.around:
                with bench.hooks.wrapped(attempt.current()), bench.alone:  # what hooks do after a task is done once
                    call()
            else:
                call()
    except BaseException as exception:  # noqa: BLE001 - the task boundary: SystemExit fails the attempt as well
        return exception
    return None


def _call(bench: Bench, claimed: Claimed, ready: Runnable, attempt: Attempt) -> None:
    """The start, and nothing between it and the function: what hooks took before is lag."""
    if bench.hooks.around:
        attempt.called(times_of(claimed.entry, claimed.anchor, boottime_ns()))
    bench.started(claimed.entry, attempt.times)
    started = time.monotonic()
    try:
        bench.runner.call(ready.task, ready.args, ready.kwargs, attempt.soft_deadline_ns)
    finally:
        attempt.runtime_seconds = time.monotonic() - started


def _judge(bench: Bench, ready: Runnable, entry: Entry, exception: BaseException) -> Verdict:
    with bench.alone:  # the back-off may be the application's function
        decided = decide(ready.options, entry.failures + 1, exception, bench.random)
    match decided:
        case RetryOutcome():
            return Verdict(decided, error=error_line(exception), exception=exception)
        case GiveUp(reason, why):
            return _dead(entry, reason, why, exception)
        case _:
            assert_never(decided)


def _dead(entry: Entry, reason: str, why: str, exception: BaseException | None) -> Verdict:
    trace = "" if exception is None else traceback_text(exception)
    epitaph = Epitaph(str(reason), why, entry.attempt, trace).to_json(datetime.now(UTC))
    return Verdict(DeadOutcome(epitaph), str(reason), why, exception)


def _has_expired(ready: Runnable, lag_seconds: float) -> bool:
    return ready.options.expires is not None and lag_seconds > ready.options.expires
