"""Tasks as an application uses them. `@rota.task` turns a function into a task, which can still be called, and can also
be enqueued."""

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


class Task(TaskDefinition[P, R], KnowsForeignNames, kind="task"):
    """A function that workers can run, with a name and options. Calling the task calls the function."""

    def __reduce__(self) -> tuple[Callable[[str, str], "Task[..., Any]"], tuple[str, str]]:
        # A task is pickled as its module and name, as functions are.
        return _declared_task, (self.function.__module__, self.name)

    def __copy__(self, memo: Any = None) -> Self:
        return self  # A copy of a task is the task itself, as for functions.

    __deepcopy__ = __copy__

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> "Handle[R]":
        """Enqueue a call of the function with these arguments, and return its handle.

        The call runs as soon as a worker is free.

            handle = resize.enqueue(7, width=300)

        Raises:
            InvalidArguments: If the arguments are not JSON, or do not fit the signature. Nothing was sent.
            PayloadTooLarge: If the body is larger than `max_payload_kb`. Nothing was sent.
            NotConfigured: If no source names a server: see `rota.configure`.
            Unavailable: If the server cannot be reached or refuses the call. The call was not accepted.
            ServerFull: If the server has no memory left. The call was not accepted.
            Uncertain: If it is not known whether the call was accepted, or if it was accepted but its durability was
                not confirmed in time. The error can repeat the call exactly.
        """
        try:
            return default_client().enqueue(plain_call(self.name, args, kwargs))
        except RotaError as error:
            # The cause is either the caller's line or the server, so the traceback need not show frames of Rota.
            error.__traceback__ = None
            raise

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> "AsyncHandle[R]":
        """Enqueue a call of the function from an event loop: see `enqueue`, which raises the same errors.

        `AsyncClient.enqueue` describes what happens if the await is cancelled.
        """
        return await default_async_client().enqueue(plain_call(self.name, args, kwargs))

    def enqueue_in(self, delay: Duration, /, *args: P.args, **kwargs: P.kwargs) -> "Handle[R]":
        """Enqueue a call of the function, due `delay` (seconds or timedelta) from now.

            resize.enqueue_in(60, 7)

        Raises:
            TypeError: If `delay` is neither a number nor a timedelta.
            ValueError: If `delay` is below 0, or longer than ten years.
            InvalidArguments, PayloadTooLarge, NotConfigured, Unavailable, ServerFull, Uncertain: See `enqueue`.
        """
        if delay is None:
            raise TypeError(
                f"delay must be a number of seconds or a timedelta, got None; to run at once, {self._plain_enqueue}"
            )
        return Using(self, {"delay": delay}).enqueue(*args, **kwargs)

    def enqueue_at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> "Handle[R]":
        """Enqueue a call of the function, due at an aware datetime. If this time is in the past, the call is due now.

            resize.enqueue_at(datetime(2030, 1, 1, tzinfo=UTC), 7)

        Raises:
            TypeError: If `when` is not a datetime.
            ValueError: If `when` has no time zone, or is more than ten years ahead.
            InvalidArguments, PayloadTooLarge, NotConfigured, Unavailable, ServerFull, Uncertain: See `enqueue`.
        """
        if when is None:
            raise TypeError(f"at must be a datetime, got None; to run at once, {self._plain_enqueue}")
        return Using(self, {"at": when}).enqueue(*args, **kwargs)

    @property
    def _plain_enqueue(self) -> str:
        return f"use {self.function.__name__}.enqueue(...)"

    @showing(CallOptions, Call)
    def using(
        self,
        *,
        client: "Client | AsyncClient | None" = None,
        on_commit: OnCommitOption = ...,
        **options: Unpack[CallOptions],
    ) -> "Using[P, R]":
        """Return this task with options for one call, which are separate from the function's parameters.

            resize.using(queue="bulk", delay=60).enqueue(7)

        `client` is the client to enqueue through, instead of the default client; `aenqueue` needs an AsyncClient.

        `on_commit` is a function that takes a callback, like `django.db.transaction.on_commit`. The call is checked at
        once, and is sent when the callback is called. If sending fails, the callback raises the error. Until then, the
        server does not know the handle's `id`, and `duplicate` is False. A `delay` counts from the time of sending.
        With `on_commit=None`, the call is sent at once, regardless of the client's option. `aenqueue` sends at once or
        raises RuntimeError: see `AsyncClient.enqueue`.

        Raises:
            TypeError: If an option does not exist, or `client` is not a client.
        """
        if not CALL_OPTIONS.issuperset(options):
            raise TypeError(fault_in_call_options(options, "using()"))
        if client is not None and not hasattr(client, "enqueue"):
            raise TypeError(f"client must be a rota.Client or rota.AsyncClient, got {client!r}")
        return Using(self, options, client, on_commit)


class Using(KnowsForeignNames, Generic[P, R], kind="using"):
    """A task with options for a call. Options and arguments are passed separately, so their names cannot collide."""

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
        """Return a call of the task with these options, for `enqueue_many` and `Client.enqueue`.

        Raises:
            TypeError: If `on_commit` was given. This option decides when a call is sent and is not part of the call, so
                pass it to those methods instead.
        """
        if self._on_commit is not ...:
            raise TypeError(
                "a call has no on_commit, which decides when a call is sent: pass it to enqueue_many or Client.enqueue"
            )
        return Call(self._task.name, args, kwargs, **self._options)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> "Handle[R]":
        """Enqueue a call of the task with these options, and return its handle.

        Raises:
            ValueError: If an option is not valid, or two options exclude each other, such as `delay` and `at`.
            TypeError: If an option has a wrong type, or the client is an AsyncClient.
            InvalidArguments, InvalidName, PayloadTooLarge, NotConfigured, Unavailable, ServerFull, Uncertain: See
                `Client.enqueue`.
        """
        client = blocking_client(self._client, "await task.using(client=...).aenqueue(...)")
        call: Call[R] = Call(self._task.name, args, kwargs, **self._options)
        try:
            return client.enqueue(call, on_commit=self._on_commit)
        except RotaError as error:
            error.__traceback__ = None  # See `Task.enqueue`.
            raise

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> "AsyncHandle[R]":
        """Enqueue a call of the task with these options from an event loop: see `enqueue` and `Task.aenqueue`."""
        client = async_client(self._client, "task.using(client=...).enqueue(...)")
        call: Call[R] = Call(self._task.name, args, kwargs, **self._options)
        return await client.enqueue(call, on_commit=self._on_commit)


class AsyncTask(Task[P, R]):
    """A task whose function is a coroutine function. `R` is the type of the awaited result."""

    def __init__(self, function: Callable[P, Coroutine[Any, Any, R]], name: str, options: TaskOptions) -> None:
        super().__init__(function, name, options)  # type: ignore[arg-type]  # Here R is the awaited value.

    def __call__(  # type: ignore[override]  # The result is a coroutine of the base class's result.
        self, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]:
        """Call the function, and return its coroutine."""
        return self.function(*args, **kwargs)  # type: ignore[return-value]  # For the same reason as in __init__.


def _declared_task(module: str, name: str) -> Task[..., Any]:
    """Import the module, and return the task with that name. Raises LookupError if the module does not declare it."""
    importlib.import_module(module)
    if isinstance(found := default_registry.get(name), Task):
        return found
    raise LookupError(f"module {module} declares no task {name!r}")


class Declare:
    """The decorator that `rota.task(...)` returns if it is called with options."""

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
            # The cause is the caller's line, so the traceback need not show frames of Rota.
            error.__traceback__ = None
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
            from rota.tasks.periodic import schedules_of  # noqa: PLC0415 - only needed for periodic tasks

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

    Arguments are checked against the signature of the decorated object. If a decorator below this one adds arguments,
    it must declare its own signature, because a plain `*args, **kwargs` counts as passing all arguments on.

    Options, with durations in seconds or as a timedelta (docs/tasks.md has an example of each):

    * `name` is the name of the task in Redis, for other programs and in `rota.toml`.
      Default: the name of the function.
    * `queue` is the queue that the task is enqueued on, unless a call names another queue.
      Default: "default".
    * `retries` is how often a failed task is retried. After that, the task is set aside as dead. Crashes are counted
      separately.
      Default: 10, which allows 11 attempts.
    * `backoff` is how the delay before a retry grows with the number of failures n: "exponential" is
      `base * 2 ** (n - 1)`, "linear" is `base * n`, and a function takes n and returns a duration.
      Default: "exponential".
    * `base` is the delay from which `backoff` starts. A function given as `backoff` does not use it.
      Default: 2 seconds.
    * `max_delay` is the longest delay before a retry. It does not limit the delay of `rota.Retry`.
      Default: an hour.
    * `jitter` multiplies the delay by a random number from 0 to 1, so that tasks that failed together are not retried
      together. Delays from a function or from `rota.Retry` are used as they are.
      Default: True.
    * `retry_on` lists the exceptions after which the task is retried. After any other exception, the task is dead at
      once.
      Default: every Exception.
    * `dead_on` lists the exceptions after which the task is not retried, even if `retry_on` lists them too.
      Default: none.
    * `crash_limit` is the number of worker crashes after which the task is dead. With 0, the task is started at most
      once: if that attempt does not end the task, the task is dead.
      Default: None, which is `restarts.crash_limit` of the fleet (3).
    * `time_limit` is the time after which the worker of an attempt is killed. The attempt has failed, and is retried as
      after an exception.
      Default: None, which is `limits.time_limit_seconds` of the fleet (an hour).
    * `soft_time_limit` is the time after which `rota.TimeLimit` is raised inside the function, which may catch it and
      return early; then the task is done. If TimeLimit leaves the function, the task has failed. In a coroutine, the
      await is cancelled (`asyncio.CancelledError`), and TimeLimit is raised only if that exception leaves the
      coroutine. `current_task().heartbeat()` restarts both limits.
      Default: None, no soft limit.
    * `expires` is how late the task may start. If it would start later, it is not started and ends as expired.
      Default: None, it never expires.
    * `unique` allows only one live task with the same arguments, or with the key that a function returns for them. A
      second task is not enqueued, and its handle has `duplicate` set.
      Default: False.
    * `unique_for` is the longest time for which the unique key is held, counted from the enqueue. If the task ends
      earlier, its end frees the key.
      Default: None, it is held until the task has ended.
    * `result_ttl` is how long the value that the function returns is stored, for `handle.result()`.
      Default: 0, it is not stored.
    * `remember` makes the fleet remember how the task ended, so that `rota.status` can report it.
      Default: True.
    * `rate` limits how often the task starts in the whole fleet, for example "100/m". A task that exceeds the rate is
      delayed.
      Default: None, no limit.
    * `rate_key` is a text into which arguments are filled in, such as "{account}". The rate applies to each value of it
      separately.
      Default: "", one rate for the whole task.
    * `pydantic` makes pydantic check and convert all arguments and the result.
      Default: False, only arguments and results whose annotations need it are converted.
    * `cron` enqueues the task at these times, without arguments, for example "*/5 * * * *".
      Default: none, the task is not periodic.
    * `timezone` is the time zone of `cron`.
      Default: "UTC".
    * `every` enqueues the task at this interval, without arguments.
      Default: none.
    * `schedules` lists several schedules, each with its own arguments: `[rota.Cron(...), rota.Every(...)]`.
      Default: none.

    Raises:
        InvalidName: If the name of the task is not valid.
        DuplicateTask: If another function was declared as a task with this name.
        TypeError, ValueError: If the function or an option is not valid.
    """
    try:
        declare = Declare(name, check_options(options), _periodic_of(options))
        return declare if function is None else declare(function)
    except (TypeError, ValueError) as error:
        error.__traceback__ = None  # See `Declare.__call__`.
        raise


def _periodic_of(given: ScheduleArguments) -> "tuple[Periodic, ...]":
    if not any(name in given for name in ScheduleArguments.__annotations__):
        return ()
    from rota.tasks.periodic import declared  # noqa: PLC0415 - only needed for periodic tasks

    return declared(given)
