"""Checks that arguments and results are strict JSON: a task receives exactly the values that its caller passed, or the
call fails.

None, bool, int, finite float, str, list, and dict with str keys are allowed. If an annotation permits another type, the
argument is converted before this check: see `rota.tasks.typed_arguments`.
"""

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Protocol

from rota.errors import InvalidArguments
from rota.protocol.body import MAX_DEPTH, encode_json
from rota.protocol.outcome import Done, error_line

_KIBIBYTE = 1024
_MILLISECONDS_A_SECOND = 1000
_MAX_DIGITS_BITS = 14_000  # Python parses integers of at most 4,300 digits, about 14,283 bits
_SURELY_SHORT = 2**62
_LISTS: Final = (list,)
_ARRAYS: Final = (list, tuple)
_OUTER_LEVELS = 2  # each argument in a body is nested in two levels: the body's array, and args or kwargs
_HINTS = {
    "datetime": "pass its .isoformat()",
    "date": "pass its .isoformat()",
    "timedelta": "pass its .total_seconds()",
    "UUID": "pass it as str",
    "Decimal": "pass it as str",
    "bytes": "pass it as text, for example in base64",
    "set": "pass a list",
    "frozenset": "pass a list",
    "PosixPath": "pass it as str",
}
_AS_A_LIST: Final = "pass a list, because a tuple would arrive as a list"


class DescribesArguments(Protocol):
    """An object that describes the arguments of a declared task for error messages."""

    def described(self, argument: int | str) -> tuple[str, str]:
        """Return the name of an argument (given by number or keyword), and a description of the valid values."""


class DumpsResult(Protocol):
    """An object that converts the result of a task to JSON values, based on the return annotation of the task."""

    def dump_result(self, value: Any) -> Any:
        """Return the result as JSON values. Raises Misfit if the client would get a different value."""


class Misfit(Exception):
    """Raised for a value that does not fit its annotation. `path` is the path to the part that does not fit, for
    example `.items[2]`, or "" if the whole value does not fit."""

    def __init__(self, path: str, fault: str) -> None:
        super().__init__(path, fault)
        self.path = path
        self.fault = fault


def is_model(kind: object) -> bool:
    """Whether `kind` is a pydantic model class. This does not import pydantic. Unless the application has imported it,
    there are no such classes."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def step(key: Any) -> str:
    """Return one part of a path in a message, for example `.name` for a key that is an identifier, or `[0]`."""
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"


def check_arguments(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], task: DescribesArguments | None = None
) -> None:
    """Check that every argument is strict JSON. The containers `args` and `kwargs` themselves may be any sequence and
    any mapping.

    Raises InvalidArguments for the first argument that is not JSON. The message has the path and the type, and the name
    of the parameter if `task` is given.
    """
    # Nearly every call returns here, because its arguments are plain. This check is about ten times faster than the
    # search for a fault below.
    if type(args) in _ARRAYS and type(kwargs) is dict and _are_plain(args) and (not kwargs or _is_plain_object(kwargs)):
        return
    require_collections(name, args, kwargs)
    arguments: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    for argument, value in arguments:
        if isinstance(argument, str) and (fault := _fault_in_key(argument)):
            raise InvalidArguments(f"{name}: kwargs has a key {argument!r} that {fault}; arguments must be JSON")
        for where, fault in _faults("", value, _OUTER_LEVELS + 1):
            path, what_may_be = _undeclared(argument) if task is None else task.described(argument)
            raise InvalidArguments(f"{name}: {path}{where} {fault}; {what_may_be}")


def require_collections(name: str, args: Any, kwargs: Any) -> None:
    """Raise InvalidArguments if `args` is not a sequence, or `kwargs` is not a mapping with str keys."""
    if not isinstance(args, Sequence) or isinstance(args, str | bytes | bytearray | memoryview):
        raise InvalidArguments(f"{name}: args must be a list or a tuple, got {type(args).__name__}")
    if not isinstance(kwargs, Mapping) or not all(isinstance(key, str) for key in kwargs):
        raise InvalidArguments(f"{name}: kwargs must be a dict whose keys are str")


def _undeclared(argument: int | str) -> tuple[str, str]:
    return f"{'kwargs' if isinstance(argument, str) else 'args'}{step(argument)}", "arguments must be JSON"


def check_key(name: str, key: Any) -> None:
    """Check that a unique key is strict JSON, except that tuples count as lists. Raises InvalidArguments if it is
    not."""
    if fault := _fault_in(f"the unique key of {name}", key):
        raise InvalidArguments(f"{fault}; a unique key must be a JSON value")


def kept_result(value: Any, ttl_seconds: float, max_kb: int, typed: DumpsResult | None = None) -> Done:
    """Return the outcome of a task that is done and whose result is to be stored for `ttl_seconds`. If the result
    cannot be stored, the task is done anyway, and the outcome contains the reason. If `typed` is given, it converts the
    result first."""
    try:
        value = value if typed is None else typed.dump_result(value)
        if fault := _fault_in("result", value):
            return Done(refused=f"{fault}; a result must be JSON")
        result = encode_json(value)
    except Misfit as misfit:
        return Done(refused=f"result{misfit.path} {misfit.fault}")
    except Exception as error:  # noqa: BLE001 - code of the application: reading an instance of its class may raise
        return Done(refused=f"the result cannot be written as JSON: {error_line(error)}")
    if len(result) > max_kb * _KIBIBYTE:
        return Done(refused=f"the result has {len(result):,} bytes, but the limit is {max_kb} KiB (max_result_kb)")
    return Done(result, math.ceil(ttl_seconds * _MILLISECONDS_A_SECOND))


def _fault_in(root: str, value: Any) -> str:
    """Return the path and the reason why a value is not strict JSON, or "" if it is. Tuples count as lists."""
    if _are_plain((value,), 0, _ARRAYS):
        return ""
    return next((f"{where} {fault}" for where, fault in _faults(root, value, 0, _ARRAYS)), "")


def _are_plain(values: Iterable[Any], depth: int = _OUTER_LEVELS, arrays: tuple[type[Any], ...] = _LISTS) -> bool:
    # If this returns True, the values have no fault. If it returns False, they may have one. Instances of subclasses do
    # not pass, because a subclass could run code of its own.
    for value in values:
        kind = type(value)
        if kind is str:
            plain = _is_unicode(value)
        elif kind is int:
            plain = -_SURELY_SHORT < value < _SURELY_SHORT
        elif kind is float:
            plain = math.isfinite(value)
        elif kind is dict:
            plain = depth < MAX_DEPTH and _is_plain_object(value, depth + 1, arrays)
        elif kind in arrays:
            plain = depth < MAX_DEPTH and _are_plain(value, depth + 1, arrays)
        else:
            plain = value is None or kind is bool
        if not plain:
            return False
    return True


def _is_plain_object(
    value: Mapping[Any, Any], depth: int = _OUTER_LEVELS, arrays: tuple[type[Any], ...] = _LISTS
) -> bool:
    return all(type(key) is str and _is_unicode(key) for key in value) and _are_plain(value.values(), depth, arrays)


def _faults(path: str, value: Any, depth: int, arrays: tuple[type[Any], ...] = _LISTS) -> Iterator[tuple[str, str]]:
    is_object = isinstance(value, dict)
    if not (is_object or isinstance(value, arrays)):
        fault = _fault_in_scalar(value)
        if fault:
            yield path, fault
        return
    if depth > MAX_DEPTH:
        yield path, f"is nested deeper than {MAX_DEPTH} levels, or contains itself"
        return
    for key, inner in value.items() if is_object else enumerate(value):
        fault = _fault_in_key(key) if is_object else None
        if fault:
            yield path, f"has a key {key!r} that {fault}"
        yield from _faults(f"{path}{step(key)}", inner, depth + 1, arrays)


def _fault_in_key(key: Any) -> str | None:
    return _fault_in_scalar(key) if isinstance(key, str) else f"is of type {type(key).__name__}, not str"


def _fault_in_scalar(value: Any) -> str | None:
    match value:
        case None | True | False:
            return None
        case Enum():
            return f"is of type {type(value).__name__} (pass its .value)"
        case str():
            return None if _is_unicode(value) else "contains a lone surrogate, which is not valid Unicode"
        case float():
            return None if math.isfinite(value) else f"is {value}, not a finite number"
        case int():
            return None if value.bit_length() < _MAX_DIGITS_BITS else "is a number with thousands of digits"
        case _:
            hint = _AS_A_LIST if isinstance(value, tuple) else _HINTS.get(type(value).__name__)
            return f"is of type {type(value).__name__}" + (f" ({hint})" if hint else "")


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
