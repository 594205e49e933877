"""Tasks as an application has them: `@rota.task` declares a function, which can be called as ever, and enqueued."""

import importlib
import inspect
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from rota.client.default_clients import async_client, blocking_client, default_async_client, default_client
from rota.client.enqueue_options import OnCommitOption
from rota.durations import Duration
from rota.errors import InvalidName, RotaError
from rota.foreign_names import KnowsForeignNames
from rota.protocol.keys import fault_in_name
from rota.tasks.call import CALL_OPTIONS, Call, CallOptions, fault_in_call_options, plain_call
from rota.tasks.declaration import fault_in_rate_key, showing, why_no_task
from rota.tasks.options import ScheduleArguments, TaskArguments, TaskOptions, check_options
from rota.tasks.registry import TaskDefinition, default_registry, signature_of, written_at

if TYPE_CHECKING:
    from rota.client.aio import AsyncClient, AsyncHandle
    from rota.client.blocking.client import Client
    from rota.client.blocking.handles import Handle
    from rota.tasks.periodic import Periodic

P = ParamSpec("P")
R = TypeVar("R")


class Task(TaskDefinition[P, R], KnowsForeignNames, place="task"):
    """A function with a name and options under which workers run it. Calling it calls the function."""

    def __reduce__(self) -> tuple[Callable[[str, str], "Task[..., Any]"], tuple[str, str]]:
        # As a function is pickled and copied: by where it is found.
        return _declared_task, (self.function.__module__, self.name)

    def __copy__(self, memo: Any = None) -> Self:
        return self  # as a function's copy is the function

    __deepcopy__ = __copy__

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> "Handle[R]":
        """Have a worker call the function with these arguments, as soon as one is free.

        Raises InvalidArguments, PayloadTooLarge, NotConfigured, Unavailable, ServerFull or Uncertain.
        """
        try:
            return default_client().enqueue(plain_call(self.name, args, kwargs))
        except RotaError as error:
            error.__traceback__ = None  # what is wrong is in the caller's line, or with the server: in none of ours
            raise

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> "AsyncHandle[R]":
        """As `enqueue`, in an event loop, which goes on meanwhile. Raises the same; cancelled as `AsyncClient.enqueue`
        says."""
        return await default_async_client().enqueue(plain_call(self.name, args, kwargs))

    def enqueue_in(self, delay: Duration, /, *args: P.args, **kwargs: P.kwargs) -> "Handle[R]":
        """As `enqueue`, due `delay` (seconds or timedelta) from now."""
        if delay is None:
            raise TypeError(f"delay must be seconds or a timedelta, got None; without one, {self._plain_enqueue}")
        return Using(self, {"delay": delay}).enqueue(*args, **kwargs)

    def enqueue_at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> "Handle[R]":
        """As `enqueue`, due at an aware datetime; one in the past is due now. Raises ValueError for a naive one."""
        if when is None:
            raise TypeError(f"at must be a datetime, got None; without one, {self._plain_enqueue}")
        return Using(self, {"at": when}).enqueue(*args, **kwargs)

    @property
    def _plain_enqueue(self) -> str:
        return f"write {self.function.__name__}.enqueue(...)"

    @showing(CallOptions, Call)
    def using(
        self,
        *,
        client: "Client | AsyncClient | None" = None,
        on_commit: OnCommitOption = ...,
        **options: Unpack[CallOptions],
    ) -> "Using[P, R]":
        """This task with options for one call, apart from the function's own parameters.

        `client` is the one to enqueue through, instead of the default client: an AsyncClient for `aenqueue`.

        `on_commit` is called with a callback, as `django.db.transaction.on_commit` is: the call is checked at once, and
        sent when the callback is called, which raises what sending raises. Until then nothing is known of the handle's
        `id`, and its `duplicate` is False; `delay` counts from then. None sends at once, whatever the client was given.
        `aenqueue` sends at once or raises RuntimeError: see `AsyncClient.enqueue`.
        """
        if not CALL_OPTIONS.issuperset(options):
            raise TypeError(fault_in_call_options(options, "using()"))
        if client is not None and not hasattr(client, "enqueue"):
            raise TypeError(f"client must be a rota.Client or rota.AsyncClient, got {client!r}")
        return Using(self, options, client, on_commit)


class Using(KnowsForeignNames, Generic[P, R], place="using"):
    """A task and options. The options stand apart from the arguments, so their names never collide."""

    def __init__(
        self,
        task: Task[P, R],
        options: CallOptions | None = None,
        client: "Client | AsyncClient | None" = None,
        on_commit: OnCommitOption = ...,
    ) -> None:
        self._task = task
        self._options: Mapping[str, Any] = dict(options or {})
        self._client = client
        self._on_commit = on_commit

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A call of the task with these options, for `enqueue_many` and `Client.enqueue`.

        Raises TypeError with `on_commit`, which is theirs to be given: it says when a call is sent, not what it is."""
        if self._on_commit is not ...:
            raise TypeError("a call does not say when it is sent: give on_commit to enqueue_many, or to Client.enqueue")
        return Call(self._task.name, args, kwargs, **self._options)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> "Handle[R]":
        """Enqueue the task with these options. Raises as `Task.enqueue`, and ValueError for options at odds."""
        client = blocking_client(self._client, "await task.using(client=...).aenqueue(...)")
        call: Call[R] = Call(self._task.name, args, kwargs, **self._options)
        try:
            return client.enqueue(call, on_commit=self._on_commit)
        except RotaError as error:
            error.__traceback__ = None  # as in Task
            raise

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> "AsyncHandle[R]":
        """As `enqueue`, in an event loop: see `Task.aenqueue`."""
        client = async_client(self._client, "task.using(client=...).enqueue(...)")
        call: Call[R] = Call(self._task.name, args, kwargs, **self._options)
        return await client.enqueue(call, on_commit=self._on_commit)


class AsyncTask(Task[P, R]):
    """A task whose function is a coroutine function. `R` is what awaiting it gives."""

    def __init__(self, function: Callable[P, Coroutine[Any, Any, R]], name: str, options: TaskOptions) -> None:
        super().__init__(function, name, options)  # type: ignore[arg-type]  # R is the awaited value here

    def __call__(  # type: ignore[override]  # a coroutine of what a plain task gives
        self, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]:
        """Call the function, giving its coroutine."""
        return self.function(*args, **kwargs)  # type: ignore[return-value]  # as in __init__


def _declared_task(module: str, name: str) -> Task[..., Any]:
    """The task of that name that importing the module declares. Raises LookupError."""
    importlib.import_module(module)
    if isinstance(found := default_registry.get(name), Task):
        return found
    raise LookupError(f"importing {module} declares no task {name!r}")


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
            from rota.tasks.periodic import schedules_of  # noqa: PLC0415 - as in `_periodic_of`

            made.schedules = schedules_of(made, made.options.queue, self._periodic)
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


def _periodic_of(given: ScheduleArguments) -> "tuple[Periodic, ...]":
    if not any(name in given for name in ScheduleArguments.__annotations__):
        return ()
    from rota.tasks.periodic import declared  # noqa: PLC0415 - brings what reads cron expressions

    return declared(given)
