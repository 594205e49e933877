"""`@rota.task`: a function that can be called as ever, and enqueued."""

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from rota.client.call import CALL_OPTIONS, Call, CallOptions, fault_in_call_options, plain_call
from rota.client.declarable import showing, signature_of, why_no_task
from rota.client.default import default_client
from rota.durations import Duration
from rota.errors import InvalidArguments, InvalidName, RotaError
from rota.habits import OF_A_TASK, OF_USING, KnowsHabits
from rota.options import ScheduleArguments, TaskArguments, TaskOptions, check_options
from rota.protocol.entry import MICROSECONDS, Entry
from rota.protocol.names import fault_in_name
from rota.protocol.scripts import sha1_of
from rota.protocol.store import RateAsked
from rota.rates import fault_in_rate_key, key_of
from rota.registry import default_registry, written_at

if TYPE_CHECKING:
    from rota.client.client import Client
    from rota.client.periodic import Periodic
    from rota.client.status import Handle
    from rota.schedules.schedule import Schedule

P = ParamSpec("P")
R = TypeVar("R")

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Task(KnowsHabits, Generic[P, R]):
    """A function with a name and options under which workers run it. Calling it calls the function."""

    __name__: str
    _habits = OF_A_TASK

    def __init__(self, function: Callable[P, R], name: str, options: TaskOptions) -> None:
        self.function = function
        self.name = name
        self.options = options
        self.schedules: tuple[Schedule, ...] = ()
        functools.update_wrapper(self, function, updated=())  # not its attributes: they might be named as ours are

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, in this process, now."""
        return self.function(*args, **kwargs)

    def __reduce__(self) -> tuple[Callable[[str, str], "Task[..., Any]"], tuple[str, str]]:
        # As a function is pickled and copied: by where it is found.
        return _declared_task, (self.function.__module__, self.name)

    def __copy__(self, memo: Any = None) -> Self:
        return self  # as a function's copy is the function

    __deepcopy__ = __copy__

    def __repr__(self) -> str:
        return f"<rota task {self.name} on queue {self.options.queue}: {self.place}>"

    @property
    def place(self) -> str:
        """Where the function is: its module and qualified name."""
        return f"{self.function.__module__}.{self.function.__qualname__}"

    @property
    def is_async(self) -> bool:
        """Whether calling it gives a coroutine, to be awaited in an event loop."""
        return inspect.iscoroutinefunction(self.function)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A call of this task, for `enqueue_many` and `Client.enqueue`."""
        return plain_call(self.name, args, kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> "Handle[R]":
        """Have a worker call the function with these arguments, as soon as one is free.

        Raises InvalidArguments, PayloadTooLarge, NotConfigured, Unavailable, ServerFull or Uncertain.
        """
        try:
            return default_client().enqueue(plain_call(self.name, args, kwargs))
        except RotaError as error:
            error.__traceback__ = None  # what is wrong is in the caller's line, or with the server: in none of ours
            raise

    def enqueue_in(self, delay: Duration, /, *args: P.args, **kwargs: P.kwargs) -> "Handle[R]":
        """As `enqueue`, due `delay` (seconds or timedelta) from now."""
        return Using(self, {"delay": delay}).enqueue(*args, **kwargs)

    def enqueue_at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> "Handle[R]":
        """As `enqueue`, due at an aware datetime; one in the past is due now. Raises ValueError for a naive one."""
        return Using(self, {"at": when}).enqueue(*args, **kwargs)

    @showing(CallOptions, Call)
    def using(self, *, client: "Client | None" = None, **options: Unpack[CallOptions]) -> "Using[P, R]":
        """This task with options for one call, apart from the function's own parameters.

        `client` is the one to enqueue through, instead of the default client.
        """
        if not CALL_OPTIONS.issuperset(options):
            raise TypeError(fault_in_call_options(options, "using()"))
        if client is not None and not hasattr(client, "enqueue"):
            raise TypeError(f"client must be a rota.Client, got {client!r}")
        return Using(self, options, client)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Fit arguments to the function's signature without calling it; returns them as it would take them.

        Raises InvalidArguments naming the task and what does not fit.
        """
        if not kwargs and len(args) in self._fitting_counts:
            return tuple(args), {}
        if self._signature is None:
            return tuple(args), dict(kwargs)
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            meant = sorted(CALL_OPTIONS.intersection(kwargs).difference(self._signature.parameters))
            advice = f"; options of a call stand apart: {self.name}.using({meant[0]}=...).enqueue(...)" if meant else ""
            raise InvalidArguments(f"the arguments do not fit {self.name}{self._signature}: {error}{advice}") from None
        return bound.args, bound.kwargs

    def rate_asked(
        self, entry: Entry, options: TaskOptions, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> RateAsked | None:
        """What is to be asked before a call with these arguments starts, under the options in force; None without a
        rate. Arguments that do not fit are counted as none."""
        if options.rate is None:
            return None
        latest_us = None if options.expires is None else entry.due_us + round(options.expires * MICROSECONDS)
        name = sha1_of(f"{self.name} {self._rate_key_of(args, kwargs)}".encode(errors="surrogatepass"))
        return RateAsked(entry.text, name, *options.rate, latest_us)

    def _rate_key_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        if not self.options.rate_key or self._signature is None:
            return ""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError:
            return ""
        bound.apply_defaults()
        return key_of(self.options.rate_key, bound.arguments)

    @functools.cached_property
    def _signature(self) -> inspect.Signature | None:
        return signature_of(self.function)

    @functools.cached_property
    def _fitting_counts(self) -> range:
        # How many positional arguments fit when there are no others: `Signature.bind` then returns them unchanged.
        least = most = 0
        for parameter in self._signature.parameters.values() if self._signature else ():
            needed = parameter.default is parameter.empty
            if parameter.kind in _POSITIONAL:
                most += 1
                least = most if needed else least
            elif parameter.kind is parameter.VAR_POSITIONAL:
                most = sys.maxsize - 1
            elif parameter.kind is parameter.KEYWORD_ONLY and needed:
                return range(0)
        return range(least, sys.maxsize if self._signature is None else most + 1)


class Using(KnowsHabits, Generic[P, R]):
    """A task and options. The options stand apart from the arguments, so their names never collide."""

    _habits = OF_USING

    def __init__(self, task: Task[P, R], options: CallOptions | None = None, client: "Client | None" = None) -> None:
        self._task = task
        self._options: Mapping[str, Any] = dict(options or {})
        self._client = client

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A call of the task with these options, for `enqueue_many` and `Client.enqueue`."""
        return Call(self._task.name, args, kwargs, **self._options)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> "Handle[R]":
        """Enqueue the task with these options. Raises as `Task.enqueue`, and ValueError for options at odds."""
        try:
            client = default_client() if self._client is None else self._client
            return client.enqueue(self.call(*args, **kwargs))
        except RotaError as error:
            error.__traceback__ = None  # as in Task
            raise


class AsyncTask(Task[P, R]):
    """A task whose function is a coroutine function. `R` is what awaiting it gives."""

    def __init__(self, function: Callable[P, Coroutine[Any, Any, R]], name: str, options: TaskOptions) -> None:
        super().__init__(function, name, options)  # type: ignore[arg-type]  # R is the awaited value here

    def __call__(  # type: ignore[override]  # a coroutine of what a plain task gives
        self, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]:
        """Call the function, giving its coroutine."""
        return self.function(*args, **kwargs)  # type: ignore[return-value]  # as in __init__


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
        error.__traceback__ = None  # as in Declare
        raise


def _declared_task(module: str, name: str) -> Task[..., Any]:
    """The task of that name that importing the module declares. Raises LookupError."""
    importlib.import_module(module)
    if found := default_registry.get(name):
        return found
    raise LookupError(f"importing {module} declares no task {name!r}")


# Imported by those alone who have something periodic, with what reads their cron expressions.


def _periodic_of(given: ScheduleArguments) -> "tuple[Periodic, ...]":
    if not any(name in given for name in ScheduleArguments.__annotations__):
        return ()
    from rota.client.periodic import declared  # noqa: PLC0415

    return declared(given)


def _schedules_of(made: Task[..., Any], periodic: "tuple[Periodic, ...]") -> "tuple[Schedule, ...]":
    from rota.client.periodic import schedules_of  # noqa: PLC0415

    return schedules_of(made, periodic)
