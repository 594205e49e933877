"""Arguments and results are strict JSON: what a task receives is what its caller wrote, or the call fails at once.

Allowed are None, bool, int, float (finite), str, list, tuple (it arrives as a list) and dict with str keys.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from rota.errors import InvalidArguments
from rota.protocol.body import MAX_DEPTH

_MAX_DIGITS_BITS = 14_000  # Python reads integers of up to 4,300 digits, which is 14,283 bits
_SURELY_SHORT = 2**62
_ARRAYS = (list, tuple)
_OUTER_LEVELS = 2  # in the body, arguments stand inside its array and inside args or kwargs
_HINTS = {
    "datetime": "pass its .isoformat()",
    "date": "pass its .isoformat()",
    "timedelta": "pass its .total_seconds()",
    "UUID": "pass it as str",
    "Decimal": "pass it as str",
    "bytes": "pass it as text, for instance base64",
    "set": "pass a list",
    "frozenset": "pass a list",
}


def check_arguments(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Check that every argument is strict JSON; `args` itself may be any sequence, and `kwargs` any mapping.

    Raises InvalidArguments with the path of the first one that is not, and its type.
    """
    # Nearly every call passes here, some ten times faster than the search for a fault, which judges all the others.
    if type(args) in _ARRAYS and type(kwargs) is dict and _are_plain(args) and (not kwargs or _is_plain_object(kwargs)):
        return
    if not isinstance(args, Sequence) or isinstance(args, str | bytes | bytearray | memoryview):
        raise InvalidArguments(f"{name}: args must be a list or a tuple, got {type(args).__name__}")
    if not isinstance(kwargs, Mapping) or not all(isinstance(key, str) for key in kwargs):
        raise InvalidArguments(f"{name}: kwargs must be a dict whose keys are str")
    for path, value in (("args", list(args)), ("kwargs", dict(kwargs))):
        for where, fault in _faults(path, value, _OUTER_LEVELS):
            raise InvalidArguments(f"{name}: {where} {fault}; arguments must be JSON")


def fault_in_result(value: Any) -> str:
    """What keeps a value that a task returned from being strict JSON, with the path to it; "" when nothing does."""
    if _are_plain((value,), 0):
        return ""
    return next((f"{where} {fault}" for where, fault in _faults("result", value, 0)), "")


def _are_plain(values: Iterable[Any], depth: int = _OUTER_LEVELS) -> bool:
    # True: there is no fault in them. False: there may be one. Exact types only, so what subclasses do is not asked.
    for value in values:
        kind = type(value)
        if kind is str:
            plain = _is_unicode(value)
        elif kind is int:
            plain = -_SURELY_SHORT < value < _SURELY_SHORT
        elif kind is float:
            plain = math.isfinite(value)
        elif kind is dict:
            plain = depth < MAX_DEPTH and _is_plain_object(value, depth + 1)
        elif kind in _ARRAYS:
            plain = depth < MAX_DEPTH and _are_plain(value, depth + 1)
        else:
            plain = value is None or kind is bool
        if not plain:
            return False
    return True


def _is_plain_object(value: Mapping[Any, Any], depth: int = _OUTER_LEVELS) -> bool:
    return all(type(key) is str and _is_unicode(key) for key in value) and _are_plain(value.values(), depth)


def _faults(path: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    if not isinstance(value, list | tuple | dict):
        fault = _fault_in_scalar(value)
        if fault:
            yield path, fault
        return
    if depth > MAX_DEPTH:
        yield path, f"is nested deeper than {MAX_DEPTH} levels, or contains itself"
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        fault = _fault_in_key(key) if isinstance(value, dict) else None
        if fault:
            yield path, f"has a key {key!r} that {fault}"
        yield from _faults(f"{path}{_step(key)}", inner, depth + 1)


def _fault_in_key(key: Any) -> str | None:
    return _fault_in_scalar(key) if isinstance(key, str) else f"is of type {type(key).__name__}, not str"


def _fault_in_scalar(value: Any) -> str | None:
    match value:
        case None | True | False:
            return None
        case Enum():
            return f"is of type {type(value).__name__} (pass its .value)"
        case str():
            return None if _is_unicode(value) else "is text with a lone surrogate, which is not Unicode"
        case float():
            return None if math.isfinite(value) else f"is {value}, not a finite number"
        case int():
            return None if value.bit_length() < _MAX_DIGITS_BITS else "is a number of thousands of digits"
        case _:
            hint = _HINTS.get(type(value).__name__)
            return f"is of type {type(value).__name__}" + (f" ({hint})" if hint else "")


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _step(key: Any) -> str:
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"
