"""The environment as a layer: `ROTA_` and the path joined by `__`, hyphens as `_`, lists as JSON."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import inspect

from rota_supervisor.config.convert import expectation, fields_of, schema, without_none
from rota_supervisor.config.faults import Fault, shown, suggestion
from rota_supervisor.config.layers import Layer, Path, is_too_deep, put

PREFIX = "ROTA_"
CONFIG_VARIABLE = "ROTA_CONFIG"
# Read by us under other rules: the file's place, and the mark that the processes of a worker carry.
OTHER_VARIABLES = frozenset({CONFIG_VARIABLE, "ROTA_OWNER"})
LIKENESS = 0.8  # high, since Kubernetes injects variables such as ROTA_SERVICE_HOST for a Service of that name
_YES = frozenset({"true", "1", "yes", "on"})
_NO = frozenset({"false", "0", "no", "off"})


@dataclass(slots=True)
class EnvironmentLayer:
    """What the environment said, with faults of values and warnings about variables we do not know."""

    layer: Layer = field(default_factory=Layer)
    faults: list[Fault] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read_environment(environment: Mapping[str, str], names: Mapping[str, Iterable[str]]) -> EnvironmentLayer:
    """Read every `ROTA_` variable. `names`: the tables known by name, as `{"queues": [...]}`, for hyphens."""
    read = EnvironmentLayer()
    for variable in sorted(environment):
        if variable.startswith(PREFIX) and variable not in OTHER_VARIABLES:
            _read_variable(read, variable, environment[variable], names)
    return read


def _read_variable(read: EnvironmentLayer, variable: str, text: str, names: Mapping[str, Iterable[str]]) -> None:
    found = _find(variable.removeprefix(PREFIX).split("__"), names)
    if found is None:
        hint = suggestion(variable, (PREFIX + key.upper() for key in fields_of(schema())), LIKENESS)
        read.warnings.append(f"{variable} in the environment is no setting of Rota and is ignored{hint}")
        return
    path, kind = found
    if not text and not isinstance(kind, inspect.StrType):
        return
    try:
        value = _value(text, kind)
    except (ValueError, RecursionError):
        got = "a value that is not" if path == ("redis_url",) else shown(text)
        read.faults.append(Fault(variable, f"expected {_in_environment(kind)}, got {got}"))
        return
    put(read.layer.values, path, value)
    read.layer.origins[path] = f"environment {variable}"


def _find(words: list[str], names: Mapping[str, Iterable[str]]) -> tuple[Path, inspect.Type] | None:
    kind: inspect.Type = schema()
    path: list[str] = []
    for word in words:
        key = _key(word, kind, names.get(path[0], ()) if path else ())
        if key is None:
            return None
        kind = without_none(fields_of(kind)[key] if isinstance(kind, inspect.StructType) else _named(kind))
        path.append(key)
    return tuple(path), kind


def _key(word: str, kind: inspect.Type, names: Iterable[str]) -> str | None:
    if isinstance(kind, inspect.StructType):
        return word.lower() if word.lower() in fields_of(kind) else None
    if isinstance(kind, inspect.DictType) and word:
        return next((name for name in names if _folded(name) == word.lower()), word.lower())
    return None


def _folded(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name.lower())


def _named(kind: inspect.Type) -> inspect.Type:
    assert isinstance(kind, inspect.DictType)
    return kind.value_type


def _value(text: str, kind: inspect.Type) -> Any:
    match kind:
        case inspect.StrType() | inspect.LiteralType():
            return text
        case inspect.IntType():
            return int(text)
        case inspect.FloatType():
            return float(text)
        case inspect.BoolType():
            return _truth(text.lower())
        case _:
            value = json.loads(text)
            if is_too_deep(value):
                raise ValueError(text)
            return value


def _truth(text: str) -> bool:
    if text not in _YES | _NO:
        raise ValueError(text)
    return text in _YES


def _in_environment(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.VarTupleType | inspect.StructType | inspect.DictType):
        return f"{expectation(kind)} as JSON"
    return expectation(kind)
