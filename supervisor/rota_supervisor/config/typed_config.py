"""Converts raw values from TOML or JSON to the classes of `model`, and collects all faults.

msgspec itself stops at the first fault, and does not report which key of a `dict` has the fault. This module therefore
converts the classes field by field, based on their descriptions from `msgspec.inspect`. A field with a fault is set to
its default, and the faults are returned to the caller.
"""

import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache
from typing import Any, Final

from msgspec import inspect

from rota.display_text import HIDDEN, may_hold_credentials
from rota.durations import MAX_SECONDS
from rota.foreign_names import FOREIGN_NAMES
from rota_supervisor.config.errors import Fault, shown, suggestion
from rota_supervisor.config.model import Config

# Larger counts and durations would overflow when they are converted to nanoseconds, because 64 bits of nanoseconds
# cover only 292 years.
GREATEST_COUNT = 10**12
GREATEST_NUMBER = int(MAX_SECONDS)
SECRET_PATHS = ("redis_url", "signing", "signing.keys")
_COMPARISONS: Final = (
    ("gt", ">", operator.gt),
    ("ge", ">=", operator.ge),
    ("lt", "<", operator.lt),
    ("le", "<=", operator.le),
)
_TAKEN: Final[dict[type[inspect.Type], tuple[Any, str]]] = {
    inspect.IntType: (int, "a whole number"),
    inspect.FloatType: (int | float, "a number"),
    inspect.BoolType: (bool, "true or false"),
    inspect.StrType: (str, "text"),
    inspect.DateTimeType: (datetime, "a date and time with its offset, as in 2027-01-31T08:00:00+01:00"),
    inspect.AnyType: (object, "a value"),
}
_ITEMS: Final[dict[type[inspect.Type], str]] = {
    inspect.StrType: "texts",
    inspect.VarTupleType: "lists of texts",
    inspect.AnyType: "values",
}
_EXAMPLES: Final = {
    "rate": '"10/s"',
    "workers": '"2..16"',
    "timezone": '"Europe/Zurich"',
    "cron": '"0 3 * * *"',
    "redis_url": '"redis://127.0.0.1:6379/0"',
    "imports": '["your.tasks"]',
    "tiers": '[["high"], ["default"]]',
    "tiers[]": '["default"]',
    "queues": '["default"]',
}
_INDEX: Final = re.compile(r"\[\d+\]$")
_PLAIN_PATH: Final = re.compile(r"[\w.-]+", re.ASCII)
_MISSPELT: Final = 0.8  # a key with this similarity counts as misspelt; a less similar key may belong to another table
_FAILED: Final = object()
_ABOVE: Final = ": this key belongs to no table: move it above the first [table] of the file"
_MISPLACED: Final = (
    "looks like a URL or like credentials, and is not shown: the server's URL belongs in redis_url, or in a file "
    "that redis_url_file names"
)

Number = inspect.IntType | inspect.FloatType


@cache
def schema() -> inspect.StructType:
    """Return msgspec's description of `Config`."""
    described = inspect.type_info(Config)
    assert isinstance(described, inspect.StructType)
    return described


def fields_of(kind: inspect.StructType) -> dict[str, inspect.Type]:
    """Return the keys of a table with their types."""
    return {each.name: each.type for each in kind.fields}


@cache
def _full_paths() -> dict[str, str]:
    """Return the full path of each key, whether in a table or at the top level, for hints about misplaced keys."""
    paths: dict[str, str] = {}
    for name, kind in fields_of(schema()).items():
        many = isinstance(kind, inspect.DictType)
        inner = without_none(kind.value_type if isinstance(kind, inspect.DictType) else kind)
        if isinstance(inner, inspect.StructType):
            table = f"{name}.NAME" if many else name
            paths = {key: f"{table}.{key}" for key in fields_of(inner)} | paths
    return paths | {name: name for name in fields_of(schema())}


def _in_other_table(key: str) -> str:
    """Return `, did you mean "http.listen"?` for a key that belongs to another table, or "" if no table has the key."""
    path = _full_paths().get(key)
    return f', did you mean "{path}"?' if path else ""


def without_none(kind: inspect.Type) -> inspect.Type:
    """Return an optional type without None, which a TOML file cannot contain."""
    if not isinstance(kind, inspect.UnionType):
        return kind
    first, *others = (each for each in kind.types if not isinstance(each, inspect.NoneType))
    return inspect.UnionType((first, *others)) if others else first


def alternatives(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    """Return the types that a key accepts: a single type, or a number and a text of a certain form, for example
    "2..16".
    """
    found = without_none(kind)
    return found.types if isinstance(found, inspect.UnionType) else (found,)


def convert_config(raw: Mapping[str, Any]) -> tuple[Config, list[Fault]]:
    """Build a Config from the values that are valid, and return it with the faults of the other values."""
    conversion = _Conversion()
    config = conversion.convert(raw, schema(), "")
    assert isinstance(config, Config)
    return config, conversion.faults


class _Conversion:
    """A conversion, with the faults found so far. A value that cannot be converted becomes `_FAILED`."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def convert(self, raw: Any, optional: inspect.Type, path: str) -> Any:
        kinds = alternatives(optional)
        kind = next((each for each in kinds if isinstance(raw, _taken(each)[0])), kinds[0])
        if isinstance(kind, inspect.DateTimeType):
            raw = _moment(raw)
        if fault := _fault(raw, kind, optional, path):
            return self._failed(path, fault)
        match kind:
            case inspect.StructType():
                return self._table(raw, kind, path)
            case inspect.DictType(value_type=inner):
                converted = {key: self.convert(value, inner, _at(path, key)) for key, value in raw.items()}
                self.faults += [Fault(_at(path, key), _MISPLACED) for key in raw if may_hold_credentials(key)]
                return _usable(converted)
            case inspect.VarTupleType(item_type=inner):
                items = [self.convert(value, inner, f"{path}[{index}]") for index, value in enumerate(raw)]
                return tuple(item for item in items if item is not _FAILED)
            case inspect.AnyType():
                return self._argument(raw, path)
        return float(raw) if isinstance(kind, inspect.FloatType) else raw

    def _table(self, raw: Mapping[str, Any], kind: inspect.StructType, path: str) -> Any:
        fields = fields_of(kind)
        values = {}
        for key, value in raw.items():
            at = _at(path, str(key))
            if key in fields:
                values[key] = self.convert(value, fields[key], at)
            else:
                self._failed(at, f"unknown key{self._hint(str(key), fields, path)}")
        return kind.cls(**_usable(values))

    @staticmethod
    def _hint(key: str, fields: Iterable[str], table: str) -> str:
        is_of_top_level = bool(table) and key in fields_of(schema())
        near = suggestion(key, fields, _MISSPELT) or (_ABOVE if is_of_top_level else _in_other_table(key))
        foreign = FOREIGN_NAMES["table"].get(key)
        return near or (f": {foreign}" if foreign else suggestion(key, fields))

    def _argument(self, raw: Any, path: str) -> Any:
        """Check the values inside a value that belongs to the application, and return the value unchanged. The rules of
        schedules check later whether it is valid JSON.
        """
        for key, value in _inside(raw):
            self.convert(value, inspect.AnyType(), f"{path}{key}")
        return raw

    def _failed(self, path: str, message: str) -> Any:
        self.faults.append(Fault(path, message))
        return _FAILED


def _fault(raw: Any, kind: inspect.Type, optional: inspect.Type, path: str) -> str:
    """Return a text that states why a value is not valid, or "" if it is valid. `optional`: the types that the key
    accepts. `kind`: the one among them that fits the value best.
    """
    if isinstance(raw, str) and _is_leaf(kind) and path not in SECRET_PATHS and may_hold_credentials(raw):
        return _MISPLACED
    if _fits(raw, kind):
        return ""
    got = _kind_of(raw) if path in SECRET_PATHS else shown(raw)
    accepted = " or ".join(f"{_expected(each)}{_at_most(raw, each)}" for each in alternatives(optional))
    return f"expected {accepted}{example_of(path, without_none(optional))}, got {got}"


def example_of(path: str, kind: inspect.Type) -> str:
    """Return the end of an error message about a key, `, as in EXAMPLE`, or "" if the key needs no example."""
    if isinstance(kind, inspect.StructType | inspect.DictType):
        return f", as [{path}]" if _PLAIN_PATH.fullmatch(path) else ""
    example = _EXAMPLES.get(_INDEX.sub("[]", path).rpartition(".")[2])
    has_example = isinstance(kind, inspect.StrType | inspect.VarTupleType | inspect.UnionType)
    return f", as in {example}" if example and has_example else ""


def _kind_of(raw: Any) -> str:
    """Return the type of a value in words, for faults about values that may be secret."""
    if isinstance(raw, bool):
        return "true or false"
    if isinstance(raw, str):
        return "text"
    return "a number" if isinstance(raw, int | float) else "a list or a table"


def _inside(raw: Any) -> Iterator[tuple[str, Any]]:
    match raw:
        case Mapping():
            yield from ((f".{key}", value) for key, value in raw.items())
        case list():
            yield from ((f"[{index}]", value) for index, value in enumerate(raw))


def _moment(raw: Any) -> Any:
    """Return a text as a datetime if it contains a date and time with a UTC offset. Environment variables, for example,
    contain only texts.

    Other values are returned unchanged.
    """
    try:
        moment = datetime.fromisoformat(raw) if isinstance(raw, str) else raw
    except ValueError:
        return raw
    is_one = isinstance(moment, datetime) and moment.utcoffset() is not None
    return moment if is_one else raw


def _at(path: str, key: str) -> str:
    shown_key = HIDDEN if may_hold_credentials(key) else key
    return f"{path}.{shown_key}" if path else shown_key


def _usable(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not _FAILED}


def _taken(kind: inspect.Type) -> tuple[Any, str]:
    """Return the Python types that a key accepts, and their name in faults."""
    match kind:
        case inspect.StructType() | inspect.DictType():
            return Mapping, "a table"
        case inspect.VarTupleType(item_type=item):
            return list | tuple, f"a list of {_ITEMS[type(item)]}"
        case inspect.LiteralType(values=values):
            return str, "one of " + ", ".join(f'"{value}"' for value in values)
        case inspect.StrType(pattern=str()):
            return str, "a range"
        case _:
            return _TAKEN[type(kind)]


def _is_leaf(kind: inspect.Type) -> bool:
    return not isinstance(kind, inspect.StructType | inspect.DictType | inspect.VarTupleType)


def expectation(optional: inspect.Type) -> str:
    """Return a description of the values that a key accepts, for example `a number > 0` or `one of "none", "wait"`."""
    return " or ".join(map(_expected, alternatives(optional)))


def _expected(kind: inspect.Type) -> str:
    bounds = " and ".join(f"{sign} {_plain(bound)}" for sign, _, bound in _bounds(kind))
    return f"{_taken(kind)[1]} {bounds}".rstrip()


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{number:g}"


def _at_most(raw: Any, kind: inspect.Type) -> str:
    """Return the end of a fault, ` and at most N`, if a number is above N, the limit for all numbers. Returns "" if it
    is not, or if the key has an upper bound of its own, which the fault already states.
    """
    if not isinstance(kind, Number) or not isinstance(raw, int | float):
        return ""
    is_beyond = kind.lt is None and kind.le is None and raw > _greatest(kind)
    return f" and at most {_greatest(kind)}" if is_beyond else ""


def _fits(raw: Any, kind: inspect.Type) -> bool:
    types, _ = _taken(kind)
    if types is object:
        return raw is not None  # TOML has no null, but `as_toml` must be able to write each value.
    if not isinstance(raw, types) or isinstance(raw, bool) != (types is bool):
        return False
    if isinstance(raw, datetime) and raw.utcoffset() is None:
        return False
    if isinstance(kind, Number) and not abs(raw) <= _greatest(kind):  # A comparison with NaN is false.
        return False
    if isinstance(kind, inspect.StrType) and kind.pattern and not re.fullmatch(kind.pattern, raw):
        return False
    is_one_of_them = not isinstance(kind, inspect.LiteralType) or raw in kind.values
    return is_one_of_them and all(holds(raw, bound) for _, holds, bound in _bounds(kind))


def _bounds(kind: inspect.Type) -> Iterator[tuple[str, Any, float]]:
    for name, sign, holds in _COMPARISONS if isinstance(kind, Number) else ():
        if (bound := getattr(kind, name)) is not None:
            yield sign, holds, bound


def _greatest(kind: Number) -> int:
    return GREATEST_COUNT if isinstance(kind, inspect.IntType) else GREATEST_NUMBER
