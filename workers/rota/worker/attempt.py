"""One attempt: from a claim to its outcome. Nothing here talks to Redis."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, assert_never

from rota.child.slot_record import TaskRecord
from rota.child.slots import boottime_ns
from rota.client.arguments import kept_result
from rota.current import CurrentTask, Running
from rota.durations import utc_datetime
from rota.errors import Cancelled
from rota.hooks import Hooks
from rota.protocol.ends import account_of, ran_by
from rota.protocol.entry import MICROSECONDS, Entry
from rota.protocol.epitaph import FAILED, Account, NotRunnable, error_line, traceback_text
from rota.protocol.outcome import DONE, CancelledOutcome, DeadOutcome, Done, Expired, Outcome, RetryOutcome, Settlement
from rota.protocol.progress import progress_text
from rota.protocol.replies import ThrottleWord
from rota.retry import GiveUp, decide
from rota.soft_limit import soft_limit
from rota.worker.application import NoCopies, Runner, call_hook
from rota.worker.claims import Claimed
from rota.worker.limits import ShortLimits, verdict_on
from rota.worker.prepare import Preparer, Runnable, Unfit
from rota.worker.times import Times, times_of

_NANOSECONDS_A_MICROSECOND: Final = 1000
_MAY_END: Final = (ThrottleWord.START, ThrottleWord.LATE)  # here: by its run, or without
NO_TASK: Final = ""  # the name, in metrics and logs, of a task whose body was never looked at


@dataclass(slots=True)
class Attempt:
    """An attempt, running or ended. `times`: as if it started now, until the function is called. `soft_limit_ns` and
    `soft_deadline_ns` (CLOCK_BOOTTIME) are 0 without a soft limit. `number`: of the task among those of this life.

    Of one that ended, `reason` is that of a death, else ""; `error` what was wrong, in a line; `exception` what the
    task raised. `ran_by`: for the account of its run, empty when its end is not to be remembered.
    """

    entry: Entry
    name: str
    times: Times
    limit_ns: int
    record: TaskRecord
    number: int
    runtime_seconds: float = 0.0
    outcome: Outcome = DONE
    reason: str = ""
    error: str = ""
    exception: BaseException | None = None
    ran_by: bytes = b""
    soft_limit_ns: int = 0
    soft_deadline_ns: int = 0
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
            )
        return self._current

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
        return Settlement(self.entry, outcome, account)

    def die(self, reason: str, why: str, owner: str) -> None:
        """There is no further attempt: the task is dead."""
        trace = "" if self.exception is None else traceback_text(self.exception)
        self.reason, self.error = str(reason), why
        self.outcome = DeadOutcome(self._account(self.reason, trace, owner))

    def fail(self, delay_us: int, exception: BaseException, owner: str) -> None:
        """There is a further attempt, so long from now."""
        self.error = error_line(exception)
        self.outcome = RetryOutcome(delay_us, self._account(FAILED, "", owner))

    def _account(self, reason: str, trace: str, owner: str) -> bytes:
        seconds, lag = self.runtime_seconds, self.times.lag_seconds
        told = Account(reason, self.error, self.entry.attempt, trace, owner, os.getpid(), seconds, lag)
        return told.to_json(datetime.now(UTC))

    def _extend(self) -> datetime | None:
        running = self.record.current()
        if running is None or running.entry != self.entry.text:
            return None  # said by what an earlier task left running, a thread or a coroutine: the limits are another's
        now_ns = boottime_ns()
        if self.soft_limit_ns:
            self.soft_deadline_ns = now_ns + self.soft_limit_ns
            soft_limit.extend(self.soft_deadline_ns)
        self.record.beat(now_ns)
        self.record.extend(now_ns + self.limit_ns, self.soft_deadline_ns)
        return datetime.now(UTC) + timedelta(microseconds=self.limit_ns // _NANOSECONDS_A_MICROSECOND)

    def _report(self, done: float, total: float | None, note: str) -> None:
        at_us = time.time_ns() // _NANOSECONDS_A_MICROSECOND
        self.record.report_progress(self.entry.text, progress_text(done, total, note, at_us))


@dataclass(frozen=True, slots=True)
class Executor:
    """Makes attempts. `limit_ns`: the fleet's time limit in nanoseconds. `started` is called at each start before the
    function, as a task that kills its worker has started too. `alone` keeps copies of this process out of it.
    `random` returns a number in [0, 1). `begin`: see `rota.worker.begin`; `throttle`: see `rota.worker.throttle`.
    """

    limit_ns: int
    preparer: Preparer
    hooks: Hooks
    record: TaskRecord
    runner: Runner
    started: Callable[[Entry, Times], None]
    alone: NoCopies
    random: Callable[[], float]
    short_limits: ShortLimits
    begin: Callable[[Entry], Entry | None]
    throttle: Callable[[Entry, Runnable], ThrottleWord]
    max_result_kb: int
    owner: str = ""

    def attempt(self, claimed: Claimed, at_ns: int) -> Attempt | Literal[ThrottleWord.THROTTLED] | None:
        """Run what was claimed, unless it cannot be run; the slot names it from here on. Never raises for its sake.

        `at_ns` is the time. None when it came too late to be started without asking: nothing of it was run. THROTTLED
        when its rate did not let it start: this worker has it no more.
        """
        entry, record, anchor = claimed.entry, self.record, claimed.anchor
        # Before anything is looked at: whatever ends the process from here on, it is known which task it was.
        deadline_ns = at_ns + self.limit_ns
        number = record.start(entry.text, "", at_ns, deadline_ns, anchor.received_ns, claimed.unstarted)
        prepared = self._prepare(claimed.body)
        name = NO_TASK if prepared is None else prepared.name
        ready = prepared if isinstance(prepared, Runnable) else None
        verdict = None if ready is None else ready.verdicts.get(entry.failures)
        if verdict is None and ready is not None:
            verdict = self._decide(ready, entry.failures)
        record.name(name, verdict or 0)
        start_ns = boottime_ns()  # after the slot was written: see `rota.worker.claims`
        begun, word = None if start_ns > claimed.start_by_ns else entry, ThrottleWord.START
        if ready is not None and ready.asks_first and begun is not None:
            begun, word = self._ask(entry, ready)
            at_ns = start_ns = boottime_ns()
        if begun is None:
            record.end()
            return ThrottleWord.THROTTLED if word is ThrottleWord.THROTTLED else None
        attempt = Attempt(begun, name, times_of(entry, anchor, start_ns), self.limit_ns, record, number)
        if ready is not None:
            attempt.ran_by, attempt.limit_ns = ready.ran_by, ready.limit_ns
            if ready.soft_limit_ns:
                self._set_soft_limit(attempt, ready.soft_limit_ns, at_ns)
            elif at_ns + ready.limit_ns != deadline_ns:
                record.extend(at_ns + ready.limit_ns, 0)
        if word is ThrottleWord.LATE:
            attempt.outcome = Expired()
        else:
            self._carry_out(claimed, prepared, attempt)
        return attempt

    def _ask(self, entry: Entry, ready: Runnable) -> tuple[Entry | None, ThrottleWord]:
        """Ask Redis whether the task's rate lets it start, and tell it of the start of what may be started once at
        most. Returns the entry as it stands then, None when it is not to be started."""
        word = ThrottleWord.START if ready.options.rate is None else self.throttle(entry, ready)
        if word is ThrottleWord.START and ready.options.is_started_once:
            return self.begin(entry), word
        return entry if word in _MAY_END else None, word

    def _decide(self, ready: Runnable, failures: int) -> int:
        """What the master is to do if it has to end this attempt: decided once for each number of failures."""
        with self.alone:  # the back-off may be the application's function
            word = ready.verdicts[failures] = verdict_on(ready.options, failures, self.random).to_word()
        return word

    def _set_soft_limit(self, attempt: Attempt, soft_limit_ns: int, from_ns: int) -> None:
        attempt.soft_limit_ns, attempt.soft_deadline_ns = soft_limit_ns, from_ns + soft_limit_ns
        self.record.extend(from_ns + attempt.limit_ns, attempt.soft_deadline_ns)
        self.short_limits.met(soft_limit_ns, from_ns)

    def call_dead_hooks(self, attempt: Attempt) -> None:
        """Call the hooks for a task that is dead, once its outcome is in the slot: if one kills the worker, the death
        counts. They have a time limit of their own, the fleet's."""
        if not isinstance(attempt.outcome, DeadOutcome):
            return
        self.record.extend(boottime_ns() + self.limit_ns, 0)
        for hook in self.hooks.dead:
            call_hook(hook, attempt.current(), attempt.error)

    def _prepare(self, body: bytes) -> Runnable | Unfit | None:
        """None for a task that was cancelled after the claim whose answer was lost: its body is gone."""
        if not body:
            return None
        try:
            return self.preparer.prepare(body)
        except Exception as error:  # noqa: BLE001 - the task boundary: a body nobody foresaw is no reason to end a worker
            return Unfit(NotRunnable.GARBAGE, f"it cannot be prepared: {error_line(error)}")

    def _carry_out(self, claimed: Claimed, prepared: Runnable | Unfit | None, attempt: Attempt) -> None:
        match prepared:
            case None:
                attempt.outcome, attempt.ran_by = CancelledOutcome(), ran_by(os.getpid(), NO_TASK)
            case Unfit(fault, error):
                attempt.die(fault, error, self.owner)
            case Runnable() if _has_expired(prepared, attempt.times.lag_seconds):
                attempt.outcome = Expired()
            case Runnable():
                attempt.exception = self._run(claimed, prepared, attempt)
                if attempt.exception is not None:
                    self._judge(prepared, attempt, attempt.exception)
            case _:
                assert_never(prepared)

    def _run(self, claimed: Claimed, ready: Runnable, attempt: Attempt) -> BaseException | None:
        """Call the function within its hooks; returns what came out of that."""
        try:
            with self.alone, Running(attempt.current):
                if self.hooks.around:
                    with self.hooks.wrapped(attempt.current()), self.alone:  # what hooks do after a task is done once
                        # What hooks took before is lag.
                        attempt.called(times_of(claimed.entry, claimed.anchor, boottime_ns()))
                        self._call(ready, attempt)
                else:
                    self._call(ready, attempt)
        except BaseException as exception:  # noqa: BLE001 - the task boundary: SystemExit fails the attempt as well
            return exception
        return None

    def _call(self, ready: Runnable, attempt: Attempt) -> None:
        """The start, and nothing between it and the function."""
        self.started(attempt.entry, attempt.times)
        started = time.monotonic()
        try:
            answer = self.runner.call(ready.task, ready.args, ready.kwargs, attempt.soft_deadline_ns)
        finally:
            attempt.runtime_seconds = time.monotonic() - started
        if ready.options.result_ttl:
            seconds, typed = ready.options.result_ttl, ready.task.typed
            attempt.outcome = kept_result(answer, seconds, self.max_result_kb, typed)

    def _judge(self, ready: Runnable, attempt: Attempt, exception: BaseException) -> None:
        if isinstance(exception, Cancelled) or attempt.is_cancelled():  # whatever it raised: there is no next attempt
            attempt.outcome, attempt.error = CancelledOutcome(), error_line(exception)
            return
        with self.alone:  # the back-off may be the application's function
            decided = decide(ready.options, attempt.entry.failures + 1, exception, self.random)
        match decided:
            case RetryOutcome(delay_us):
                attempt.fail(delay_us, exception, self.owner)
            case GiveUp(reason, why):
                attempt.die(reason, why, self.owner)
            case _:
                assert_never(decided)


def _has_expired(ready: Runnable, lag_seconds: float) -> bool:
    return ready.options.expires is not None and lag_seconds > ready.options.expires
