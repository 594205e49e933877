"""Conversion of Python values to JSON and back, based on an annotation. This module is loaded only if an annotation
needs it.

After a value has been converted to JSON, the JSON is loaded as the worker will load it, and the result is compared with
the original value. If the value would arrive changed, it is rejected.
"""

import dataclasses
import json
import re
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from pathlib import PurePath
from typing import Any, Final, Literal

import msgspec

from rota.protocol.body import encode_json
from rota.protocol.outcome import error_line
from rota.tasks.arguments import Misfit, is_model, step

# Matches the error messages of msgspec, which consist of the error and the path at which it occurred.
_ERROR_WITH_PATH: Final = re.compile(r"(.*?)(?: - at `(?:key` in `)?\$(.*)`)?", re.DOTALL)
_NAIVE: Final = (
    "is a datetime without a time zone, which may mean another time on another node: pass an aware datetime, such as "
    "datetime.now(UTC)"
)


class Converter:
    """Converts values of one annotated type to JSON values and back, with msgspec."""

    def __init__(self, annotation: Any) -> None:
        """Make the converter. Raises TypeError if the annotation permits several types that cannot be distinguished in
        JSON."""
        msgspec.json.Decoder(annotation)
        self._annotation = annotation

    def dump(self, value: Any) -> Any:
        """Convert a value to JSON values. Raises Misfit if the value would arrive changed."""
        try:
            dumped = msgspec.to_builtins(value, str_keys=True, enc_hook=_dump_other)
            wire = json.loads(json.dumps(dumped))  # this turns tuples into lists, as the worker will receive them
        except Exception as error:
            raise Misfit("", f"cannot be written as JSON: {error_line(error)}") from error
        arrives = self._read(wire)
        for path, fault in _differences("", value, arrives):
            raise Misfit(path, fault)
        return wire

    def load(self, wire: Any) -> Any:
        """Convert JSON values to a value of the annotated type. Raises Misfit if they do not fit the annotation."""
        value = self._read(wire)
        for path, fault in _differences("", value, value):
            raise Misfit(path, fault)
        return value

    def _read(self, wire: Any) -> Any:
        try:
            return msgspec.convert(wire, self._annotation, str_keys=True, dec_hook=_load_other)
        except msgspec.ValidationError as error:
            raise _misfit_of(error) from error
        # Classes of the application may raise any exception for a value that they do not accept.
        except Exception as error:
            raise Misfit("", f"is refused: {error_line(error)}") from error


class PydanticConverter:
    """Converts values with the rules of pydantic, for tasks with `pydantic=True`. For example, "7" is accepted as an
    int unless the annotation is strict."""

    def __init__(self, annotation: Any) -> None:
        """Make the converter. Raises an error of pydantic if pydantic has no schema for the annotation."""
        from pydantic import TypeAdapter  # noqa: PLC0415 - an extra, which takes a quarter of a second to import

        self._adapter = TypeAdapter[Any](annotation)

    def dump(self, value: Any) -> Any:
        """Convert a value to JSON values. Raises Misfit if pydantic rejects the value, or if the value would arrive
        changed."""
        try:
            checked = self._adapter.validate_python(value)
            wire = self._adapter.dump_python(checked, mode="json", by_alias=True, round_trip=True)
            arrives = self._adapter.validate_json(encode_json(wire))
        except Exception as error:
            raise _misfit_of(error) from error
        if arrives != checked:
            raise Misfit("", f"would arrive as a different {type(arrives).__name__}")
        return wire

    def load(self, wire: Any) -> Any:
        """Convert JSON values to a value of the annotated type. Raises Misfit if pydantic rejects them."""
        try:
            return self._adapter.validate_json(encode_json(wire))
        except Exception as error:
            raise _misfit_of(error) from error


def ordered(value: Any) -> Any:
    """Convert a value to JSON values that are the same for equal values. For example, sets are sorted."""
    return msgspec.to_builtins(value, str_keys=True, order="deterministic", enc_hook=_dump_for_order)


def _misfit_of(error: Exception) -> Misfit:
    if isinstance(error, msgspec.ValidationError) and (match := _ERROR_WITH_PATH.fullmatch(str(error))):
        text = match[1].replace("`", "")
        return Misfit(match[2] or "", f"is refused: {text[:1].lower()}{text[1:]}")
    path, text = _first_of_pydantic(error)
    return Misfit(path, f"is refused: {text}")


def _first_of_pydantic(error: Exception) -> tuple[str, str]:
    # Use only the first error. The text of the whole exception contains a line for each fault, the given values, and a
    # web address.
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return "", error_line(error)
    first = errors()[0]
    path = "".join(f"[{part}]" if isinstance(part, int) else step(part) for part in first["loc"])
    return path, str(first["msg"])


def _dump_other(value: Any, *, mode: Literal["json", "python"] = "json") -> Any:
    if isinstance(value, PurePath):
        return str(value)
    # `value` may be of a subclass, for example from a library that fakes the time in tests.
    if isinstance(value, datetime):
        return value.isoformat()
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    if is_model(type(value)):
        return value.model_dump(mode=mode, by_alias=True, round_trip=True)
    raise TypeError(
        f"there is no conversion for {type(value).__name__}: make the class a dataclass, or pass its parts as arguments"
    )


def _dump_for_order(value: Any) -> Any:
    return _dump_other(value, mode="python")


def _load_other(kind: Any, wire: Any) -> Any:
    if is_model(kind):
        try:
            return kind.model_validate_json(encode_json(wire))
        except ValueError as error:
            path, text = _first_of_pydantic(error)
            raise ValueError(f"{path.lstrip('.')}: {text}" if path else text) from error
    if kind is object:
        return wire
    if issubclass(kind, PurePath) and isinstance(wire, str):
        return kind(wire)
    raise ValueError(f"Expected `{kind.__name__}`, got `{type(wire).__name__}`")


def _differences(path: str, given: Any, arrives: Any) -> Iterator[tuple[str, str]]:
    """Yield a path and a message for each difference between the given value and the value that would arrive. Also
    yield them for each part that must not be sent at all, for example a datetime without a time zone."""
    parts = _parts(given)
    others = _parts(arrives)
    if not _is_same_kind(given, arrives, is_whole=others is None):
        yield path, f"is of type {_named(given)}, and would arrive as {_named(arrives)}"
    elif parts is None or others is None:
        if given != arrives:
            is_nan = given != given  # noqa: PLR0124 - nothing else differs from itself
            yield (
                path,
                f"is {given}, which is not a number" if is_nan else f"would arrive as a different {_named(arrives)}",
            )
        elif isinstance(arrives, datetime) and arrives.utcoffset() is None:
            yield path, _NAIVE
    elif [where for where, _ in parts] != [where for where, _ in others]:
        yield path, "would arrive with different keys"
    else:
        for (where, part), (_, other) in zip(parts, others, strict=True):
            yield from _differences(f"{path}{where}", part, other)


def _is_same_kind(given: Any, arrives: Any, *, is_whole: bool) -> bool:
    if type(given) is type(arrives):
        return True
    if is_whole:
        return isinstance(given, type(arrives)) or (type(arrives) is float and type(given) is int)
    return isinstance(given, dict) and type(arrives) is dict


def _parts(value: Any) -> list[tuple[str, Any]] | None:
    """Return the parts of a value, for example the items of a list, each with its step in a path, for example `[0]`.
    Returns None if the value has no parts."""
    if isinstance(value, (list, tuple)):
        return [(f"[{number}]", part) for number, part in enumerate(value)]
    if isinstance(value, dict):
        return [(step(key), part) for key, part in value.items()]
    if isinstance(value, (set, frozenset)):
        return [("[...]", part) for part in sorted(value, key=repr)]
    kind: Any = type(value)
    names = _fields_of(kind)
    return [(f".{name}", getattr(value, name)) for name in names] if names else None


@cache
def _fields_of(kind: Any) -> tuple[str, ...]:
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return getattr(kind, "__struct_fields__", ()) or tuple(field.name for field in getattr(kind, "__attrs_attrs__", ()))


def _named(value: Any) -> str:
    return type(value).__name__
