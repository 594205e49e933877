"""Conversion of the body of a claimed task into a call that can be made, or into the reason why no call can ever be
made. Workers and consumers share this module.

Some tasks need permission from Redis to start: tasks with a rate, and tasks that may be started at most once, which are
marked as started. A generator yields the necessary requests and waits one by one, so that a blocking loop and an
asyncio loop can take the same steps.

1. The script `throttle` grants a start, or takes the task away from its owner. It may also grant a start in a few
   milliseconds. The owner then waits until that time.
2. The script `mark_started` marks an entry that may be started at most once, if the owner still holds it. If the owner
   is killed after this, the task is dead.
3. If no reply arrives, the owner does not start the task. It still holds the entry, and its next call to Redis returns
   the entry's current form, so a repeated request finds the start mark. If the reply that grants a start is lost, the
   start does not take place, so there are never more starts than the rate permits.
4. The reply may have taken long, so the owner checks again whether it may still start tasks.
"""

import math
import os
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from rota.durations import NANOSECONDS
from rota.errors import InvalidArguments
from rota.protocol.body import Body, BodyError, decode_body
from rota.protocol.entry import MICROSECONDS, Entry, parse_entry
from rota.protocol.keys import UNKNOWN_TASK
from rota.protocol.outcome import NotRunnable, error_line, ran_by
from rota.protocol.scripts import ScriptCall
from rota.protocol.signatures import MOST_SIGNATURE_BYTES, NOT_BEFORE, SignatureError
from rota.protocol.store import Store
from rota.protocol.turns import ThrottleStatus
from rota.tasks.fleet_settings import DEFAULT_TIME_LIMIT_SECONDS
from rota.tasks.keyring import Keyring
from rota.tasks.options import TaskOptions, effective_options, fault_in_options
from rota.tasks.registry import AnyTask

if TYPE_CHECKING:
    from rota.child.child_settings import TaskOverride

_KIBIBYTE: Final = 1024
_MAX_REMEMBERED: Final = 1000
_CLOCK_DIFFERENCE_US: Final = 60 * MICROSECONDS  # how far the clocks of a producer and a worker may differ
# With these statuses, the owner still holds the task. It has to settle the task, whether it runs it or not.
_MAY_END: Final = (ThrottleStatus.START, ThrottleStatus.LATE)
_UNDECLARED: Final = (
    "no module that the fleet imports declares a task named {!r}: add the module of the task to `imports` in "
    "rota.toml, or correct the name"
)


@dataclass(frozen=True, slots=True)
class CallSettings:
    """The settings that apply to all calls of a task, except calls that were enqueued with their own options."""

    options: TaskOptions  # the options in force for these calls
    limit_ns: int  # hard time limit in nanoseconds
    soft_limit_ns: int  # soft time limit in nanoseconds, 0 for none
    ran_by: bytes  # process and task name for the run record in Redis; empty if Redis stores none
    kill_policies: dict[int, int]  # cache of computed kill policies, by the number of earlier failures
    needs_permission: bool  # whether the start needs permission from Redis
    # Whether a start needs no preparation, because the task has the fleet's time limit and none of the options that
    # require a preparation.
    are_plain: bool


class Runnable(NamedTuple):
    """A call that was prepared from a body and that the worker can make. `extra` holds the extra fields of the body."""

    task: AnyTask
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    extra: dict[str, Any]
    settings: CallSettings

    @property
    def name(self) -> str:
        """The name of the task."""
        return self.task.name


_runnable: Final = partial(tuple.__new__, Runnable)  # calling `tuple.__new__` is faster than calling the class


@dataclass(frozen=True, slots=True)
class Unfit:
    """A body from which no call can ever be made, with the reason. `name` is the task's name if it is known, and can be
    used as the label of a metric."""

    fault: NotRunnable
    error: str
    name: str = UNKNOWN_TASK


class RunSettings(Protocol):
    """The worker's settings that affect how it runs tasks."""

    @property
    def max_payload_kb(self) -> int: ...
    @property
    def time_limit_seconds(self) -> float: ...
    @property
    def overrides(self) -> "Mapping[str, TaskOverride]": ...


@dataclass(frozen=True, slots=True)
class DefaultRunSettings:
    """The default settings, for a process without a configuration. A `max_payload_kb` of 0 means no limit."""

    max_payload_kb: int = 0
    time_limit_seconds: float = DEFAULT_TIME_LIMIT_SECONDS
    overrides: "Mapping[str, TaskOverride]" = field(default_factory=dict)


class KnownTasks(Protocol):
    """The tasks that a process can run, by name. Usually this is the registry."""

    def get(self, name: str) -> AnyTask | None: ...


class Preparer:
    """Prepares calls from bodies, with the tasks and the settings of one process. If there is a keyring, the preparer
    verifies the signature of each body first."""

    def __init__(self, tasks: KnownTasks, settings: RunSettings, keyring: Keyring | None = None) -> None:
        self._tasks = tasks
        self._settings = settings
        self._keyring = keyring
        self._most_bytes = settings.max_payload_kb * _KIBIBYTE
        self._pid = os.getpid()
        self._declared: dict[AnyTask, CallSettings] = {}
        self._kill_policies: dict[tuple[str, int], dict[int, int]] = {}

    def prepare(self, raw: bytes, task_id: str = "", queue: str = "") -> Runnable | Unfit:
        """Decode a body, find its task, bind its arguments and determine its options. This never raises, whatever the
        body contains. If the body is signed, it must have been signed for `task_id` in `queue`."""
        name = UNKNOWN_TASK
        try:
            if self._keyring is None:
                body = decode_body(raw, self._most_bytes)
            else:
                body = self._verified(self._keyring, raw, task_id, queue)
            task = self._tasks.get(body.name)
            if task is None:
                return Unfit(NotRunnable.UNKNOWN_TASK, _UNDECLARED.format(body.name))
            name = task.name
            args, kwargs = task.received(body.args, body.kwargs)
            enqueued = body.options
            if enqueued and (fault := fault_in_options(enqueued)):
                return Unfit(NotRunnable.OPTIONS, fault, name)
            settings = None if enqueued else self._declared.get(task)
            return _runnable((task, args, kwargs, body.extra, settings or self._call_settings(task, enqueued)))
        except (BodyError, SignatureError) as error:
            is_garbage = isinstance(error, BodyError)
            return Unfit(NotRunnable.GARBAGE if is_garbage else NotRunnable.SIGNATURE, str(error))
        except InvalidArguments as error:
            return Unfit(NotRunnable.ARGUMENTS, str(error), name)
        except Exception as error:  # noqa: BLE001 - the task boundary: an unforeseen body must not end the process
            return Unfit(NotRunnable.GARBAGE, f"the call cannot be prepared: {error_line(error)}")

    def _verified(self, keyring: Keyring, raw: bytes, task_id: str, queue: str) -> Body:
        """Verify the signature of a body, decode it, and check that it was signed for this task. Returns the decoded
        body. Raises SignatureError or BodyError."""
        if self._most_bytes and len(raw) > self._most_bytes + MOST_SIGNATURE_BYTES:
            raise BodyError(f"the body has {len(raw)} bytes, but the limit is {self._most_bytes}")
        text, is_signed = keyring.verify(raw)
        body = decode_body(text, self._most_bytes)
        if is_signed:
            _check_signed(body, task_id, queue)
        return body

    def _call_settings(self, task: AnyTask, enqueued: dict[str, Any]) -> CallSettings:
        """Determine the settings of a task. A task without its own time limit gets the fleet's time limit."""
        fleets_limit = self._settings.time_limit_seconds
        options = effective_options(task.options, self._settings.overrides.get(task.name), enqueued)
        time_limit = fleets_limit if options.time_limit is None else options.time_limit
        soft_limit = options.soft_time_limit or 0.0
        # The task, the operator and the fleet can each set a limit. A soft limit that is not shorter than the hard
        # limit would never be reached, so drop it.
        if soft_limit >= time_limit:
            options = replace(options, soft_time_limit=None)
            soft_limit = 0.0
        run_by = ran_by(self._pid, task.name) if options.remember else b""
        kill_policies = self._kill_policies_of(task.name, options.retries)
        needs_permission = options.is_started_once or options.rate is not None
        are_plain = time_limit == fleets_limit and not (soft_limit or needs_permission or options.expires is not None)
        limits = round(time_limit * NANOSECONDS), math.ceil(soft_limit * NANOSECONDS)
        settings = CallSettings(options, *limits, run_by, kill_policies, needs_permission, are_plain)
        if not enqueued:
            if len(self._declared) >= _MAX_REMEMBERED:
                self._declared.clear()
            self._declared[task] = settings
        return settings

    def _kill_policies_of(self, name: str, retries: int) -> dict[int, int]:
        # Limit the number of cached dictionaries, because producers may enqueue tasks with any number of different
        # retry options.
        if len(self._kill_policies) >= _MAX_REMEMBERED:
            self._kill_policies.clear()
        return self._kill_policies.setdefault((name, retries), {})


def _check_signed(body: Body, task_id: str, queue: str) -> None:
    """Raise SignatureError if a signed body belongs to another task or queue, or if its task must not start yet."""
    if body.id != task_id:
        raise SignatureError(f"its signature is for the id {body.id!r}, so it was copied from that task")
    if body.queue != queue:
        raise SignatureError(f"its signature is for the queue {body.queue!r}, so it was moved from there")
    not_before = body.extra.pop(NOT_BEFORE, 0)
    if not isinstance(not_before, int):
        raise SignatureError(f"{NOT_BEFORE} is not a time in microseconds")
    early_us = not_before - time.time() * MICROSECONDS
    if early_us > _CLOCK_DIFFERENCE_US:
        raise SignatureError(
            f"it would start {early_us / MICROSECONDS:.0f} s before the time that was signed: its due time was changed "
            "or the clock of the worker or the producer is wrong"
        )


class MayStart(NamedTuple):
    """The decision whether a task may start."""

    entry: Entry | None  # the current entry, or None if the task must not be started
    status: ThrottleStatus

    @property
    def refusal(self) -> Literal[ThrottleStatus.THROTTLED] | None:
        """THROTTLED if the task's rate did not permit the start, or None for any other result. If the task is
        throttled, Redis has delayed it, and its owner no longer holds it."""
        return ThrottleStatus.THROTTLED if self.status is ThrottleStatus.THROTTLED else None


StartGenerator = Generator[ScriptCall[Any] | float, Any, MayStart]
"""A generator that yields commands to run and seconds to wait. `send` passes the reply to each command into the
generator, or None if there was no reply."""


@dataclass(frozen=True, slots=True)
class StartSteps:
    """Makes the requests that Redis must grant before the start of a task that `owner` holds."""

    owner: str
    store: Store
    may_start: Callable[[], bool]  # returns whether the owner may still start tasks
    # Called with queue and name of each task that its rate does not permit to start yet.
    throttled: Callable[[str, str], None]

    def steps(self, entry: Entry, ready: Runnable) -> StartGenerator:
        """Yield the commands to run and the seconds to wait before the start of a call whose settings have
        `needs_permission`. Returns whether the call may start."""
        options = ready.settings.options
        status = ThrottleStatus.START
        if options.rate is not None:
            status = yield from self._throttle(entry, ready)
        if status is ThrottleStatus.START and options.is_started_once:
            return MayStart((yield from self._mark_started(entry)), status)
        return MayStart(entry if status in _MAY_END else None, status)

    def _throttle(self, entry: Entry, ready: Runnable) -> Generator[ScriptCall[Any] | float, Any, ThrottleStatus]:
        request = ready.task.rate_request(entry, ready.settings.options, ready.args, ready.kwargs)
        assert request is not None
        status, us = (yield self.store.throttle(self.owner, request)) or (ThrottleStatus.GONE, 0)
        if status is ThrottleStatus.THROTTLED:
            self.throttled(entry.queue, ready.name)
        elif status is ThrottleStatus.START:
            yield us / MICROSECONDS
            return ThrottleStatus.START if self.may_start() else ThrottleStatus.GONE
        return status

    def _mark_started(self, entry: Entry) -> Generator[ScriptCall[Any] | float, Any, Entry | None]:
        marked = yield self.store.mark_started(self.owner, entry.text)
        return parse_entry(marked) if marked and self.may_start() else None


def take_steps(steps: StartGenerator, take: Callable[[ScriptCall[Any] | float], Any]) -> MayStart:
    """Pass each step before a start, which is a command or a number of seconds to wait, to the blocking function
    `take`. Return the decision whether the task may start. Exceptions that `take` raises are passed on."""
    reply = None
    try:
        while True:
            reply = take(steps.send(reply))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # it is what the generator returns
