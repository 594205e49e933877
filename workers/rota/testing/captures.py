"""Captured calls, assertions about them, and a clock that determines when they are due. The calls run only when the
test calls `drain`."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, Unpack, overload

from rota.client.default_clients import default_client
from rota.client.preparation import prepare
from rota.durations import MICROSECONDS, Duration, microseconds, seconds, unix_microseconds, utc_datetime
from rota.protocol.body import decode_body
from rota.protocol.entry import Kind
from rota.protocol.new_tasks import FRONT, NewTask
from rota.protocol.schedule_store import occurrence_id
from rota.protocol.task_states import State
from rota.tasks.call import Call
from rota.tasks.claimed_call import Preparer, Runnable
from rota.tasks.options import TaskOptions
from rota.tasks.registry import default_registry
from rota.testing.inline_runs import IN_TESTS, Ran, RunMode, raise_failure, run_attempt
from rota.testing.kept_tasks import KeptTask, KeptTasks, WaitingTasks
from rota.testing.stand_in import StandIn, stand_in_installed

if TYPE_CHECKING:
    from rota.client.task import Task


_ANY_QUEUE: Final = "any"  # the queue of a call that is made only for comparison
_ANY_SIZE_KB: Final = 1 << 30
_ARGUMENTS: Final = ("args", "kwargs")
_ARGUMENTS_NAMED: Final = "arguments"
_DURATIONS: Final = ("delay", "unique_for", "expires", "result_ttl")
_MAX_SHOWN: Final = 20
_MILLISECONDS: Final = 1000


class Expected(TypedDict, total=False):
    """The properties that a test expects of a call. Properties that are not given may have any value. If only one of
    `args` and `kwargs` is given, the other is expected to be empty."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    queue: str
    delay: Duration  # seconds or a timedelta
    at: datetime
    id: str
    unique: bool  # whether the call holds a unique key
    unique_for: Duration | None
    retries: int
    expires: Duration | None
    result_ttl: Duration
    front: bool
    kind: str  # immediate, delayed or periodic


@dataclass(frozen=True, slots=True)
class CapturedCall:
    """A call that was enqueued in the block of `capture`, and accepted."""

    task: str
    args: list[Any]  # as the body stores them, so converted to JSON and back
    kwargs: dict[str, Any]  # as the body stores them, so converted to JSON and back
    queue: str
    id: str
    delay: float = 0.0  # seconds, or 0 for no delay
    at: datetime | None = None  # the time for which the call was scheduled, or None
    unique: bool = False  # whether the call holds a unique key
    unique_for: float | None = None  # how many seconds the unique key is held, or None for the task's lifetime
    retries: int = 0  # the number that applies: that of the call, or else that of the declaration
    expires: float | None = None  # the number of seconds that applies to this call
    result_ttl: float = 0.0  # the number of seconds that applies to this call
    front: bool = False
    kind: str = Kind.IMMEDIATE.label  # immediate, delayed or periodic
    namespace: str = ""
    # The arguments in the form in which calls are compared: bound to the function's parameters.
    bound: tuple[tuple[Any, ...], dict[str, Any]] = field(default=((), {}), repr=False, compare=False)

    def __str__(self) -> str:
        args, kwargs = self.bound
        shown = [*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())]
        return f"{self.task}({', '.join(shown)}){self._options()}"

    def _options(self) -> str:
        put_off = f" at={self.at.isoformat()}" if self.at else f" delay={self.delay:g}" if self.delay else ""
        more = "".join(f" {name}" for name in ("unique", "front") if getattr(self, name))
        kind = f" ({self.kind})" if self.kind == Kind.PERIODIC.label else ""
        return f" queue={self.queue}{put_off}{more}{kind}"


class Reading(NamedTuple):
    """The content of a body, as a worker reads it. The arguments are bound to the function's parameters, so that f(1)
    and f(x=1) are equal. `options` are the options that apply: those of the call, and otherwise those of the
    declaration."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    options: TaskOptions


def read(body: bytes) -> Reading:
    """Read a body as a worker does. If a worker could not call the task, return the raw content of the body."""
    ready = Preparer(default_registry, IN_TESTS).prepare(body)
    if isinstance(ready, Runnable):
        return Reading(ready.args, ready.kwargs, ready.settings.options)
    raw = decode_body(body)
    return Reading(raw.args, raw.kwargs, TaskOptions())


def captured_call(namespace: str, new: NewTask, kind: Kind) -> CapturedCall:
    """Return the CapturedCall that shows an enqueued task to the test."""
    body = decode_body(new.body)
    reading = read(new.body)
    due = new.due.removesuffix(FRONT)
    options = reading.options
    return CapturedCall(
        body.name,
        body.args,
        body.kwargs,
        new.queue,
        new.id,
        delay=int(due[1:]) / MICROSECONDS if due[:1] == "+" else 0.0,
        at=utc_datetime(int(due[1:])) if due[:1] == "@" else None,
        unique=bool(new.unique_key),
        unique_for=new.hold_ms / _MILLISECONDS or None,
        retries=options.retries,
        expires=options.expires,
        result_ttl=options.result_ttl,
        front=new.due.endswith(FRONT),
        kind=kind.label,
        namespace=namespace,
        bound=(tuple(reading.args), dict(reading.kwargs)),
    )


class WantedCalls:
    """A description of the calls of one task that a test expects. The constructor raises InvalidArguments if no call of
    the task could have the arguments, and TypeError for an unknown property."""

    def __init__(self, task: "Task[..., Any] | str", expected: Expected) -> None:
        if unknown := set(expected).difference(Expected.__annotations__):
            raise TypeError(
                f"a call has no property {min(unknown)!r}; its properties are {', '.join(Expected.__annotations__)}"
            )
        self.name = task if isinstance(task, str) else _name_of(task)
        self._values = {name: _comparable(name, value) for name, value in expected.items() if name not in _ARGUMENTS}
        if "args" in expected or "kwargs" in expected:
            self._values["bound"] = _bound(self.name, expected.get("args", ()), expected.get("kwargs", {}))
        self._properties = ", ".join(f"{name}={value!r}" for name, value in expected.items())

    def __str__(self) -> str:
        return f"{self.name} with {self._properties}" if self._properties else self.name

    def differences(self, call: CapturedCall) -> list[str]:
        """Return the names of the properties in which a call differs from what is expected."""
        if call.task != self.name:
            return ["task"]
        found = [name for name, value in self._values.items() if _comparable(name, getattr(call, name)) != value]
        return [_ARGUMENTS_NAMED if name == "bound" else name for name in found]


def _name_of(task: Any) -> str:
    if isinstance(task, Call):  # the test would otherwise ignore the arguments of this Call
        raise TypeError(f"pass the task and its expected arguments, as in ({task.name}, args=[7]), got {task!r}")
    name = getattr(task, "name", None)
    if not isinstance(name, str):
        raise TypeError(f"expected a task, declared with @rota.task, or its name, got {task!r}")
    return name


def _comparable(name: str, value: Any) -> Any:
    return seconds(value, name) if name in _DURATIONS and value is not None else value


def _bound(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    # Prepare the arguments like those of a real call, so that the conversion to JSON changes both in the same way.
    queue = None if name in default_registry else _ANY_QUEUE
    reading = read(prepare(Call(name, args, kwargs, queue=queue), default_registry, _ANY_SIZE_KB).body)
    return tuple(reading.args), dict(reading.kwargs)


def list_of_calls(calls: Sequence[CapturedCall], wanted: WantedCalls) -> str:
    """Return a text for an error message, which lists the enqueued calls with their differences from the expected call.
    Calls of the same task come first."""
    if not calls:
        return "nothing was enqueued"
    lines = sorted((_line(call, wanted.differences(call)) for call in calls), key=lambda line: line[0])
    shown = [text for _, text in lines[:_MAX_SHOWN]]
    more = [f"  and {len(lines) - _MAX_SHOWN} more"] if len(lines) > _MAX_SHOWN else []
    return "\n".join(["these calls were enqueued:", *shown, *more])


def _line(call: CapturedCall, differences: list[str]) -> tuple[bool, str]:
    is_other = differences == ["task"]
    why = "" if is_other or not differences else f"  <- other {', '.join(differences)}"
    return is_other, f"  {call}{why}"


DEFAULT_MOST: Final = 1000
_LAST_SHOWN: Final = 5
_HOW_TO_RUN: Final = (
    "capture() runs no tasks. Call drain() on the object that capture() yields. If tasks are not due yet, call "
    "clock.move(...) first. To run each call at once, use eager()"
)
_MAX_OCCURRENCES: Final = 10_000


class CaptureClock:
    """A clock that shows the same time until it is moved. It starts at the time that is passed to `capture`, or at the
    real time at that moment. When the clock is moved, tasks become due, and `drain` can run them."""

    def __init__(self, moved: Callable[[int, int], None], at: datetime | None = None) -> None:
        self.now_us = round(time.time() * MICROSECONDS) if at is None else unix_microseconds(at, "at")
        self._moved = moved

    def __repr__(self) -> str:
        return f"<clock at {self.now.isoformat(sep=' ', timespec='milliseconds')}>"

    @property
    def now(self) -> datetime:
        """The time, in UTC."""
        return utc_datetime(self.now_us)

    def move(self, by: Duration) -> datetime:
        """Move the clock forward by seconds or a timedelta, and return the new time. Raises TypeError, or ValueError if
        `by` is negative."""
        return self._move_to(self.now_us + microseconds(by, "by"))

    def move_to(self, when: datetime) -> datetime:
        """Move the clock forward to an aware datetime, and return the new time. Raises TypeError, or ValueError if
        `when` is naive or in the past."""
        return self._move_to(unix_microseconds(when, "when"))

    def _move_to(self, now_us: int) -> datetime:
        if now_us < self.now_us:
            raise ValueError(f"the clock only moves forward: it is {self.now}, and {utc_datetime(now_us)} is earlier")
        before_us = self.now_us
        self.now_us = now_us
        try:
            self._moved(before_us, now_us)
        except ValueError:  # a schedule has too many occurrences in this time
            self.now_us = before_us
            raise
        return self.now


def _occurrences_between(after_us: int, until_us: int) -> list[NewTask]:
    """Return the tasks that the declared schedules enqueue between two times, in order. Raises ValueError if a schedule
    has more than 10,000 occurrences in that time."""
    from rota.schedules.occurrences import body_of, occurrences  # noqa: PLC0415 - reads cron expressions

    found: list[tuple[int, NewTask]] = []
    for schedule in (each for task in default_registry for each in task.schedules):
        passed = takewhile(lambda each: each.at_us <= until_us, occurrences(schedule, after_us))
        at_most = list(islice(passed, _MAX_OCCURRENCES + 1))
        if len(at_most) > _MAX_OCCURRENCES:
            raise ValueError(
                f"the schedule {schedule.name!r} occurs more than {_MAX_OCCURRENCES:,} times: move the clock in "
                "smaller steps, or start it at the time of the test, as in capture(at=...)"
            )
        for each in at_most:
            task_id = occurrence_id(schedule.name, each.at_us)
            new = NewTask(task_id, schedule.queue, body_of(schedule, task_id), f"@{each.due_us}")
            found.append((each.due_us, new))
    return [new for _, new in sorted(found, key=lambda one: one[0])]


class EndlessDrain(RuntimeError):
    """Raised if `drain` has made the maximum number of attempts, and there are still tasks to run."""


class Capture(Sequence[CapturedCall]):
    """The calls that were enqueued, in order. Calls that were rejected as duplicates are not among them.

    `clock` determines which calls are due. A test gets this object from `capture()`.
    """

    def __init__(self, *, at: datetime | None = None, schedules: bool = True) -> None:
        self.clock = CaptureClock(self._moved, at)
        self._schedules = schedules
        self._calls: list[CapturedCall] = []
        self._kept_tasks = KeptTasks(lambda: self.clock.now_us)
        self._waiting = WaitingTasks(self._kept_tasks)
        self._stand_in = StandIn(self._kept_tasks, self._accepted, _HOW_TO_RUN)

    # The calls

    @overload
    def __getitem__(self, at: int, /) -> CapturedCall: ...
    @overload
    def __getitem__(self, at: slice, /) -> list[CapturedCall]: ...
    def __getitem__(self, at: int | slice, /) -> CapturedCall | list[CapturedCall]:
        return self._calls[at]

    def __len__(self) -> int:
        return len(self._calls)

    def __repr__(self) -> str:
        return f"<capture of {list(map(str, self._calls))}>"

    def clear(self) -> None:
        """Remove all calls and their tasks. The clock does not change."""
        self._calls.clear()
        self._stand_in.clear()
        self._waiting.clear()

    def of(self, task: "Task[..., Any] | str", **expected: Unpack[Expected]) -> list[CapturedCall]:
        """Return the calls of a task, given as an object or by name, that match the expected properties: see
        `Expected`."""
        return self._found(WantedCalls(task, expected))

    def assert_enqueued(
        self, task: "Task[..., Any] | str", *, times: int | None = None, **expected: Unpack[Expected]
    ) -> list[CapturedCall]:
        """Assert that a matching call of the task was enqueued, and return all matching calls.

        With `times`, exactly that number of matching calls must have been enqueued. The AssertionError lists what was
        enqueued instead. Raises InvalidArguments if no call of the task could have the arguments.
        """
        __tracebackhide__ = True
        wanted = WantedCalls(task, expected)
        found = self._found(wanted)
        if not found and times is None:
            raise AssertionError(f"no call of {wanted} was enqueued; {list_of_calls(self._calls, wanted)}")
        if times is not None and len(found) != times:
            raise AssertionError(
                f"expected {times} calls of {wanted}, got {len(found)}; {list_of_calls(self._calls, wanted)}"
            )
        return found

    def assert_not_enqueued(self, task: "Task[..., Any] | str | None" = None, **expected: Unpack[Expected]) -> None:
        """Assert that no matching call of the task was enqueued or, without a task, that nothing was enqueued."""
        __tracebackhide__ = True
        if task is None and expected:
            raise TypeError(f"pass the task that must not be enqueued with these values of {' and '.join(expected)}")
        found = self._calls if task is None else self._found(WantedCalls(task, expected))
        if found:
            lines = "\n".join(f"  {call}" for call in found)
            wanted = "no calls" if task is None else f"no calls of {WantedCalls(task, expected)}"
            raise AssertionError(f"expected {wanted}, got {len(found)}:\n{lines}")

    # Running the tasks

    def drain(self, *, raises: bool = True, limits: bool = False, most: int = DEFAULT_MOST) -> list[Ran]:
        """Run the tasks that are due by the clock, and the tasks that they enqueue, until none is left. Return the
        attempts in order.

        If a task fails and `raises` is true, `drain` raises the task's exception, and the next call of `drain` runs the
        other tasks. If `raises` is false, the exception is only stored in the attempt. A failed task that has retries
        left is due again after the longest delay that its back-off permits, because jitter is not random in tests. If
        `limits` is true, soft time limits are enforced. Raises EndlessDrain after `most` attempts.
        """
        ran: list[Ran] = []
        while (kept := self._waiting.next(self.clock.now_us)) is not None:
            if len(ran) == most:
                self._waiting.put_back(kept)
                raise EndlessDrain(_endless(ran, most))
            attempt = run_attempt(self._kept_tasks, kept, self.clock.now_us, RunMode(retries=True, limits=limits))
            ran.append(attempt)
            if kept.state is State.SCHEDULED:
                self._waiting.add(kept)
            if raises and attempt.has_failed:
                raise_failure(attempt, kept)
        return ran

    def _found(self, wanted: WantedCalls) -> list[CapturedCall]:
        return [call for call in self._calls if not wanted.differences(call)]

    def _accepted(self, namespace: str, tasks: Sequence[tuple[NewTask, KeptTask]]) -> None:
        for new, kept in tasks:
            self._calls.append(captured_call(namespace, new, kept.entry.kind))
            self._waiting.add(kept)

    def _moved(self, before_us: int, now_us: int) -> None:
        if not self._schedules or not any(task.schedules for task in default_registry):
            return
        namespace = default_client().namespace
        for new in _occurrences_between(before_us, now_us):
            _, kept = self._kept_tasks.accept(namespace, new, Kind.PERIODIC)
            if kept is not None:
                self._accepted(namespace, [(new, kept)])


def _endless(ran: Sequence[Ran], most: int) -> str:
    last = ", ".join(f"{each.task} ({each.outcome})" for each in ran[-_LAST_SHOWN:])
    return (
        f"{most:,} attempts were made, and more tasks are ready; the last attempts were {last}. Does a task enqueue "
        "itself, or is it retried without a delay? To permit more attempts, use drain(most=...)"
    )


@contextmanager
def capture(*, at: datetime | None = None, schedules: bool = True) -> Iterator[Capture]:
    """Collect the calls that any client of this process enqueues in the block, instead of sending them. This needs
    neither a server nor a configuration. Yields the calls, with a clock to move and `drain` to run them.

    The clock begins at `at`, an aware datetime, or now if it is not given. If `schedules` is true, moving the clock
    also enqueues the tasks of declared schedules. Handles work inside the block: `status` and `cancel` work as with a
    server, and `wait` and `result` raise NotRun for tasks that were not drained.
    """
    calls = Capture(at=at, schedules=schedules)
    with stand_in_installed(calls._stand_in):  # noqa: SLF001 - of the same module
        yield calls
