"""From raw values, as TOML or JSON gave them, to the classes of `model`, collecting every fault.

msgspec reports the first fault and stops, and does not say under which name of a `dict` it is. So its classes are
walked here field by field, by what `msgspec.inspect` says of them. A field with a fault takes its default; the caller
looks at the faults.
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
from rota_supervisor.config.model import Config, Fault, shown, suggestion

# Beyond these, counts and seconds overflow what they are turned into: a deadline in nanoseconds ends in 292 years.
GREATEST_COUNT = 10**12
GREATEST_NUMBER = int(MAX_SECONDS)
SECRET_PATHS = ("redis_url",)
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
    "timezone": '"Europe/Zurich"',
    "cron": '"0 3 * * *"',
    "redis_url": '"redis://127.0.0.1:6379/0"',
    "imports": '["your.tasks"]',
    "tiers": '[["high"], ["default"]]',
    "tiers[]": '["default"]',
    "queues": '["default"]',
}
_INDEX: Final = re.compile(r"\[\d+\]$")
_MISSPELT: Final = 0.8  # likeness: what is less like may be a key of another table
_FAILED: Final = object()
_MISPLACED: Final = (
    "looks like a URL or like credentials, and is not shown: the server's URL belongs into redis_url, or into a file "
    "that redis_url_file names"
)

Number = inspect.IntType | inspect.FloatType


@cache
def schema() -> inspect.StructType:
    """What `Config` is made of."""
    described = inspect.type_info(Config)
    assert isinstance(described, inspect.StructType)
    return described


def fields_of(kind: inspect.StructType) -> dict[str, inspect.Type]:
    """The keys of a table and what each takes."""
    return {each.name: each.type for each in kind.fields}


@cache
def _homes() -> dict[str, str]:
    """Where a key stands that is looked for elsewhere: the tables below the top level, and the top level."""
    homes: dict[str, str] = {}
    for name, kind in fields_of(schema()).items():
        many = isinstance(kind, inspect.DictType)
        inner = without_none(kind.value_type if isinstance(kind, inspect.DictType) else kind)
        if isinstance(inner, inspect.StructType):
            table = f"{name}.NAME" if many else name
            homes = {key: f"{table}.{key}" for key in fields_of(inner)} | homes
    return homes | {name: name for name in fields_of(schema())}


def _at_home(key: str) -> str:
    """`, did you mean "http.listen"?` for a key that stands in another table, "" when there is none of that name."""
    home = _homes().get(key)
    return f', did you mean "{home}"?' if home else ""


def without_none(kind: inspect.Type) -> inspect.Type:
    """An optional type without its None: TOML has none, leaving the key out says the same."""
    if isinstance(kind, inspect.UnionType):
        return next(each for each in kind.types if not isinstance(each, inspect.NoneType))
    return kind


def convert_config(raw: Mapping[str, Any]) -> tuple[Config, list[Fault]]:
    """Build a Config of what can be used, and say what cannot."""
    conversion = _Conversion()
    config = conversion.convert(raw, schema(), "")
    assert isinstance(config, Config)
    return config, conversion.faults


class _Conversion:
    """The walk, and the faults found on it. What cannot be converted becomes `_FAILED`."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def convert(self, raw: Any, optional: inspect.Type, path: str) -> Any:
        kind = without_none(optional)
        if isinstance(kind, inspect.DateTimeType):
            raw = _moment(raw)
        if fault := _fault(raw, kind, path):
            return self._failed(path, fault)
        match kind:
            case inspect.StructType():
                return self._table(raw, kind, path)
            case inspect.DictType(value_type=inner):
                converted = {key: self.convert(value, inner, _at(path, key)) for key, value in raw.items()}
                self.faults += [Fault(_at(path, key), _MISPLACED) for key in raw if may_hold_credentials(key)]
                return _usable(converted)
            case inspect.VarTupleType(item_type=inner):
                items = [self.convert(value, inner, f"{path}[{place}]") for place, value in enumerate(raw)]
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
                self._failed(at, f"unknown key{self._hint(str(key), fields)}")
        return kind.cls(**_usable(values))

    @staticmethod
    def _hint(key: str, fields: Iterable[str]) -> str:
        near = suggestion(key, fields, _MISSPELT) or _at_home(key)
        foreign = FOREIGN_NAMES["table"].get(key)
        return near or (f": {foreign}" if foreign else suggestion(key, fields))

    def _argument(self, raw: Any, path: str) -> Any:
        """A value that is the application's. Whether JSON has it is looked at with the schedule that it is of."""
        for key, value in _inside(raw):
            self.convert(value, inspect.AnyType(), f"{path}{key}")
        return raw

    def _failed(self, path: str, message: str) -> Any:
        self.faults.append(Fault(path, message))
        return _FAILED


def _fault(raw: Any, kind: inspect.Type, path: str) -> str:
    """What is wrong with a value itself, "" when nothing is."""
    if isinstance(raw, str) and _is_leaf(kind) and path not in SECRET_PATHS and may_hold_credentials(raw):
        return _MISPLACED
    if _fits(raw, kind):
        return ""
    got = _kind_of(raw) if path in SECRET_PATHS else shown(raw)
    return f"expected {expectation(kind)}{_at_most(raw, kind)}{_example(path, kind)}, got {got}"


def _example(path: str, kind: inspect.Type) -> str:
    example = _EXAMPLES.get(_INDEX.sub("[]", path).rpartition(".")[2])
    return f", as in {example}" if example and isinstance(kind, inspect.StrType | inspect.VarTupleType) else ""


def _kind_of(raw: Any) -> str:
    """What kind of value it is, for one that may be a secret."""
    if isinstance(raw, bool):
        return "true or false"
    return "a number" if isinstance(raw, int | float) else "a list or a table"


def _inside(raw: Any) -> Iterator[tuple[str, Any]]:
    match raw:
        case Mapping():
            yield from ((f".{key}", value) for key, value in raw.items())
        case list():
            yield from ((f"[{place}]", value) for place, value in enumerate(raw))


def _moment(raw: Any) -> Any:
    """A date and time with its offset, which TOML knows and a variable has as text; anything else as it came."""
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
    """The types of the values that a key takes, and how faults name them."""
    match kind:
        case inspect.StructType() | inspect.DictType():
            return Mapping, "a table"
        case inspect.VarTupleType(item_type=item):
            return list | tuple, f"a list of {_ITEMS[type(item)]}"
        case inspect.LiteralType(values=values):
            return str, "one of " + ", ".join(f'"{value}"' for value in values)
        case _:
            return _TAKEN[type(kind)]


def _is_leaf(kind: inspect.Type) -> bool:
    return not isinstance(kind, inspect.StructType | inspect.DictType | inspect.VarTupleType)


def expectation(optional: inspect.Type) -> str:
    """What a key takes, in words: `a number > 0`, `one of "none", "wait"`."""
    kind = without_none(optional)
    bounds = " and ".join(f"{sign} {_plain(bound)}" for sign, _, bound in _bounds(kind))
    return f"{_taken(kind)[1]} {bounds}".rstrip()


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{number:g}"


def _at_most(raw: Any, kind: inspect.Type) -> str:
    """The bound of all numbers, for a number beyond it whose key has no upper bound of its own."""
    if not isinstance(kind, Number) or not isinstance(raw, int | float):
        return ""
    is_beyond = kind.lt is None and kind.le is None and raw > _greatest(kind)
    return f" and at most {_greatest(kind)}" if is_beyond else ""


def _fits(raw: Any, kind: inspect.Type) -> bool:
    types, _ = _taken(kind)
    if types is object:
        return raw is not None  # TOML has no null, and what is in force can be written as TOML
    if not isinstance(raw, types) or isinstance(raw, bool) != (types is bool):
        return False
    if isinstance(raw, datetime) and raw.utcoffset() is None:
        return False
    if isinstance(kind, Number) and not abs(raw) <= _greatest(kind):  # so written, it leaves out NaN too
        return False
    is_one_of_them = not isinstance(kind, inspect.LiteralType) or raw in kind.values
    return is_one_of_them and all(holds(raw, bound) for _, holds, bound in _bounds(kind))


def _bounds(kind: inspect.Type) -> Iterator[tuple[str, Any, float]]:
    for name, sign, holds in _COMPARISONS if isinstance(kind, Number) else ():
        if (bound := getattr(kind, name)) is not None:
            yield sign, holds, bound


def _greatest(kind: Number) -> int:
    return GREATEST_COUNT if isinstance(kind, inspect.IntType) else GREATEST_NUMBER
