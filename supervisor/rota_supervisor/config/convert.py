"""From raw values, as TOML or JSON gave them, to the classes of `model`, collecting every fault.

msgspec reports the first fault and stops, so its classes are walked here field by field by what
`msgspec.inspect` says of them. A field with a fault takes its default; the caller looks at the faults.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from msgspec import inspect

from rota.durations import MAX_SECONDS
from rota.redaction import HIDDEN, may_hold_credentials
from rota_supervisor.config.faults import Fault, shown, suggestion
from rota_supervisor.config.model import Config

# Beyond these, counts and seconds overflow what they are turned into: a deadline in nanoseconds ends in 292 years.
GREATEST_COUNT = 10**12
GREATEST_NUMBER = int(MAX_SECONDS)
SECRET_PATHS = ("redis_url",)
_BOUNDS = (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<="))
_FAILED: Final = object()
_MISPLACED: Final = (
    "looks like a URL or like credentials, and is not shown: the server's URL belongs into redis_url, or into a file "
    "that redis_url_file names"
)


@cache
def schema() -> inspect.StructType:
    """What `Config` is made of."""
    described = inspect.type_info(Config)
    assert isinstance(described, inspect.StructType)
    return described


def fields_of(kind: inspect.StructType) -> dict[str, inspect.Type]:
    """The keys of a table and what each takes."""
    return {each.name: each.type for each in kind.fields}


def without_none(kind: inspect.Type) -> inspect.Type:
    """An optional type without its None: TOML has none, leaving the key out says the same."""
    if isinstance(kind, inspect.UnionType):
        return next(each for each in kind.types if not isinstance(each, inspect.NoneType))
    return kind


def convert_config(raw: Mapping[str, Any]) -> tuple[Config, list[Fault]]:
    """Build a Config of what can be used, and say what cannot."""
    faults: list[Fault] = []
    config = _convert(raw, schema(), "", faults)
    assert isinstance(config, Config)
    return config, faults


def _convert(raw: Any, optional: inspect.Type, path: str, faults: list[Fault]) -> Any:
    kind = without_none(optional)
    match kind:
        case inspect.StructType():
            return _convert_table(raw, kind, path, faults)
        case inspect.DictType():
            return _convert_named(raw, kind, path, faults)
        case inspect.VarTupleType():
            return _convert_list(raw, kind, path, faults)
        case _:
            return _convert_leaf(raw, kind, path, faults)


def _convert_table(raw: Any, kind: inspect.StructType, path: str, faults: list[Fault]) -> Any:
    if not isinstance(raw, Mapping):
        return _refuse(raw, kind, path, faults)
    fields = fields_of(kind)
    values = {}
    for key, value in raw.items():
        at = _at(path, str(key))
        if key not in fields:
            faults.append(Fault(at, f"unknown key{suggestion(str(key), fields)}"))
            continue
        converted = _convert(value, fields[key], at, faults)
        if converted is not _FAILED:
            values[key] = converted
    return kind.cls(**values)


def _convert_named(raw: Any, kind: inspect.DictType, path: str, faults: list[Fault]) -> Any:
    if not isinstance(raw, Mapping):
        return _refuse(raw, kind, path, faults)
    converted = {key: _convert(value, kind.value_type, _at(path, key), faults) for key, value in raw.items()}
    faults.extend(Fault(_at(path, key), _MISPLACED) for key in raw if may_hold_credentials(key))
    return {key: value for key, value in converted.items() if value is not _FAILED}


def _at(path: str, key: str) -> str:
    shown_key = HIDDEN if may_hold_credentials(key) else key
    return f"{path}.{shown_key}" if path else shown_key


def _convert_list(raw: Any, kind: inspect.VarTupleType, path: str, faults: list[Fault]) -> Any:
    if not isinstance(raw, list | tuple):
        return _refuse(raw, kind, path, faults)
    converted = [_convert(value, kind.item_type, f"{path}[{number}]", faults) for number, value in enumerate(raw)]
    return tuple(value for value in converted if value is not _FAILED)


def _convert_leaf(raw: Any, kind: inspect.Type, path: str, faults: list[Fault]) -> Any:
    match kind:
        case inspect.IntType():
            fits = isinstance(raw, int) and not isinstance(raw, bool) and _in_bounds(raw, kind)
        case inspect.FloatType():
            fits = isinstance(raw, int | float) and not isinstance(raw, bool) and _in_bounds(raw, kind)
            raw = float(raw) if fits else raw
        case inspect.BoolType():
            fits = isinstance(raw, bool)
        case inspect.StrType():
            fits = isinstance(raw, str)
        case inspect.LiteralType():
            fits = isinstance(raw, str) and raw in kind.values
        case _:
            raise TypeError(f"model.py uses {kind} at {path}, which convert.py does not know")
    if isinstance(raw, str) and path not in SECRET_PATHS and may_hold_credentials(raw):
        faults.append(Fault(path, _MISPLACED))
        return _FAILED
    return raw if fits else _refuse(raw, kind, path, faults)


def _in_bounds(number: float, kind: inspect.IntType | inspect.FloatType) -> bool:
    return (
        abs(number) <= _greatest(kind)  # and so neither infinite nor NaN
        and (kind.gt is None or number > kind.gt)
        and (kind.ge is None or number >= kind.ge)
        and (kind.lt is None or number < kind.lt)
        and (kind.le is None or number <= kind.le)
    )


def _greatest(kind: inspect.IntType | inspect.FloatType) -> int:
    return GREATEST_COUNT if isinstance(kind, inspect.IntType) else GREATEST_NUMBER


def _refuse(raw: Any, kind: inspect.Type, path: str, faults: list[Fault]) -> Any:
    got = "something else" if path in SECRET_PATHS else shown(raw)
    faults.append(Fault(path, f"expected {expectation(kind)}{_at_most(raw, kind)}, got {got}"))
    return _FAILED


def _at_most(raw: Any, kind: inspect.Type) -> str:
    """The bound that all numbers have, said where it is what was missed."""
    if not isinstance(kind, inspect.IntType | inspect.FloatType) or not isinstance(raw, int | float):
        return ""
    is_beyond = kind.lt is None and kind.le is None and raw > _greatest(kind)
    return f" and at most {_greatest(kind)}" if is_beyond else ""


def expectation(optional: inspect.Type) -> str:
    """What a key takes, in words: `a number > 0`, `one of "none", "wait"`."""
    match without_none(optional):
        case inspect.IntType() as kind:
            words = "a whole number" + _bounds(kind)
        case inspect.FloatType() as kind:
            words = "a number" + _bounds(kind)
        case inspect.BoolType():
            words = "true or false"
        case inspect.StrType():
            words = "text"
        case inspect.LiteralType(values=values):
            words = "one of " + ", ".join(f'"{value}"' for value in values)
        case inspect.VarTupleType(item_type=item):
            words = f"a list of {_plural(item)}"
        case _:
            words = "a table"
    return words


def _plural(kind: inspect.Type) -> str:
    return "texts" if isinstance(kind, inspect.StrType) else "lists of texts"


def _bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    said = [f"{sign} {getattr(kind, name):g}" for name, sign in _BOUNDS if getattr(kind, name) is not None]
    return " " + " and ".join(said) if said else ""
