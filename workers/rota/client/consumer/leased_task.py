"""A task in the hands of a program, and from a claim to it. Nothing here talks to Redis."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, auto
from random import random
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self, assert_never

from rota.client.consumer.lease import LOG
from rota.durations import Duration, utc_datetime
from rota.errors import Cancelled, Dead, InvalidArguments, LeaseLost, Retry
from rota.protocol.body import Body, BodyError, decode_body, texts_in
from rota.protocol.entry import MICROSECONDS, Entry
from rota.protocol.outcome import (
    DONE,
    FAILED,
    Account,
    CancelledOutcome,
    DeadOutcome,
    Done,
    Expired,
    NotRunnable,
    Outcome,
    Release,
    RetryOutcome,
    Settlement,
    account_of,
    error_line,
    ran_by,
    traceback_text,
)
from rota.protocol.turns import Claim, RateAsked
from rota.tasks.arguments import kept_result
from rota.tasks.fleet_settings import DEFAULT_MAX_RESULT_KB
from rota.tasks.options import TaskOptions, effective_options, fault_in_options, not_negative_seconds
from rota.tasks.registry import Registry
from rota.tasks.retry_rules import GiveUp, decide

if TYPE_CHECKING:
    from rota.tasks.registry import TaskDefinition
    from rota.tasks.typed_arguments import TypedArguments

_UNDECLARED: Final = TaskOptions()


class Fate(Enum):
    """What has become of a hold."""

    HELD = auto()
    SETTLED = auto()
    LOST = auto()


class Hold(Protocol):
    """A task's place among those that its consumer holds, as far as the task needs it."""

    @property
    def fate(self) -> Fate:
        """As far as is known here."""

    @property
    def owner(self) -> str:
        """Under which name the task is held."""

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked to cancel the task."""

    def settle(self, settlement: Settlement) -> None:
        """End the hold. Raises LeaseLost, Unavailable, Uncertain or RuntimeError."""


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
    _options: TaskOptions = field(repr=False)
    _typed: "TypedArguments | None" = field(repr=False)
    _hold: Hold = field(repr=False)
    _claimed_us: int = field(repr=False)
    _began: float = field(repr=False)  # monotonic

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked to cancel it: told at once, or by the next renewal of the lease if that was missed."""
        return self._hold.cancelled

    def _when_done(self, result: object) -> Outcome:
        seconds = self._options.result_ttl
        return kept_result(result, seconds, DEFAULT_MAX_RESULT_KB, self._typed) if seconds else DONE

    def _when_retried(self, delay: Duration | None) -> Outcome:
        return self._when_failed(Retry(None if delay is None else not_negative_seconds(delay, "delay")))

    def _when_failed(self, error: Exception) -> Outcome:
        """By the rule of workers."""
        decided = decide(self._options, self._entry.failures + 1, error, random)
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
        if self._options.remember:
            refused = outcome.refused if isinstance(outcome, Done) else ""
            run_us = self._run_seconds * MICROSECONDS
            account = account_of(self._claimed_us, run_us, ran_by(os.getpid(), self.name), refused)
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


class Found(NamedTuple):
    """The task that was claimed, or how it ends when nobody is to run it; and what is to be asked before it starts, if
    it was declared with a rate."""

    task: LeasedTask | Settlement
    asked: RateAsked | None = None

    def late(self, entry: Entry) -> "Found":
        """It could only start too late."""
        name = self.task.name if isinstance(self.task, LeasedTask) else ""
        return _unfit(entry, Expired(), name)


def task_of(claim: Claim, now_us: int, most_bytes: int, registry: Registry, hold: Hold) -> Found:
    """What was claimed at this Redis time."""
    entry, body = claim.entry, _readable(claim, most_bytes)
    if isinstance(body, Found):
        return body
    declared = registry.get(body.name)
    options = effective_options(_UNDECLARED if declared is None else declared.options, None, body.options)
    lag_seconds = max(0, now_us - entry.due_us) / MICROSECONDS
    if options.expires is not None and lag_seconds > options.expires:
        return _unfit(entry, Expired(), body.name)
    try:
        args, kwargs = _arguments_of(body, declared)
    except InvalidArguments as error:
        return _unfit(entry, _death(entry, NotRunnable.ARGUMENTS, str(error)), body.name)
    asked = None if declared is None else declared.rate_asked(entry, options, args, kwargs)
    task = LeasedTask(
        id=entry.id,
        name=body.name,
        queue=entry.queue,
        args=args,
        kwargs=MappingProxyType(kwargs),
        kind=entry.kind.label,
        attempt=entry.attempt,
        crashes=entry.crashes,
        losses=entry.losses,
        due_at=utc_datetime(entry.due_us),
        lag_seconds=lag_seconds,
        at_most_once=options.is_started_once,
        carried=texts_in(body.extra),
        _entry=entry,
        _options=options,
        _typed=None if declared is None else declared.typed,
        _hold=hold,
        _claimed_us=now_us,
        _began=time.monotonic(),
    )
    return Found(task, asked)


def _readable(claim: Claim, most_bytes: int) -> Body | Found:
    entry = claim.entry
    if not claim.body:
        return _unfit(entry, CancelledOutcome())
    try:
        body = _body_of(claim.body, most_bytes)
    except BodyError as error:
        return _unfit(entry, _death(entry, NotRunnable.GARBAGE, str(error)))
    if fault := body.options and fault_in_options(body.options):
        return _unfit(entry, _death(entry, NotRunnable.OPTIONS, fault), body.name)
    return body


def _body_of(raw: bytes, most_bytes: int) -> Body:
    try:
        return decode_body(raw, most_bytes)
    except BodyError:
        raise
    except Exception as error:  # a body nobody foresaw is no reason to end a program
        raise BodyError(f"it cannot be prepared: {error_line(error)}") from error


def _arguments_of(body: Body, declared: "TaskDefinition[..., Any] | None") -> tuple[tuple[Any, ...], dict[str, Any]]:
    """As they are in the body, if no annotation asks for more: this program may have no use for the function."""
    if declared is None or declared.typed is None:
        return tuple(body.args), body.kwargs
    return declared.received(body.args, body.kwargs)


def _unfit(entry: Entry, outcome: Outcome, name: str = "") -> Found:
    return Found(Settlement(entry, outcome, account_of(0, 0, ran_by(os.getpid(), name))))


def _death(entry: Entry, reason: NotRunnable, why: str) -> DeadOutcome:
    return DeadOutcome(Account(reason, why, entry.attempt).to_json(datetime.now(UTC)))
