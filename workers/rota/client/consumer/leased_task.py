"""The tasks that a program holds, and the functions that make them from claims. This module does no I/O."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from random import random
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, assert_never

from rota.client.consumer.lease import LOG, Fate, HeldTask
from rota.durations import Duration, not_negative_seconds, utc_datetime
from rota.errors import Cancelled, Dead, LeaseLost, Retry
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
    Release,
    RetryOutcome,
    Settlement,
    error_line,
    ran_by,
    run_record_of,
    traceback_text,
)
from rota.protocol.turns import Claim
from rota.tasks.arguments import kept_result
from rota.tasks.claimed_call import CallSettings, Runnable, Unfit
from rota.tasks.fleet_settings import DEFAULT_MAX_RESULT_KB
from rota.tasks.options import TaskOptions
from rota.tasks.registry import AnyTask, Registry, TaskDefinition
from rota.tasks.retry_rules import GiveUp, decide

if TYPE_CHECKING:
    from rota.tasks.typed_arguments import TypedArguments

# The maximum number of cached names. Producers may use any number of names, so the cache needs a limit.
_MAX_NAMES: Final = 1000


@dataclass(frozen=True, slots=True, eq=False)
class ClaimedTask:
    """A task that this process holds, and the rules for its outcomes. This base class does no I/O: see LeasedTask and
    AsyncLeasedTask."""

    id: str
    name: str
    queue: str
    # If this process declares the task, `args` and `kwargs` are converted by its annotations.
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    kind: str  # One of immediate, delayed, retry, periodic, throttled and recovered.
    attempt: int  # The number of this attempt, from 1.
    crashes: int  # The number of attempts whose process crashed.
    losses: int  # The number of attempts whose node was lost.
    due_at: datetime  # When the task was due, by Redis time.
    lag_seconds: float  # How long after `due_at` the task was claimed.
    at_most_once: bool  # Whether the task was declared with `crash_limit=0`.
    # Texts that were enqueued with the task in addition to its arguments, for example `traceparent`.
    carried: Mapping[str, str]
    _entry: Entry = field(repr=False)
    _call_settings: CallSettings = field(repr=False)
    _typed: "TypedArguments | None" = field(repr=False)
    _hold: HeldTask = field(repr=False)
    _claimed_us: int = field(repr=False)
    _started_at: float = field(repr=False)  # When the task was handed out (monotonic seconds).

    @property
    def cancelled(self) -> bool:
        """Whether a client has cancelled the task.

        The process is notified at once. If the notification is lost, the process learns of the cancellation when it
        next renews its lease.
        """
        return self._hold.cancelled

    def _when_done(self, result: object) -> Outcome:
        seconds = self._call_settings.options.result_ttl
        return kept_result(result, seconds, DEFAULT_MAX_RESULT_KB, self._typed) if seconds else DONE

    def _when_retried(self, delay: Duration | None) -> Outcome:
        return self._when_failed(Retry(None if delay is None else not_negative_seconds(delay, "delay")))

    def _when_failed(self, error: Exception) -> Outcome:
        """Return the outcome of a failed attempt, by the same rules as in workers."""
        decided = decide(self._call_settings.options, self._entry.failures + 1, error, random)
        match decided:
            case RetryOutcome(delay_us):
                return RetryOutcome(delay_us, self._failure_record(FAILED, error_line(error)))
            case GiveUp(reason, why):
                trace = "" if error.__traceback__ is None else traceback_text(error)
                return DeadOutcome(self._failure_record(reason, why, trace))
            case _:
                assert_never(decided)

    def _at_exit(self, error: BaseException | None) -> Outcome | None:
        """Return the outcome to report at the end of the `with` block, given the exception that ended it. Returns None
        if there is nothing to report, because the task was settled before or its lease was lost."""
        if self._hold.fate is Fate.SETTLED or isinstance(error, LeaseLost):
            return None
        match error:
            case None:
                return self._when_done(None)
            case Cancelled():
                return CancelledOutcome()
            case Exception():
                if not isinstance(error, Retry | Dead):
                    LOG.error("task %s (%s) raised", self.id, self.name, exc_info=error)
                return self._when_failed(error)
            case _:
                return Release()

    def _settlement(self, outcome: Outcome) -> Settlement:
        run = b""
        if self._call_settings.ran_by:
            refused = outcome.refused if isinstance(outcome, Done) else ""
            run = run_record_of(self._claimed_us, self._run_seconds * MICROSECONDS, self._call_settings.ran_by, refused)
        return Settlement(self._entry, outcome, run)

    def _failure_record(self, reason: str, error: str, trace: str = "") -> bytes:
        who = self._hold.owner, os.getpid(), self._run_seconds
        return FailureRecord(reason, error, self.attempt, trace, *who).to_json(datetime.now(UTC))

    @property
    def _run_seconds(self) -> float:
        return time.monotonic() - self._started_at


@dataclass(frozen=True, slots=True, eq=False)
class LeasedTask(ClaimedTask):
    """A task that this process holds until it is settled or the lease is lost.

    If it is used as a context manager, the task is done at the end of the block, and is retried if the block raises an
    exception: see `__exit__`. Its methods may be called from any thread. Settling a task a second time raises
    RuntimeError.
    """

    def done(self, result: object = None) -> None:
        """Report the task as done.

        The result is stored if the task was declared or enqueued with a `result_ttl`. As in a worker, a result that is
        not JSON is refused.

        Raises:
            LeaseLost: If this process no longer holds the task. Nothing was changed, and the task runs again.
            Unavailable: If the server could not be reached, or refused the call, until the lease expired. The task is
                still held, and can be settled again.
            Uncertain: If the outcome was sent and no reply came. The task is still held, and can be settled again.
            RuntimeError: If the task was settled before.
        """
        self._settle(self._when_done(result))

    def retry(self, delay: Duration | None = None) -> None:
        """Report the attempt as failed.

        The task is attempted again after `delay` (seconds or timedelta), or after the task's own back-off if there is
        no `delay`. If the task has no retries left, it becomes dead.

        Raises:
            TypeError, ValueError: If the delay is not valid. The task is still held.
            LeaseLost, Unavailable, Uncertain, RuntimeError: See `done`.
        """
        self._settle(self._when_retried(delay))

    def dead(self, why: str = "") -> None:
        """Report the task as dead, with the reason `why` and without another attempt. Raises the errors of `done`."""
        self._settle(self._when_failed(Dead(why)))

    def release(self) -> None:
        """Return the task to the head of its lane. This does not count as a failure. Raises the errors of `done`."""
        self._settle(Release())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        """Settle the task, unless the block has already done so.

        Without an exception, the task is done. An `Exception` makes the attempt fail, as in a worker. It is logged to
        `rota.consumer` and suppressed, so the consumer's loop continues. `rota.Cancelled` ends the task as cancelled,
        and is suppressed too. LeaseLost is not suppressed. An exception that is not an `Exception`, for example
        KeyboardInterrupt, releases the task and is not suppressed. Raises the errors of `done`.
        """
        outcome = self._at_exit(error)
        if outcome is None:
            return False
        self._settle(outcome)
        return not isinstance(outcome, Release)

    def _settle(self, outcome: Outcome) -> None:
        self._hold.settle(self._settlement(outcome))


class _TakenTask(TaskDefinition[..., Any]):
    """A task definition for a consumer, which needs one for every claimed task, even for a task that this process does
    not declare.

    The program need not call the declared function. So arguments are only bound to the function's signature if its
    annotations require a conversion. Otherwise they stay as they were enqueued.
    """

    def received(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (tuple(args), dict(kwargs)) if self.typed is None else super().received(args, kwargs)


@lru_cache(_MAX_NAMES)
def _taken(name: str, declared: AnyTask | None) -> _TakenTask:
    if declared is None:
        return _TakenTask(lambda *_, **__: None, name, TaskOptions())
    return _TakenTask(declared.function, name, declared.options)


class TakenTasks:
    """A registry for consumers. It has a task for every name, whether or not this process declares the task."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def get(self, name: str) -> AnyTask:
        """Return a task with this name, whether or not this process declares it."""
        return _taken(name, self._registry.get(name))


def leased_task(hold: HeldTask, ready: Runnable, now_us: int) -> LeasedTask:
    """Return a claimed task as the LeasedTask that the program gets. `now_us` is the Redis time of the claim."""
    entry = hold.entry
    return LeasedTask(
        id=entry.id,
        name=ready.name,
        queue=entry.queue,
        args=ready.args,
        kwargs=MappingProxyType(ready.kwargs),
        kind=entry.kind.label,
        attempt=entry.attempt,
        crashes=entry.crashes,
        losses=entry.losses,
        due_at=utc_datetime(entry.due_us),
        lag_seconds=_lag_seconds(entry, now_us),
        at_most_once=ready.settings.options.is_started_once,
        carried=texts_in(ready.extra),
        _entry=entry,
        _call_settings=ready.settings,
        _typed=ready.task.typed,
        _hold=hold,
        _claimed_us=now_us,
        _started_at=time.monotonic(),
    )


def callable_or_end(claim: Claim, prepared: Runnable | Unfit | None, now_us: int) -> Runnable | Settlement:
    """Return the claimed call if it may run, and otherwise the outcome with which the task ends. `now_us` is the Redis
    time of the claim."""
    if prepared is None:  # The claim has no body, which means that the task was cancelled.
        return _unrun(claim.entry, CancelledOutcome())
    if isinstance(prepared, Unfit):
        record = FailureRecord(prepared.fault, prepared.error, claim.entry.attempt)
        return _unrun(claim.entry, DeadOutcome(record.to_json(datetime.now(UTC))), prepared.name)
    expires = prepared.settings.options.expires
    is_late = expires is not None and _lag_seconds(claim.entry, now_us) > expires
    return expired(claim.entry, prepared) if is_late else prepared


def expired(entry: Entry, ready: Runnable) -> Settlement:
    """Return the outcome of a task that expired before it could start."""
    return _unrun(entry, Expired(), ready.name)


def _lag_seconds(entry: Entry, now_us: int) -> float:
    return max(0, now_us - entry.due_us) / MICROSECONDS


def _unrun(entry: Entry, outcome: Outcome, name: str = "") -> Settlement:
    return Settlement(entry, outcome, run_record_of(0, 0, ran_by(os.getpid(), name)))
