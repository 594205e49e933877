"""One attempt, however its function is called: what it is made of, its limits, whether it can run, what becomes of an
exception that it raises, and what Redis and people are told of it. Nothing here waits, or talks to Redis.

The master keeps the limits of tasks and imports no user code, so the worker shows it in the slot what follows when a
limit ends an attempt.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, assert_never

from rota.child.slot_record import TaskRecord, Verdict
from rota.child.slots import Slot, boottime_ns
from rota.durations import NANOSECONDS, utc_datetime
from rota.errors import Cancelled, Retry, TimeLimit
from rota.protocol.body import texts_in
from rota.protocol.entry import MICROSECONDS, Entry
from rota.protocol.outcome import (
    DONE,
    FAILED,
    Account,
    CancelledOutcome,
    DeadOutcome,
    Done,
    Expired,
    Outcome,
    RetryOutcome,
    Settlement,
    account_of,
    error_line,
    ran_by,
    traceback_text,
)
from rota.protocol.progress import progress_text
from rota.protocol.turns import ThrottleWord
from rota.soft_limit import soft_limit
from rota.tasks.arguments import kept_result
from rota.tasks.claimed_call import CallTerms, MayStart, Preparer, Runnable, StartSteps, Steps, Unfit
from rota.tasks.hooks import AttemptFailure, CurrentTask, Hooks
from rota.tasks.options import TaskOptions
from rota.tasks.retry_rules import GiveUp, decide
from rota.worker.application import NoCopies, call_hook
from rota.worker.claims import Claimed
from rota.worker.redis_times import NOT_BEGUN, Anchor, Times, times_of

_NANOSECONDS_A_MICROSECOND: Final = 1000
NO_TASK: Final = ""  # the name, in metrics and logs, of a task whose body was never looked at


@dataclass(slots=True)
class Attempt:
    """An attempt: shown in the slot, running or ended. `record` shows it, under this `number` of the life and place.
    `prepared` is None for a task that was cancelled after the claim whose answer was lost: its body is gone.
    `asks_first`: whether Redis is to be asked before its start. `times`: as if it started when it was begun, until the
    function is called. `soft_limit_ns` and `soft_deadline_ns` (CLOCK_BOOTTIME) are 0 without a soft limit;
    `extend_soft_limit` is told of each new deadline.

    Of one that ended, `reason` is that of a death, else ""; `error` what was wrong, in a line; `exception` what the
    task raised. `ran_by`: for the account of its run, empty when its end is not to be remembered.
    """

    entry: Entry
    name: str
    limit_ns: int
    record: TaskRecord
    number: int
    prepared: Runnable | Unfit | None
    asks_first: bool = False
    ran_by: bytes = b""
    times: Times = NOT_BEGUN
    runtime_seconds: float = 0.0
    outcome: Outcome = DONE
    reason: str = ""
    error: str = ""
    exception: BaseException | None = None
    soft_limit_ns: int = 0
    soft_deadline_ns: int = 0
    extend_soft_limit: Callable[[int], None] = soft_limit.extend
    _current: CurrentTask | None = None

    def current(self) -> CurrentTask:
        """The attempt as the application sees it; made when somebody looks, as most tasks never do."""
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
        """The trace that it is part of, "" for none."""
        return "" if self._current is None else self._current.trace_id

    def steps_to_start(self, starts: StartSteps) -> Steps:
        """Give the steps to its start, as its task `asks_first`."""
        assert isinstance(self.prepared, Runnable)
        return starts.steps(self.entry, self.prepared)

    def may_begin(self, answer: MayStart) -> bool:
        """Whether it may begin; then it has the entry as it is now. A late one expires as it begins."""
        if answer.entry is None:
            return False
        if answer.entry is not self.entry:
            self.entry = answer.entry
            self.record.begin(self.entry.text, boottime_ns())
        if answer.word is ThrottleWord.LATE:
            self.outcome = Expired()
        return True

    def called(self, times: Times) -> None:
        """The function is called only now."""
        self.times = times
        if self._current is not None:
            self._current.lag_seconds = times.lag_seconds

    def is_cancelled(self) -> bool:
        """Whether it was cancelled while it ran."""
        return self.record.cancelled == self.number

    def settlement(self) -> Settlement:
        """What Redis is told of it: with the account of its run, unless its end is not to be remembered."""
        ran_by, outcome, seconds = self.ran_by, self.outcome, self.runtime_seconds
        if not ran_by:
            return Settlement(self.entry, outcome)
        refused = outcome.refused if outcome is not DONE and isinstance(outcome, Done) else ""
        account = account_of(self.times.start_us if seconds else 0, seconds * MICROSECONDS, ran_by, refused)
        return _settlement((self.entry, outcome, account))

    def die(self, reason: str, why: str, owner: str) -> None:
        """There is no further attempt: the task is dead."""
        trace = "" if self.exception is None else traceback_text(self.exception)
        self.reason, self.error = str(reason), why
        self.outcome = DeadOutcome(self._account(self.reason, trace, owner))

    def fail(self, delay_us: int, exception: BaseException, owner: str) -> None:
        """There is a further attempt, so long from now."""
        self.error = error_line(exception)
        self.outcome = RetryOutcome(delay_us, self._account(FAILED, "", owner))

    def failure(self) -> AttemptFailure | None:
        """How it failed; None when it did not, or asked for another attempt by itself."""
        match self.outcome:
            case Done():
                return None
            case DeadOutcome():
                return AttemptFailure(self.reason, self.error, self.exception)
            case RetryOutcome(delay_us) if not isinstance(self.exception, Retry):
                return AttemptFailure(FAILED, self.error, self.exception, delay_us / MICROSECONDS)
            case _:
                return None

    def _account(self, reason: str, trace: str, owner: str) -> bytes:
        seconds, lag = self.runtime_seconds, self.times.lag_seconds
        told = Account(reason, self.error, self.entry.attempt, trace, owner, os.getpid(), seconds, lag)
        return told.to_json(datetime.now(UTC))

    def _extend(self) -> datetime | None:
        if self.record.number != self.number:
            return None  # said by what an earlier task left running, a thread or a coroutine: the limits are another's
        now_ns = boottime_ns()
        if self.soft_limit_ns:
            self.soft_deadline_ns = now_ns + self.soft_limit_ns
            self.extend_soft_limit(self.soft_deadline_ns)
        self.record.beat(now_ns)
        self.record.extend(now_ns + self.limit_ns, self.soft_deadline_ns)
        return datetime.now(UTC) + timedelta(microseconds=self.limit_ns // _NANOSECONDS_A_MICROSECOND)

    def _report(self, done: float, total: float | None, note: str) -> None:
        at_us = time.time_ns() // _NANOSECONDS_A_MICROSECOND
        self.record.report_progress(self.entry.text, progress_text(done, total, note, at_us))


_settlement: Final = partial(tuple.__new__, Settlement)  # as entries are made


_ROUND_NS: Final = NANOSECONDS  # of the master's usual looks
_REMEMBERED_NS: Final = 60 * NANOSECONDS  # the master remembers some seconds longer: a write may come late


def verdict_on(options: TaskOptions, failures: int, random: Callable[[], float]) -> Verdict:
    """What follows if this attempt, before which so many failed, is ended by its hard time limit or kills its worker.

    It is good for one use: whoever is judged by it dies, and another process decides anew, with another random number.
    """
    if options.is_started_once:
        return Verdict()  # that it has begun is its end
    decided = decide(options, failures + 1, TimeLimit("the time limit has passed"), random)
    retry_us = decided.delay_us if isinstance(decided, RetryOutcome) else None
    return Verdict(True, retry_us, options.crash_limit or 0)


class ShortLimits:
    """Shows the master the shortest soft limit under a second of the last minute: so long it looks as often."""

    def __init__(self, slot: Slot, ring_master: Callable[[], None]) -> None:
        self._slot = slot
        self._ring_master = ring_master
        self._shortest_ns = _ROUND_NS
        self._met_ns = 0

    def met(self, soft_limit_ns: int, at_ns: int) -> None:
        """The slot shows a task with this limit, that began at this time (CLOCK_BOOTTIME)."""
        if soft_limit_ns >= _ROUND_NS:
            return
        is_news = soft_limit_ns < self._shortest_ns or at_ns - self._met_ns > _REMEMBERED_NS
        if is_news or soft_limit_ns == self._shortest_ns:
            self._shortest_ns, self._met_ns = soft_limit_ns, at_ns
            self._slot.show_soft_limit(soft_limit_ns, at_ns)
        if is_news:  # this task may be over before the master looks by itself
            self._ring_master()


@dataclass(frozen=True, slots=True)
class AttemptMaker:
    """Makes attempts. `limit_ns`: the fleet's time limit in nanoseconds. `started` is called at each start before the
    function, as a task that kills its worker has started too. `alone` keeps copies of this process out of it.
    `random` returns a number in [0, 1).
    """

    limit_ns: int
    preparer: Preparer
    hooks: Hooks
    started: Callable[[Entry, Times], None]
    alone: NoCopies
    random: Callable[[], float]
    short_limits: ShortLimits
    max_result_kb: int
    owner: str

    def open(self, record: TaskRecord, claimed: Claimed, at_ns: int) -> Attempt:
        """Show what was claimed in the slot, and look at it. Never raises for its sake."""
        entry = claimed.entry
        # Before anything is looked at: whatever ends the process from here on, it is known which task it was.
        deadline_ns = at_ns + self.limit_ns
        number = record.start(entry.text, "", at_ns, deadline_ns, claimed.anchor.received_ns, claimed.unstarted)
        prepared = self.preparer.prepare(claimed.body) if claimed.body else None
        if not isinstance(prepared, Runnable):
            return self._open_unfit(record, number, entry, prepared)
        name, terms = prepared.task.name, prepared.terms
        verdict = terms.verdicts.get(entry.failures)
        record.name(name, self._decide(terms, entry.failures) if verdict is None else verdict)
        return Attempt(entry, name, terms.limit_ns, record, number, prepared, terms.asks_first, terms.ran_by)

    def _open_unfit(self, record: TaskRecord, number: int, entry: Entry, unfit: Unfit | None) -> Attempt:
        name, who = (NO_TASK, ran_by(os.getpid(), NO_TASK)) if unfit is None else (unfit.name, b"")
        record.name(name)
        return Attempt(entry, name, self.limit_ns, record, number, unfit, ran_by=who)

    def begin(self, attempt: Attempt, anchor: Anchor, at_ns: int, start_ns: int) -> Runnable | None:
        """Its limits count from `at_ns`, its start is at `start_ns`. Returns what is to be called, None when it has
        ended without."""
        attempt.times = times_of(attempt.entry, anchor, start_ns)
        ready = attempt.prepared
        if isinstance(ready, Runnable):
            if ready.terms.are_plain or self._begin_limited(attempt, ready.terms, at_ns):
                return ready
            attempt.outcome = Expired()
        elif ready is None:
            attempt.outcome = CancelledOutcome()
        else:
            attempt.die(ready.fault, ready.error, self.owner)
        return None

    def _begin_limited(self, attempt: Attempt, terms: CallTerms, at_ns: int) -> bool:
        """Show its limits in the slot; returns whether it has not expired, nor was late when its rate was asked."""
        if terms.soft_limit_ns:
            attempt.soft_limit_ns, attempt.soft_deadline_ns = terms.soft_limit_ns, at_ns + terms.soft_limit_ns
            self.short_limits.met(terms.soft_limit_ns, at_ns)
        attempt.record.extend(at_ns + terms.limit_ns, attempt.soft_deadline_ns)
        expires = terms.options.expires
        return attempt.outcome is DONE and (expires is None or attempt.times.lag_seconds <= expires)

    def keep_result(self, attempt: Attempt, ready: Runnable, answer: Any) -> None:
        """The function has returned this, which is to be kept."""
        attempt.outcome = kept_result(answer, ready.terms.options.result_ttl, self.max_result_kb, ready.task.typed)

    def failed(self, attempt: Attempt, ready: Runnable, exception: BaseException) -> None:
        """This came out of its function: judge it."""
        attempt.exception = exception
        if isinstance(exception, Cancelled) or attempt.is_cancelled():  # whatever it raised: there is no next attempt
            attempt.outcome, attempt.error = CancelledOutcome(), error_line(exception)
            return
        with self.alone:  # the back-off may be the application's function
            decided = decide(ready.terms.options, attempt.entry.failures + 1, exception, self.random)
        match decided:
            case RetryOutcome(delay_us):
                attempt.fail(delay_us, exception, self.owner)
            case GiveUp(reason, why):
                attempt.die(reason, why, self.owner)
            case _:
                assert_never(decided)

    def call_failure_hooks(self, attempt: Attempt) -> None:
        """Call the hooks for an attempt that failed, once its outcome is in the slot: if one kills the worker, the
        outcome counts. They have a time limit of their own, the fleet's."""
        if attempt.outcome is DONE or (failure := attempt.failure()) is None:
            return
        attempt.record.extend(boottime_ns() + self.limit_ns, 0)
        for told_all in self.hooks.failure:
            call_hook(told_all, attempt.current(), failure)
        for told_last in self.hooks.dead if failure.is_dead else ():
            call_hook(told_last, attempt.current(), attempt.error)

    def _decide(self, terms: CallTerms, failures: int) -> int:
        """What the master is to do if it has to end this attempt: decided once for each number of failures."""
        with self.alone:  # the back-off may be the application's function
            word = terms.verdicts[failures] = verdict_on(terms.options, failures, self.random).to_word()
        return word
