"""The application's own code around the attempts of its tasks, and the running task as the code inside it sees it.

Hooks are kept in the order of their declaration. Declaring a function of the same module and qualified name
again replaces it, as reloading a module does.
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
class CurrentTask(KnowsForeignNames, place="current task"):
    """One attempt of a task, while it runs.

    `kind`: immediate, delayed, retry, periodic, throttled or recovered. `attempt` counts from 1; `crashes` are the
    attempts that ended with their worker. `due_at` by Redis time; `lag_seconds`, how late this attempt started.
    `deadline`: when the time limit ends the attempt, None without one. `carried`: texts that came along with the task
    besides its arguments, as `traceparent`. `trace_id`: what the attempt's line of the log is to say as such.
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
    ask_cancelled: Callable[[], bool] | None = field(default=None, repr=False, compare=False)
    carried: Mapping[str, str] = field(default_factory=dict, repr=False)
    trace_id: str = ""

    @property
    def cancelled(self) -> bool:
        """Whether somebody cancelled the task: for code that asks, where `rota.Cancelled` cannot be raised."""
        return self.ask_cancelled is not None and self.ask_cancelled()

    def beat(self) -> None:
        """Say that the task makes progress: its time limits begin anew, and `deadline` moves with them."""
        if self.extend is not None:
            self.deadline = self.extend()

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Say how far the task is: shown by `status`, the command line and the status page a second later. As often as
        you like, from any thread: it is a few microseconds in this process's memory. The note may have 100 bytes.

        Raises ValueError for what is no number from 0 on.
        """
        if self.report is not None:
            self.report(done, total, note)


_running: ContextVar[Callable[[], CurrentTask]] = ContextVar("rota_current_task")


def current_task() -> CurrentTask:
    """The task this code runs in. Raises NoCurrentTask outside one, and in threads a task starts by itself."""
    try:
        return _running.get()()
    except LookupError:
        raise NoCurrentTask(
            "no task runs here: current_task() answers inside a task that a worker runs, and in a thread of "
            "such a task only under a copy of its context (contextvars.copy_context)"
        ) from None


# Round each attempt: from `set_running`, which takes what returns the task and gives back a token, to `reset_running`,
# which takes the token, that task is the current one. No context manager, whose two methods cost three times as much.
set_running: Final = _running.set
reset_running: Final = _running.reset


@dataclass(frozen=True, slots=True)
class AttemptFailure:
    """How an attempt failed, and what follows.

    `reason`: `failed` when there is another attempt, else why the task is dead: `retries`, `dead_on`, `not_retried`,
    `asked`, `backoff`, or that it could not be run: `garbage`, `unknown_task`, `arguments`, `options`. `error`: what
    was wrong, in a line. `exception`: what the task raised, None when it could not be run. `retry_in_seconds`: when
    the next attempt is due, None when the task is dead.
    """

    reason: str
    error: str
    exception: BaseException | None = None
    retry_in_seconds: float | None = None

    @property
    def is_dead(self) -> bool:
        """Whether this was the last attempt."""
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
    """All hooks of a process."""

    worker_start: list[WorkerHook] = field(default_factory=list)
    worker_stop: list[WorkerHook] = field(default_factory=list)
    around: list[AroundHook] = field(default_factory=list)
    failure: list[FailureHook] = field(default_factory=list)
    dead: list[DeadHook] = field(default_factory=list)

    @contextmanager
    def wrapped(self, task: CurrentTask) -> Iterator[None]:
        """Run the block inside every `around_task` hook, the first declared outermost.

        An exception of the block is raised in the hooks at their `yield`; one that a hook does not raise
        again ends there. Raises RuntimeError when a hook does not yield exactly once.
        """
        with ExitStack() as stack:
            for hook in self.around:
                stack.enter_context(contextmanager(hook)(task))
            yield


default_hooks = Hooks()


def on_worker_start(function: AnyWorkerHook) -> AnyWorkerHook:
    """Call the function in each worker after the fork, before its first claim: open connections here."""
    return _add_plain(default_hooks.worker_start, function, ())


def on_worker_stop(function: AnyWorkerHook) -> AnyWorkerHook:
    """Call the function in each worker that leaves in order, after its last task."""
    return _add_plain(default_hooks.worker_stop, function, ())


def around_task(function: AnyAroundHook) -> AnyAroundHook:
    """Wrap each attempt in the generator function: it takes the CurrentTask and yields once."""
    if not inspect.isgeneratorfunction(function):
        raise TypeError(f"@rota.around_task takes a generator function that yields once, got {function!r}")
    _require_takes(function, ("task",))
    return _add(default_hooks.around, function)


def on_failure(function: AnyFailureHook) -> AnyFailureHook:
    """Call the function with the CurrentTask and an AttemptFailure after each attempt that failed, whether the task is
    tried again or dead: the place for an error tracker. `raise rota.Retry` alone is no failure.

    Attempts that end with their worker, as by a crash or the hard time limit, call nothing: task events tell of them.
    """
    return _add_plain(default_hooks.failure, function, ("task", "failure"))


def on_dead(function: AnyDeadHook) -> AnyDeadHook:
    """Call the function with the CurrentTask and the reason when a worker sets a task aside as dead.

    Deaths that no worker sees (the last crash, the last lost lease) call nothing.
    """
    return _add_plain(default_hooks.dead, function, ("task", "reason"))


def _add_plain(hooks: list[Any], function: AnyHook, given: Sequence[str]) -> AnyHook:
    # To call a coroutine function or a generator only makes an object that nobody would drive.
    runs_nothing = inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function)
    if runs_nothing or not inspect.isroutine(function):
        raise TypeError(f"a hook is a plain function, neither a coroutine function nor a generator, got {function!r}")
    _require_takes(function, given)
    return _add(hooks, function)


def _require_takes(function: Callable[..., Any], given: Sequence[str]) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions written in C tell nothing of their parameters
        return
    try:
        signature.bind(*given)
    except TypeError as error:
        called = f"{function.__qualname__}({', '.join(given)})"
        raise TypeError(f"the hook is called as {called}, and that does not fit {signature}: {error}") from None


def _add(hooks: list[Any], function: AnyHook) -> AnyHook:
    place = _place(function)
    hooks[:] = [hook for hook in hooks if _place(hook) != place]
    hooks.append(function)
    return function


def _place(function: Callable[..., Any]) -> object:
    # Lambdas of one function share a qualified name: these stand for themselves.
    name = function.__qualname__
    return function if name.endswith("<lambda>") else (function.__module__, name)
