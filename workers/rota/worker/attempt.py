"""One attempt at a task: its parts, its limits, its outcome and its report. This module does no I/O and never waits.

Workers that run one task at a time and workers that run many use the same code. The master enforces the limits of tasks
but imports no user code, so the worker writes into the slot what the master has to do if a limit ends the attempt.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, assert_never

from rota.child.slot_record import KillPolicy, TaskRecord
from rota.child.slots import Slot, boottime_ns
from rota.durations import NANOSECONDS, utc_datetime
from rota.errors import Cancelled, Retry, TimeLimit
from rota.protocol.body import texts_in
from rota.protocol.entry import MICROSECONDS, Entry
from rota.protocol.outcome import (
    DONE,
    FAILED,
    CancelledOutcome,
    DeadOutcome,
    Done,
    Expired,
    FailureRecord,
    Outcome,
    RetryOutcome,
    Settlement,
    error_line,
    ran_by,
    run_record_of,
    traceback_text,
)
from rota.protocol.progress import progress_text
from rota.protocol.turns import ThrottleStatus
from rota.soft_limit import soft_limit
from rota.tasks.arguments import kept_result
from rota.tasks.claimed_call import CallSettings, MayStart, Preparer, Runnable, StartGenerator, StartSteps, Unfit
from rota.tasks.hooks import AttemptFailure, CurrentTask, Hooks
from rota.tasks.options import TaskOptions
from rota.tasks.retry_rules import GiveUp, decide
from rota.worker.application import NoCopies, call_hook
from rota.worker.claims import Claimed
from rota.worker.redis_times import NOT_STARTED, Anchor, Times, times_of

_NANOSECONDS_A_MICROSECOND: Final = 1000
NO_TASK: Final = ""  # the name, in metrics and logs, of a task whose body was never decoded


@dataclass(slots=True)
class Attempt:
    """An attempt that is running or has ended. The slot shows the attempt while it is running."""

    entry: Entry  # the claimed entry, or the newer one that Redis returned with the permission to start
    name: str  # name of the task
    limit_ns: int  # hard time limit in nanoseconds
    record: TaskRecord  # the record in the slot that shows the attempt
    number: int  # the task number in the slot record, which identifies this attempt
    prepared: Runnable | Unfit | None  # None if the task was cancelled after a claim whose reply was lost
    needs_permission: bool = False  # whether Redis has to permit the start
    ran_by: bytes = b""  # process and task name for the run record in Redis; empty if Redis stores none
    times: Times = NOT_STARTED  # set when the attempt starts, and again just before the call if hooks ran before it
    runtime_seconds: float = 0.0  # run time of the function
    outcome: Outcome = DONE
    reason: str = ""  # why the task is dead; empty if it is not
    error: str = ""  # one line
    exception: BaseException | None = None  # the exception that the function raised
    soft_limit_ns: int = 0  # soft time limit in nanoseconds, 0 for none
    soft_deadline_ns: int = 0  # soft deadline by CLOCK_BOOTTIME, 0 for none
    # Called with the new soft deadline when the task extends its limit.
    extend_soft_limit: Callable[[int], None] = soft_limit.extend
    _current: CurrentTask | None = None  # created on first use by `current`

    def current(self) -> CurrentTask:
        """Return the attempt as the application sees it. The object is made on first use because most tasks never need
        it."""
        if self._current is None:
            entry = self.entry
            self._current = CurrentTask(
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
                self._report,
                self.is_cancelled,
                texts_in(self.prepared.extra) if isinstance(self.prepared, Runnable) else {},
            )
        return self._current

    @property
    def trace_id(self) -> str:
        """The id of the trace that the attempt is part of, or ""."""
        return "" if self._current is None else self._current.trace_id

    def steps_to_start(self, starts: StartSteps) -> StartGenerator:
        """Return the steps that ask Redis for permission to start this task. Call it only if `needs_permission` is
        set."""
        assert isinstance(self.prepared, Runnable)
        return starts.steps(self.entry, self.prepared)

    def may_start(self, permission: MayStart) -> bool:
        """Whether Redis has permitted the start of the attempt. If so, this also stores the entry that Redis returned.
        If Redis reported that the start is too late, the outcome becomes `Expired`."""
        if permission.entry is None:
            return False
        if permission.entry is not self.entry:
            self.entry = permission.entry
            self.record.restart(self.entry.text, boottime_ns())
        if permission.status is ThrottleStatus.LATE:
            self.outcome = Expired()
        return True

    def called(self, times: Times) -> None:
        """Store the start times. The executor calls this just before it calls the task's function."""
        self.times = times
        if self._current is not None:
            self._current.lag_seconds = times.lag_seconds

    def is_cancelled(self) -> bool:
        """Whether the task was cancelled while it ran."""
        return self.record.cancelled == self.number

    def settlement(self) -> Settlement:
        """Return the settlement for Redis, with a record of the attempt if the task stores such records."""
        ran_by = self.ran_by
        outcome = self.outcome
        seconds = self.runtime_seconds
        if not ran_by:
            return Settlement(self.entry, outcome)
        refused = outcome.refused if outcome is not DONE and isinstance(outcome, Done) else ""
        run = run_record_of(self.times.start_us if seconds else 0, seconds * MICROSECONDS, ran_by, refused)
        return _settlement((self.entry, outcome, run))

    def die(self, reason: str, why: str, owner: str) -> None:
        """Make the task dead, so that it gets no further attempt."""
        trace = "" if self.exception is None else traceback_text(self.exception)
        self.reason = str(reason)
        self.error = why
        self.outcome = DeadOutcome(self._failure_record(self.reason, trace, owner))

    def fail(self, delay_us: int, exception: BaseException, owner: str) -> None:
        """Record that the attempt failed, and that the next attempt is due `delay_us` microseconds from now."""
        self.error = error_line(exception)
        self.outcome = RetryOutcome(delay_us, self._failure_record(FAILED, "", owner))

    def failure(self) -> AttemptFailure | None:
        """Return how the attempt failed, or None if it did not fail. A retry that the task itself requested is not a
        failure."""
        match self.outcome:
            case Done():
                return None
            case DeadOutcome():
                return AttemptFailure(self.reason, self.error, self.exception)
            case RetryOutcome(delay_us) if not isinstance(self.exception, Retry):
                return AttemptFailure(FAILED, self.error, self.exception, delay_us / MICROSECONDS)
            case _:
                return None

    def _failure_record(self, reason: str, trace: str, owner: str) -> bytes:
        seconds = self.runtime_seconds
        lag = self.times.lag_seconds
        record = FailureRecord(reason, self.error, self.entry.attempt, trace, owner, os.getpid(), seconds, lag)
        return record.to_json(datetime.now(UTC))

    def _extend(self) -> datetime | None:
        if self.record.number != self.number:
            # The caller is a thread or coroutine that an earlier task left behind. The limits of this attempt do not
            # apply to it.
            return None
        now_ns = boottime_ns()
        if self.soft_limit_ns:
            self.soft_deadline_ns = now_ns + self.soft_limit_ns
            self.extend_soft_limit(self.soft_deadline_ns)
        self.record.heartbeat(now_ns)
        self.record.extend(now_ns + self.limit_ns, self.soft_deadline_ns)
        return datetime.now(UTC) + timedelta(microseconds=self.limit_ns // _NANOSECONDS_A_MICROSECOND)

    def _report(self, done: float, total: float | None, note: str) -> None:
        at_us = time.time_ns() // _NANOSECONDS_A_MICROSECOND
        self.record.report_progress(self.entry.text, progress_text(done, total, note, at_us))


_settlement: Final = partial(tuple.__new__, Settlement)  # calling `tuple.__new__` is faster than calling the class


# Interval at which the master checks its workers, unless a soft limit requires a shorter one.
_ROUND_NS: Final = NANOSECONDS
# How long a limit counts; the master remembers it for a few seconds longer, in case a write is late.
_REMEMBERED_NS: Final = 60 * NANOSECONDS


def kill_policy_of(options: TaskOptions, failures: int, random: Callable[[], float]) -> KillPolicy:
    """Return the policy that the master applies to the task if this attempt exceeds the hard time limit or crashes its
    worker. `failures` is the number of earlier attempts that failed.

    The retry delay in a kill policy may be random. That is safe, because a policy is used only once: the worker dies,
    and the next worker computes its own policies.
    """
    if options.is_started_once:
        return KillPolicy()  # a task that may be started only once gets no second attempt
    decided = decide(options, failures + 1, TimeLimit("the time limit was exceeded"), random)
    retry_us = decided.delay_us if isinstance(decided, RetryOutcome) else None
    return KillPolicy(counts_as_failure=True, retry_us=retry_us, crash_limit=options.crash_limit or 0)


class ShortLimits:
    """The shortest soft limit of the tasks of the last minute. If it is under a second, the slot shows it to the
    master. The master then checks its workers often enough to enforce this limit in time."""

    def __init__(self, slot: Slot, ring_master: Callable[[], None]) -> None:
        self._slot = slot
        self._ring_master = ring_master
        self._shortest_ns = _ROUND_NS
        self._met_ns = 0

    def note(self, soft_limit_ns: int, at_ns: int) -> None:
        """Record the soft limit of a task that starts, and show it in the slot if it is the shortest soft limit of the
        last minute. `at_ns` is the time at which the task was written into the slot (CLOCK_BOOTTIME)."""
        if soft_limit_ns >= _ROUND_NS:
            return
        is_news = soft_limit_ns < self._shortest_ns or at_ns - self._met_ns > _REMEMBERED_NS
        if is_news or soft_limit_ns == self._shortest_ns:
            self._shortest_ns = soft_limit_ns
            self._met_ns = at_ns
            self._slot.show_soft_limit(soft_limit_ns, at_ns)
        if is_news:  # the limit may pass before the master's next regular check, so wake the master
            self._ring_master()


@dataclass(frozen=True, slots=True)
class AttemptMaker:
    """Makes attempts: decodes a claimed task, decides whether its function is called, and decides the outcome. The
    executors of both kinds of worker use it, and call the function themselves."""

    limit_ns: int  # the fleet's hard time limit in nanoseconds
    preparer: Preparer
    hooks: Hooks
    # Called just before the task's function, so that the start counts even if the task kills its worker.
    started: Callable[[Entry, Times], None]
    no_copies: NoCopies  # ends a forked copy of this process, if a task has forked
    random: Callable[[], float]  # returns a number in [0, 1)
    short_limits: ShortLimits  # shows short soft limits to the master
    max_result_kb: int
    owner: str  # the name that this worker claims under

    def open(self, record: TaskRecord, claimed: Claimed, at_ns: int) -> Attempt:
        """Show a claimed task in the slot, and decode it. This never raises an exception. If the task cannot be
        decoded, the attempt's `prepared` is an `Unfit`."""
        entry = claimed.entry
        # Write the entry first, so that the master knows the task if a later statement kills the process.
        deadline_ns = at_ns + self.limit_ns
        number = record.start(entry.text, "", at_ns, deadline_ns, claimed.anchor.received_ns, claimed.unstarted)
        prepared = self.preparer.prepare(claimed.body, entry.id, entry.queue) if claimed.body else None
        if not isinstance(prepared, Runnable):
            return self._open_unfit(record, number, entry, prepared)
        name = prepared.task.name
        settings = prepared.settings
        kill_policy = settings.kill_policies.get(entry.failures)
        record.name(name, self._decide(settings, entry.failures) if kill_policy is None else kill_policy)
        return Attempt(
            entry, name, settings.limit_ns, record, number, prepared, settings.needs_permission, settings.ran_by
        )

    def _open_unfit(self, record: TaskRecord, number: int, entry: Entry, unfit: Unfit | None) -> Attempt:
        name, run_by = (NO_TASK, ran_by(os.getpid(), NO_TASK)) if unfit is None else (unfit.name, b"")
        record.name(name)
        return Attempt(entry, name, self.limit_ns, record, number, unfit, ran_by=run_by)

    def start(self, attempt: Attempt, anchor: Anchor, at_ns: int, start_ns: int) -> Runnable | None:
        """Start an attempt at `start_ns`, with limits that count from `at_ns`. Returns the call to make, or None if the
        attempt has ended without a call."""
        attempt.times = times_of(attempt.entry, anchor, start_ns)
        ready = attempt.prepared
        if isinstance(ready, Runnable):
            if ready.settings.are_plain or self._start_limited(attempt, ready.settings, at_ns):
                return ready
            attempt.outcome = Expired()
        elif ready is None:
            attempt.outcome = CancelledOutcome()
        else:
            attempt.die(ready.fault, ready.error, self.owner)
        return None

    def _start_limited(self, attempt: Attempt, settings: CallSettings, at_ns: int) -> bool:
        """Write the time limits of an attempt into the slot. Returns False if the function must not be called, because
        the task has expired or because Redis reported that it is late."""
        if settings.soft_limit_ns:
            attempt.soft_limit_ns = settings.soft_limit_ns
            attempt.soft_deadline_ns = at_ns + settings.soft_limit_ns
            self.short_limits.note(settings.soft_limit_ns, at_ns)
        attempt.record.extend(at_ns + settings.limit_ns, attempt.soft_deadline_ns)
        expires = settings.options.expires
        return attempt.outcome is DONE and (expires is None or attempt.times.lag_seconds <= expires)

    def keep_result(self, attempt: Attempt, ready: Runnable, value: Any) -> None:
        """Keep the function's return value as the task's result."""
        attempt.outcome = kept_result(value, ready.settings.options.result_ttl, self.max_result_kb, ready.task.typed)

    def failed(self, attempt: Attempt, ready: Runnable, exception: BaseException) -> None:
        """Decide the outcome of an attempt whose function raised an exception."""
        attempt.exception = exception
        if isinstance(exception, Cancelled) or attempt.is_cancelled():  # a cancelled task is never retried
            attempt.outcome = CancelledOutcome()
            attempt.error = error_line(exception)
            return
        with self.no_copies:  # the back-off may be a function of the application, which may fork
            decided = decide(ready.settings.options, attempt.entry.failures + 1, exception, self.random)
        match decided:
            case RetryOutcome(delay_us):
                attempt.fail(delay_us, exception, self.owner)
            case GiveUp(reason, why):
                attempt.die(reason, why, self.owner)
            case _:
                assert_never(decided)

    def call_failure_hooks(self, attempt: Attempt) -> None:
        """Call the hooks for a failed attempt. The outcome of the attempt is already in the slot, so it counts even if
        a hook kills the worker. The hooks have a time limit of their own: the fleet's hard limit, counted from now."""
        if attempt.outcome is DONE or (failure := attempt.failure()) is None:
            return
        attempt.record.extend(boottime_ns() + self.limit_ns, 0)
        for failure_hook in self.hooks.failure:
            call_hook(failure_hook, attempt.current(), failure)
        for dead_hook in self.hooks.dead if failure.is_dead else ():
            call_hook(dead_hook, attempt.current(), attempt.error)

    def _decide(self, settings: CallSettings, failures: int) -> int:
        """Return the kill policy for attempts after `failures` failures, as the number that is written into the slot.
        Each policy is computed only once."""
        with self.no_copies:  # the back-off may be a function of the application, which may fork
            word = settings.kill_policies[failures] = kill_policy_of(settings.options, failures, self.random).to_word()
        return word
