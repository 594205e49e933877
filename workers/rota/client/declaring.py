"""`@rota.task`: a function becomes a task of this process, its options and schedules checked where it is declared."""

import inspect
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, overload

from rota.client.tasks import AsyncTask, Task
from rota.errors import InvalidName
from rota.protocol.names import fault_in_name
from rota.tasks.declaration import fault_in_rate_key, showing, signature_of, why_no_task
from rota.tasks.options import ScheduleArguments, TaskArguments, TaskOptions, check_options
from rota.tasks.registry import default_registry, written_at

if TYPE_CHECKING:
    from rota.schedules.schedule import Schedule
    from rota.tasks.periodic import Periodic

P = ParamSpec("P")
R = TypeVar("R")


class Declare:
    """What `@rota.task(...)` with options gives: it takes the function."""

    def __init__(self, name: str | None, options: TaskOptions, periodic: "tuple[Periodic, ...]" = ()) -> None:
        self._name = name
        self._options = options
        self._periodic = periodic

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Task[..., Any]:
        """Make the task and add it to the registry. Raises InvalidName, DuplicateTask, TypeError or ValueError."""
        try:
            return self._task_of(function)
        except (TypeError, ValueError) as error:
            error.__traceback__ = None  # what is wrong is in the caller's line, and none of ours
            raise

    def _task_of(self, function: Callable[..., Any]) -> Task[..., Any]:
        if why := why_no_task(function, self._name):
            raise TypeError(why)
        name = function.__name__ if self._name is None else self._name
        if fault := fault_in_name("task name", name):
            raise InvalidName(f"{fault} ({written_at(function)})")
        if fault := fault_in_rate_key(self._options.rate_key, signature_of(function)):
            raise ValueError(f"{name}: {fault}")
        made = (AsyncTask if inspect.iscoroutinefunction(function) else Task)(function, name, self._options)
        if self._periodic:
            made.schedules = _schedules_of(made, self._periodic)
        default_registry.add(made)
        return made


@overload
def task(function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(*, name: str | None = None, **options: Unpack[TaskArguments]) -> Declare: ...
@showing(TaskArguments, TaskOptions)
def task(
    function: Callable[..., Any] | None = None, /, *, name: str | None = None, **options: Unpack[TaskArguments]
) -> Task[..., Any] | Declare:
    """Declare a function as a task: `@rota.task`, or `@rota.task(queue="mail", retries=5)`.

    Without `name` it has the function's. docs/tasks.md has each option with its default and an example; durations are
    seconds or timedelta. Arguments are checked against the signature of what is given here: a decorator under this
    one that adds arguments must have a signature of its own, since a plain `*args, **kwargs` counts as passing on.
    Raises InvalidName, DuplicateTask, TypeError or ValueError saying what is wrong.

    After `soft_time_limit` seconds `rota.TimeLimit` is raised inside the function, which may catch it to end early: it
    is done when it returns, and has failed when TimeLimit comes out of it. In a coroutine it is a cancellation
    (`asyncio.CancelledError`) of what it awaits, and TimeLimit only when that comes out. After `time_limit` the worker
    is killed. `current_task().beat()` starts both anew.

    `cron="*/5 * * * *"` (by the clock of `timezone`, UTC without one) or `every=30` has the fleet enqueue it
    periodically, without arguments; `schedules=[rota.Cron(...), rota.Every(...)]` says more, and several.
    """
    try:
        declare = Declare(name, check_options(options), _periodic_of(options))
        return declare if function is None else declare(function)
    except (TypeError, ValueError) as error:
        error.__traceback__ = None  # as above
        raise


# Imported by those alone who have something periodic, with what reads their cron expressions.


def _periodic_of(given: ScheduleArguments) -> "tuple[Periodic, ...]":
    if not any(name in given for name in ScheduleArguments.__annotations__):
        return ()
    from rota.tasks.periodic import declared  # noqa: PLC0415

    return declared(given)


def _schedules_of(made: Task[..., Any], periodic: "tuple[Periodic, ...]") -> "tuple[Schedule, ...]":
    from rota.tasks.periodic import schedules_of  # noqa: PLC0415

    return schedules_of(made, periodic)
