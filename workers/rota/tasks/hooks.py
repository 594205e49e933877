"""The current task, and hooks, which run code of the application around the attempts of tasks.

Hooks run in the order of their declaration. If a hook has the same module and qualified name as an earlier hook, it
replaces the earlier one. This happens when a module is reloaded.
"""

import inspect
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar

from rota.errors import NoCurrentTask
from rota.foreign_names import KnowsForeignNames


@dataclass(slots=True)
class CurrentTask(KnowsForeignNames, kind="current task"):
    """A running attempt of a task.

    * `kind`: one of immediate, delayed, retry, periodic, throttled and recovered.
    * `attempt`: the number of the attempt, from 1.
    * `crashes`: the number of attempts that ended because their worker died.
    * `due_at`: when the task was due, by Redis time.
    * `lag_seconds`: how late this attempt started.
    * `deadline`: when the time limit ends the attempt, or None without a time limit.
    * `carried`: texts that were enqueued with the task besides its arguments, for example `traceparent`.
    * `trace_id`: the trace id for the log line of this attempt. The application may set it.
    """

    id: str
    name: str
    queue: str
    kind: str
    attempt: int
    crashes: int
    due_at: datetime
    lag_seconds: float
    deadline: datetime | None = None
    extend: Callable[[], datetime | None] | None = field(default=None, repr=False, compare=False)
    report: Callable[[float, float | None, str], None] | None = field(default=None, repr=False, compare=False)
    query_cancelled: Callable[[], bool] | None = field(default=None, repr=False, compare=False)
    carried: Mapping[str, str] = field(default_factory=dict, repr=False)
    trace_id: str = ""

    @property
    def cancelled(self) -> bool:
        """Whether the task was cancelled. Check this in code in which `rota.Cancelled` cannot be raised."""
        return self.query_cancelled is not None and self.query_cancelled()

    def heartbeat(self) -> None:
        """Report that the task makes progress. The time limits of the task start again, and `deadline` moves
        accordingly."""
        if self.extend is not None:
            self.deadline = self.extend()

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report the progress of the task. The command line, the status page and `status` show it about a second later.

        Call it as often as you like and from any thread: it takes a few microseconds and only writes to memory. The
        note may have up to 100 bytes.

        Raises ValueError if a number is not from 0 to 9e15.
        """
        if self.report is not None:
            self.report(done, total, note)


_running: ContextVar[Callable[[], CurrentTask]] = ContextVar("rota_current_task")


def current_task() -> CurrentTask:
    """Return the task in which this code runs. Raises NoCurrentTask outside a task, and in threads that a task
    started."""
    try:
        return _running.get()()
    except LookupError:
        raise NoCurrentTask(
            "no task runs here: current_task() works inside a task that a worker runs. In a thread that such a task "
            "starts, it works only within a copy of the task's context (contextvars.copy_context)"
        ) from None


# The worker calls these two functions around each attempt. `set_running` takes a function that returns the task, and
# returns a token for `reset_running`. A context manager would do the same, but its two method calls take three times as
# long.
set_running: Final = _running.set
reset_running: Final = _running.reset


@dataclass(frozen=True, slots=True)
class AttemptFailure:
    """The failure of an attempt, and whether there is another attempt.

    * `reason`: `failed` if there is another attempt. Otherwise, the reason why the task is dead (`retries`, `dead_on`,
      `not_retried`, `asked` or `backoff`) or could not be run (`garbage`, `unknown_task`, `arguments`, `options` or
      `signature`).
    * `error`: the error in one line.
    * `exception`: the exception that the task raised, or None if the task could not be run.
    * `retry_in_seconds`: the time until the next attempt is due, or None if the task is dead.
    """

    reason: str
    error: str
    exception: BaseException | None = None
    retry_in_seconds: float | None = None

    @property
    def is_dead(self) -> bool:
        """Whether the task is dead, so that this was its last attempt."""
        return self.retry_in_seconds is None


WorkerHook = Callable[[], object]
AroundHook = Callable[[CurrentTask], Generator[None, None, None]]
FailureHook = Callable[[CurrentTask, AttemptFailure], object]
DeadHook = Callable[[CurrentTask, str], object]

AnyHook = TypeVar("AnyHook", bound=Callable[..., Any])
AnyWorkerHook = TypeVar("AnyWorkerHook", bound=WorkerHook)
AnyAroundHook = TypeVar("AnyAroundHook", bound=AroundHook)
AnyFailureHook = TypeVar("AnyFailureHook", bound=FailureHook)
AnyDeadHook = TypeVar("AnyDeadHook", bound=DeadHook)


@dataclass(frozen=True, slots=True)
class Hooks:
    """The hooks of this process, by kind."""

    worker_start: list[WorkerHook] = field(default_factory=list)
    worker_stop: list[WorkerHook] = field(default_factory=list)
    around: list[AroundHook] = field(default_factory=list)
    failure: list[FailureHook] = field(default_factory=list)
    dead: list[DeadHook] = field(default_factory=list)

    @contextmanager
    def wrapped(self, task: CurrentTask) -> Iterator[None]:
        """Run the block of a `with` statement inside all `around_task` hooks. The hook that was declared first is the
        outermost.

        If the block raises an exception, the exception is raised at the `yield` of each hook. A hook can suppress the
        exception by not raising it again. Raises RuntimeError if a hook does not yield exactly once.
        """
        with ExitStack() as stack:
            for hook in self.around:
                stack.enter_context(contextmanager(hook)(task))
            yield


default_hooks = Hooks()


def on_worker_start(function: AnyWorkerHook) -> AnyWorkerHook:
    """Call the function in each worker after the fork, before its first claim. Open connections here."""
    return _add_plain(default_hooks.worker_start, function, ())


def on_worker_stop(function: AnyWorkerHook) -> AnyWorkerHook:
    """Call the function in each worker that shuts down normally, after its last task."""
    return _add_plain(default_hooks.worker_stop, function, ())


def around_task(function: AnyAroundHook) -> AnyAroundHook:
    """Run the generator function around each attempt. It takes the CurrentTask and yields once."""
    if not inspect.isgeneratorfunction(function):
        raise TypeError(f"@rota.around_task takes a generator function that yields once, got {function!r}")
    _require_takes(function, ("task",))
    return _add(default_hooks.around, function)


def on_failure(function: AnyFailureHook) -> AnyFailureHook:
    """Call the function with the CurrentTask and an AttemptFailure after each failed attempt, whether the task is
    retried or dead. Use it for an error tracker. `raise rota.Retry` alone does not count as a failure here.

    The function is not called for attempts that end because their worker died, for example from a crash or at the hard
    time limit. Task events report these attempts.
    """
    return _add_plain(default_hooks.failure, function, ("task", "failure"))


def on_dead(function: AnyDeadHook) -> AnyDeadHook:
    """Call the function with the CurrentTask and the reason when a worker sets a task aside as dead.

    The function is not called if the master or a poller sets the task aside instead, for example because the task's
    last permitted crash killed its worker.
    """
    return _add_plain(default_hooks.dead, function, ("task", "reason"))


def _add_plain(hooks: list[Any], function: AnyHook, given: Sequence[str]) -> AnyHook:
    # Reject coroutine and generator functions: calling such a function would only create an object, and would not run
    # its code.
    runs_nothing = inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function)
    if runs_nothing or not inspect.isroutine(function):
        raise TypeError(f"a hook must be a plain function, not a coroutine function or a generator, got {function!r}")
    _require_takes(function, given)
    return _add(hooks, function)


def _require_takes(function: Callable[..., Any], given: Sequence[str]) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions written in C have no signature
        return
    try:
        signature.bind(*given)
    except TypeError as error:
        called = f"{function.__qualname__}({', '.join(given)})"
        raise TypeError(
            f"the hook is called as {called}, which does not fit its signature {signature}: {error}"
        ) from None


def _add(hooks: list[Any], function: AnyHook) -> AnyHook:
    location = _location(function)
    hooks[:] = [hook for hook in hooks if _location(hook) != location]
    hooks.append(function)
    return function


def _location(function: Callable[..., Any]) -> object:
    # Lambdas in one function have the same qualified name, so a lambda is identified by the object itself.
    name = function.__qualname__
    return function if name.endswith("<lambda>") else (function.__module__, name)
