"""One attempt: what it is made of, and what Redis and people are told of it. Nothing here talks to Redis."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from rota.child.slot_record import TaskRecord
from rota.child.slots import boottime_ns
from rota.durations import utc_datetime
from rota.errors import Retry
from rota.protocol.body import texts_in
from rota.protocol.entry import MICROSECONDS, Entry
from rota.protocol.outcome import (
    DONE,
    FAILED,
    Account,
    DeadOutcome,
    Done,
    Outcome,
    RetryOutcome,
    Settlement,
    account_of,
    error_line,
    traceback_text,
)
from rota.protocol.progress import progress_text
from rota.soft_limit import soft_limit
from rota.tasks.hooks import AttemptFailure, CurrentTask
from rota.worker.preparation import Runnable, Unfit
from rota.worker.redis_times import NOT_BEGUN, Times

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
