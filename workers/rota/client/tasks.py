"""A task of this process: a function that can be called as ever, and enqueued."""

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, Unpack, cast

from rota.client.default import default_async_client, default_client
from rota.client.on_commit import OnCommitOption
from rota.durations import Duration
from rota.errors import InvalidArguments, RotaError
from rota.habits import OF_A_TASK, OF_USING, KnowsHabits
from rota.protocol.entry import MICROSECONDS, Entry
from rota.protocol.scripts import sha1_of
from rota.protocol.turns import RateAsked
from rota.soft_limit import time_limit_deferred
from rota.tasks.call import CALL_OPTIONS, Call, CallOptions, advice_on_options, fault_in_call_options, plain_call
from rota.tasks.declaration import showing, signature_of
from rota.tasks.options import TaskOptions
from rota.tasks.rates import key_of
from rota.tasks.registry import default_registry

if TYPE_CHECKING:
    from rota.client.aio import AsyncClient, AsyncHandle
    from rota.client.client import Client
    from rota.client.status import Handle
    from rota.schedules.schedule import Schedule
    from rota.tasks.typed import TypedArguments

P = ParamSpec("P")
R = TypeVar("R")

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Task(KnowsHabits, Generic[P, R], habits=OF_A_TASK):
    """A function with a name and options under which workers run it. Calling it calls the function."""

    __name__: str

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

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> "AsyncHandle[R]":
        """As `enqueue`, in an event loop, which goes on meanwhile. Raises the same; cancelled as `AsyncClient.enqueue`
        says."""
        return await default_async_client().enqueue(plain_call(self.name, args, kwargs))

    def enqueue_in(self, delay: Duration, /, *args: P.args, **kwargs: P.kwargs) -> "Handle[R]":
        """As `enqueue`, due `delay` (seconds or timedelta) from now."""
        return Using(self, {"delay": delay}).enqueue(*args, **kwargs)

    def enqueue_at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> "Handle[R]":
        """As `enqueue`, due at an aware datetime; one in the past is due now. Raises ValueError for a naive one."""
        return Using(self, {"at": when}).enqueue(*args, **kwargs)

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
            advice = advice_on_options(self.name, kwargs.keys() - self._signature.parameters.keys())
            raise InvalidArguments(f"the arguments do not fit {self.name}{self._signature}: {error}{advice}") from None
        return bound.args, bound.kwargs

    def received(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments as they came through the server, fitted to the signature and converted by its annotations.

        Raises InvalidArguments as `bind` does, and with the parameter that is given what its annotation does not allow.
        """
        bound = self.bind(args, kwargs)
        return bound if self.typed is None else self.typed.load(*bound)

    @functools.cached_property
    def typed(self) -> "TypedArguments | None":
        """What converts arguments and results, None where the annotations ask for nothing. Raises TypeError or
        ModuleNotFoundError when `pydantic=True` cannot be done."""
        return self.read_annotations()

    def read_annotations(self) -> "TypedArguments | None":
        """As `typed`, of what can be read now: at the declaration not every class that is named is there yet."""
        with time_limit_deferred:  # as in `default_client`
            from rota.tasks.typed import typed_arguments  # noqa: PLC0415 - at the first use of a task, see `annotations`

            return typed_arguments(self.name, self.function, self._signature, with_pydantic=self.options.pydantic)

    def described(self, place: int | str) -> tuple[str, str]:
        """For messages: what the argument at a place, its number or keyword, is called, and what it may be."""
        from rota.tasks.typed import described  # noqa: PLC0415 - as above

        return described(self.function, self._signature, place)

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


class Using(KnowsHabits, Generic[P, R], habits=OF_USING):
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
        client = default_client() if self._client is None else self._client
        if client.is_async:
            raise TypeError("this client is an AsyncClient: `await task.using(client=...).aenqueue(...)`")
        call: Call[R] = Call(self._task.name, args, kwargs, **self._options)
        try:
            return cast("Client", client).enqueue(call, on_commit=self._on_commit)
        except RotaError as error:
            error.__traceback__ = None  # as in Task
            raise

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> "AsyncHandle[R]":
        """As `enqueue`, in an event loop: see `Task.aenqueue`."""
        client = default_async_client() if self._client is None else self._client
        if not client.is_async:
            raise TypeError("this client is no AsyncClient: `task.using(client=...).enqueue(...)`")
        call: Call[R] = Call(self._task.name, args, kwargs, **self._options)
        return await cast("AsyncClient", client).enqueue(call, on_commit=self._on_commit)


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
    if found := default_registry.get(name):
        return found
    raise LookupError(f"importing {module} declares no task {name!r}")
