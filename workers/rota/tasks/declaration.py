"""Checks of the functions that `@rota.task` decorates, and the signature that `help` shows for functions with options.
This module does no I/O."""

import dataclasses
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, TypeVar

from rota.tasks.options import parameters_in
from rota.tasks.registry import written_at

F = TypeVar("F", bound=Callable[..., Any])

_VARIADIC: Final = [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]
_INSIDE: Final = ".<locals>"
_NO_OBJECT: Final = (
    "and a worker has no object to call it on: declare a function instead, and pass it the id of the object"
)


def why_no_task(given: Any, name: Any) -> str:
    """Return why the object cannot be a task and what to write instead, or "" if it can be a task. `name` is the value
    of the argument `name=` of `@rota.task`."""
    match given:
        case str():
            return f"@rota.task takes the name of the task as a keyword argument: use @rota.task(name={given!r})"
        case type():
            return f"{given.__qualname__} is a class: declare a function that creates the object"
        case classmethod() | property():
            return f"@rota.task is applied to a {type(given).__name__}, {_NO_OBJECT}"
        case _ if not inspect.isroutine(given):
            return f"@rota.task takes a function, got {given!r}"
        case _ if inspect.isgeneratorfunction(given) or inspect.isasyncgenfunction(given):
            return f"{given.__qualname__} is a generator, so calling it runs nothing: use return instead of yield"
    return _why_not_known(given, name) if isinstance(given, FunctionType) else ""


def _why_not_known(function: FunctionType, name: Any) -> str:
    if not isinstance(name, str | None):
        return f"the name of a task must be a string, got {name!r}"
    outer, _, last = function.__qualname__.rpartition(".")
    where = f"{function.__qualname__} ({written_at(function)})"
    if outer and not outer.endswith(_INSIDE) and _takes_an_object(function):
        return f"{where} is a method, {_NO_OBJECT}"
    if name is not None:
        return ""
    if last == "<lambda>":
        return f"{where} is a lambda, which has no name by which a worker could find it: define the function with def"
    if _INSIDE not in outer:
        return ""
    outermost = outer.partition(_INSIDE)[0]
    return (
        f"{where} is inside {outermost}, but workers know only the tasks that a module declares when it is imported: "
        "move the function to the top level of its module. If it comes from a decorator under @rota.task, use "
        f'functools.wraps. If the import calls {outermost}, name the task: @rota.task(name="{last}")'
    )


def _takes_an_object(function: FunctionType) -> bool:
    return next(iter(inspect.signature(function).parameters), "") in ("self", "cls")


def fault_in_rate_key(rate_key: str, signature: inspect.Signature | None) -> str:
    """Return what is wrong with a rate key for a function with this signature, or "" if it is valid."""
    if not rate_key or signature is None:
        return ""
    known = [name for name, each in signature.parameters.items() if each.kind not in _VARIADIC]
    for name in parameters_in(rate_key):
        if name not in known:
            there = f"its parameters are {', '.join(known)}" if known else "it has no parameters"
            return f"rate_key names {name!r}, which is not a parameter of the function: {there}"
    return ""


def showing(options: type, defaults: Any) -> Callable[[F], F]:
    """Return a decorator for a function with `**options`. It changes the signature that `help` shows, so that the
    options are listed one by one, with their types from the TypedDict `options` and their defaults from the dataclass
    `defaults`."""

    def show(function: F) -> F:
        own = inspect.signature(function)
        *first, _ = own.parameters.values()
        default_of = {field.name: field.default for field in dataclasses.fields(defaults)}
        named = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default_of.get(name),
                annotation=getattr(annotation, "__forward_arg__", annotation),
            )
            for name, annotation in options.__annotations__.items()
        ]
        function.__signature__ = own.replace(parameters=[*first, *named])  # type: ignore[attr-defined]  # inspect reads it
        return function

    return show
