"""The registry of the tasks that a process knows. A task is a function with a name and options."""

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MethodType
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar

from rota.errors import DuplicateTask, InvalidArguments
from rota.protocol.entry import MICROSECONDS, Entry
from rota.protocol.scripts import sha1_of
from rota.protocol.turns import RateRequest
from rota.soft_limit import time_limit_deferred
from rota.tasks.call import Call, advice_on_options, plain_call
from rota.tasks.options import TaskOptions, key_of

if TYPE_CHECKING:
    from rota.schedules.schedule import Schedule
    from rota.tasks.typed_arguments import TypedArguments

P = ParamSpec("P")
R = TypeVar("R")

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_VARIADIC: Final = [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]


class TaskDefinition(Generic[P, R]):
    """A function with the name and options with which workers run it. Calling the task calls the function."""

    __name__: str

    def __init__(self, function: Callable[P, R], name: str, options: TaskOptions) -> None:
        self.function = function
        self.name = name
        self.options = options
        self.schedules: tuple[Schedule, ...] = ()
        # Do not copy the attributes of the function, because they might replace attributes of the task.
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function now, in this process."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<rota task {self.name} on queue {self.options.queue}: {self.location}>"

    @property
    def location(self) -> str:
        """The location of the function: its module and qualified name."""
        return f"{self.function.__module__}.{self.function.__qualname__}"

    @property
    def is_async(self) -> bool:
        """Whether calling the function returns a coroutine, to be awaited in an event loop."""
        return inspect.iscoroutinefunction(self.function)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Return a call of this task, for `enqueue_many` and `Client.enqueue`."""
        return plain_call(self.name, args, kwargs)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Bind arguments to the function's signature without calling it. Return them as the function would receive
        them.

        Raises InvalidArguments, with the task and the reason, if they do not fit the signature.
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
        """Bind arguments from a task's body to the signature, and convert them according to their annotations.

        Raises InvalidArguments as `bind` does. The message names the parameter whose annotation does not permit its
        argument.
        """
        bound = self.bind(args, kwargs)
        return bound if self.typed is None else self.typed.load(*bound)

    @functools.cached_property
    def typed(self) -> "TypedArguments | None":
        """The converter of arguments and results, or None if the annotations need no conversion.

        Raises TypeError or ModuleNotFoundError if the option `pydantic=True` cannot be used.
        """
        return self.read_annotations()

    def read_annotations(self) -> "TypedArguments | None":
        """Return the converter as `typed` does, but do not cache it. Use this while tasks are being declared, because a
        class that an annotation names may not exist yet."""
        # A TimeLimit that is raised in the middle of an import would leave the module half imported.
        with time_limit_deferred:
            from rota.tasks.typed_arguments import typed_arguments  # noqa: PLC0415 - loaded when a task is first used

            return typed_arguments(self.name, self.function, self._signature, with_pydantic=self.options.pydantic)

    def described(self, argument: int | str) -> tuple[str, str]:
        """Return, for error messages, the name of an argument (given by number or keyword) and which values are valid
        for it."""
        from rota.tasks.typed_arguments import described  # noqa: PLC0415 - needed only for messages

        return described(self.function, self._signature, argument)

    def rate_request(
        self, entry: Entry, options: TaskOptions, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> RateRequest | None:
        """Return the request by which an owner asks Redis whether the task's rate permits the start of this call.
        Returns None if the options have no rate. If the arguments do not fit the signature, the rate key is ""."""
        if options.rate is None:
            return None
        latest_us = None if options.expires is None else entry.due_us + round(options.expires * MICROSECONDS)
        name = sha1_of(f"{self.name} {self._rate_key_of(args, kwargs)}".encode(errors="surrogatepass"))
        return RateRequest(entry.text, name, *options.rate, latest_us)

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
        # If this many positional arguments and no keyword arguments are given, `Signature.bind` would return them
        # unchanged, so it need not be called.
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


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of a function, or None if it has none. For a wrapper, return the wrapper's own signature,
    because the wrapper may add arguments. If that signature is just `(*args, **kwargs)`, return the signature of the
    wrapped function instead."""
    try:
        own = inspect.signature(function, follow_wrapped=False)
    except ValueError:  # some functions that are written in C have no signature
        own = None
    wrapped = getattr(function, "__wrapped__", None)
    if callable(wrapped) and isinstance(function, MethodType):
        wrapped = MethodType(wrapped, function.__self__)
    passes_on = own is None or [parameter.kind for parameter in own.parameters.values()] == _VARIADIC
    return signature_of(wrapped) if passes_on and callable(wrapped) else own


AnyTask = TaskDefinition[..., Any]


def written_at(function: Callable[..., Any]) -> str:
    """Return the location of a function as `file:line`, or its module if the location is not known."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else str(function.__module__)


def _is_second(known: Callable[..., Any], function: Callable[..., Any]) -> bool:
    """Whether the module that is being imported contains both functions. If so, two of its tasks have the same function
    name. If not, for example because the module is being reloaded, `function` replaces `known`.

    The code of each function of a module is among the constants of the module's code. A reload compiles the module
    again, so the code of `known`, from before the reload, is not among the new constants.
    """
    first, second = (getattr(inspect.unwrap(each), "__code__", None) for each in (known, function))
    frame = inspect.currentframe()
    while frame is not None:
        constants = [id(constant) for constant in frame.f_code.co_consts]
        if id(second) in constants:
            return first is not second and id(first) in constants
        frame = frame.f_back
    return False


class Registry:
    """The tasks of a process by name, in the order of their declaration."""

    def __init__(self) -> None:
        self._tasks: dict[str, AnyTask] = {}

    def add(self, task: AnyTask) -> None:
        """Add a task. It replaces a task with the same module and qualified name, for example when a module is
        reloaded.

        Raises DuplicateTask if a task with another function already has this name, if the module declares two tasks
        whose functions have the same name, or if another task has a schedule with the same name as a schedule of this
        task.
        """
        known = self._tasks.get(task.name)
        if known is not None and (known.location != task.location or _is_second(known.function, task.function)):
            locations = " and ".join(f"{each.location} ({written_at(each.function)})" for each in (known, task))
            raise DuplicateTask(
                f"two tasks are named {task.name!r}: {locations}; "
                f'give one of them another name, as in @rota.task(name="...")'
            )
        for schedule in task.schedules:
            self._check_unused(schedule.name, task)
        self._tasks[task.name] = task

    def _check_unused(self, schedule: str, task: AnyTask) -> None:
        for other in self._tasks.values():
            if other.name != task.name and any(each.name == schedule for each in other.schedules):
                raise DuplicateTask(
                    f"tasks {other.name!r} and {task.name!r} both have a schedule named {schedule!r}: "
                    'give one of them another name, as in schedules=[rota.Cron(..., name="...")]'
                )

    def get(self, name: str) -> AnyTask | None:
        """Return the task with that name, or None."""
        return self._tasks.get(name)

    def __iter__(self) -> Iterator[AnyTask]:
        return iter(self._tasks.values())

    def __contains__(self, name: str) -> bool:
        return name in self._tasks


default_registry = Registry()
