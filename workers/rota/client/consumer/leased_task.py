"""A task in the hands of a program, and how a claim becomes one. Nothing here talks to Redis."""

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
    Account,
    CancelledOutcome,
    DeadOutcome,
    Done,
    Expired,
    Outcome,
    Release,
    RetryOutcome,
    Settlement,
    account_of,
    error_line,
    ran_by,
    traceback_text,
)
from rota.protocol.turns import Claim
from rota.tasks.arguments import kept_result
from rota.tasks.claimed_call import CallTerms, Runnable, Unfit
from rota.tasks.fleet_settings import DEFAULT_MAX_RESULT_KB
from rota.tasks.options import TaskOptions
from rota.tasks.registry import AnyTask, Registry, TaskDefinition
from rota.tasks.retry_rules import GiveUp, decide

if TYPE_CHECKING:
    from rota.tasks.typed_arguments import TypedArguments

_MOST_NAMES: Final = 1000  # that are remembered: any producer may use any number of names


@dataclass(frozen=True, slots=True, eq=False)
class ClaimedTask:
    """A task that this process holds, and how it ends. No I/O: see LeasedTask, and AsyncLeasedTask."""

    id: str
    name: str
    queue: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    kind: str
    attempt: int
    crashes: int
    losses: int
    due_at: datetime
    lag_seconds: float
    at_most_once: bool
    carried: Mapping[str, str]
    _entry: Entry = field(repr=False)
    _terms: CallTerms = field(repr=False)
    _typed: "TypedArguments | None" = field(repr=False)
    _hold: HeldTask = field(repr=False)
    _claimed_us: int = field(repr=False)
    _began: float = field(repr=False)  # monotonic

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked to cancel it: told at once, or by the next renewal of the lease if that was missed."""
        return self._hold.cancelled

    def _when_done(self, result: object) -> Outcome:
        seconds = self._terms.options.result_ttl
        return kept_result(result, seconds, DEFAULT_MAX_RESULT_KB, self._typed) if seconds else DONE

    def _when_retried(self, delay: Duration | None) -> Outcome:
        return self._when_failed(Retry(None if delay is None else not_negative_seconds(delay, "delay")))

    def _when_failed(self, error: Exception) -> Outcome:
        """By the rule of workers."""
        decided = decide(self._terms.options, self._entry.failures + 1, error, random)
        match decided:
            case RetryOutcome(delay_us):
                return RetryOutcome(delay_us, self._account(FAILED, error_line(error)))
            case GiveUp(reason, why):
                trace = "" if error.__traceback__ is None else traceback_text(error)
                return DeadOutcome(self._account(reason, why, trace))
            case _:
                assert_never(decided)

    def _at_exit(self, error: BaseException | None) -> Outcome | None:
        """How it ends with its block; None when it has ended, or that is not for the block to say."""
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
        account = b""
        if self._terms.ran_by:
            refused = outcome.refused if isinstance(outcome, Done) else ""
            account = account_of(self._claimed_us, self._run_seconds * MICROSECONDS, self._terms.ran_by, refused)
        return Settlement(self._entry, outcome, account)

    def _account(self, reason: str, error: str, trace: str = "") -> bytes:
        who = self._hold.owner, os.getpid(), self._run_seconds
        return Account(reason, error, self.attempt, trace, *who).to_json(datetime.now(UTC))

    @property
    def _run_seconds(self) -> float:
        return time.monotonic() - self._began


@dataclass(frozen=True, slots=True, eq=False)
class LeasedTask(ClaimedTask):
    """A task that this process holds, until it is settled or the lease is lost.

    `args` and `kwargs` as they were enqueued, by the annotations of the task if it is declared in this process.
    `kind`: immediate, delayed, retry, periodic, throttled or recovered. `attempt` counts from 1; `crashes` and `losses`
    are the attempts that ended with their process or node. `due_at` by Redis time; `lag_seconds`, how late it was
    claimed.
    `at_most_once`: it was declared with `crash_limit=0`. `carried`: texts that came along with it besides its
    arguments, as `traceparent`.

    As a context manager it is done at the end of the block, and retried when an exception comes out of it: see
    `__exit__`. All its methods may be called from any thread; a second call for the same task raises RuntimeError.
    """

    def done(self, result: object = None) -> None:
        """End it: it is done. The result is kept if the task was declared or enqueued with a `result_ttl`; one that is
        no JSON is refused, as that of a worker's task.

        Raises LeaseLost when it is no longer held, and nothing was changed; Unavailable when the server could not be
        asked for as long as the lease lasts, and Uncertain when it was asked and no answer came: the task is then held
        as before, and may be settled again.
        """
        self._settle(self._when_done(result))

    def retry(self, delay: Duration | None = None) -> None:
        """End this attempt as failed: there is another one after `delay` (seconds or timedelta), or as the task's
        back-off says; or the task is dead, when it has had all its retries. Raises as `done`, and TypeError or
        ValueError for a delay that is none: the task is then held as before."""
        self._settle(self._when_retried(delay))

    def dead(self, why: str = "") -> None:
        """End it as dead, without another attempt. Raises as `done`."""
        self._settle(self._when_failed(Dead(why)))

    def release(self) -> None:
        """Give it back to the head of its lane; that counts as no failure. Raises as `done`."""
        self._settle(Release())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        """Settle the task, unless the block has done so.

        Without an exception it is done. An `Exception` fails the attempt, as it does in a worker, and ends here: it
        goes to the log `rota.consumer`, and the consumer's loop goes on. `rota.Cancelled` ends a task as cancelled.
        LeaseLost and what is no Exception, as KeyboardInterrupt, go on their way; the latter releases the task. Raises
        as `done`.
        """
        outcome = self._at_exit(error)
        if outcome is None:
            return False
        self._settle(outcome)
        return not isinstance(outcome, Release)

    def _settle(self, outcome: Outcome) -> None:
        self._hold.settle(self._settlement(outcome))


class _TakenTask(TaskDefinition[..., Any]):
    """A task as a program takes it. Its arguments stay as they were enqueued if no annotation asks for more, as the
    program may have no use for the function."""

    def received(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (tuple(args), dict(kwargs)) if self.typed is None else super().received(args, kwargs)


@lru_cache(_MOST_NAMES)
def _taken(name: str, declared: AnyTask | None) -> _TakenTask:
    if declared is None:
        return _TakenTask(lambda *_, **__: None, name, TaskOptions())
    return _TakenTask(declared.function, name, declared.options)


class TakenTasks:
    """The tasks that a program can take: whatever name one has, declared here or not."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def get(self, name: str) -> AnyTask:
        """The task of that name."""
        return _taken(name, self._registry.get(name))


def leased_task(hold: HeldTask, ready: Runnable, now_us: int) -> LeasedTask:
    """Return what was claimed at this Redis time, to be handed out."""
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
        at_most_once=ready.terms.options.is_started_once,
        carried=texts_in(ready.extra),
        _entry=entry,
        _terms=ready.terms,
        _typed=ready.task.typed,
        _hold=hold,
        _claimed_us=now_us,
        _began=time.monotonic(),
    )


def callable_or_end(claim: Claim, prepared: Runnable | Unfit | None, now_us: int) -> Runnable | Settlement:
    """Return the call that was claimed at this Redis time, or how the task ends if nobody is to run it."""
    if prepared is None:  # it was cancelled after the claim
        return _unrun(claim.entry, CancelledOutcome())
    if isinstance(prepared, Unfit):
        account = Account(prepared.fault, prepared.error, claim.entry.attempt)
        return _unrun(claim.entry, DeadOutcome(account.to_json(datetime.now(UTC))), prepared.name)
    expires = prepared.terms.options.expires
    is_late = expires is not None and _lag_seconds(claim.entry, now_us) > expires
    return expired(claim.entry, prepared) if is_late else prepared


def expired(entry: Entry, ready: Runnable) -> Settlement:
    """Return the end of a task that could only start too late."""
    return _unrun(entry, Expired(), ready.name)


def _lag_seconds(entry: Entry, now_us: int) -> float:
    return max(0, now_us - entry.due_us) / MICROSECONDS


def _unrun(entry: Entry, outcome: Outcome, name: str = "") -> Settlement:
    return Settlement(entry, outcome, account_of(0, 0, ran_by(os.getpid(), name)))
