"""One source of configuration after another, and which of them each value came from."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Path = tuple[str, ...]
MOST_LEVELS: Final = 8  # of tables and lists in each other; no setting has more than three


@dataclass(frozen=True, slots=True)
class Layer:
    """The raw values of one source. `origins`: where a value stands, by its path."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[Path, str] = field(default_factory=dict)


def layer_of(values: dict[str, Any], origin: str) -> Layer:
    """A layer whose values all came from one place."""
    return Layer(values, dict.fromkeys(leaves(values), origin))


def leaves(values: Mapping[str, Any], at: Path = ()) -> Iterable[Path]:
    """The paths of everything that is no table."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from leaves(value, (*at, key))
        else:
            yield (*at, key)


def is_too_deep(value: Any) -> bool:
    """Whether tables and lists stand in each other as in no setting: what walks them would run out of stack."""
    level = [value]
    for _ in range(MOST_LEVELS):
        level = [inner for each in level for inner in _inside(each)]
    return bool(level)


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()


def put(values: dict[str, Any], path: Path, value: Any) -> None:
    """Set a value at a path, making the tables on the way, and replacing what is none."""
    *tables, key = path
    for table in tables:
        if not isinstance(values.get(table), dict):
            values[table] = {}
        values = values[table]
    values[key] = value


def merge(layers: Iterable[Layer]) -> Layer:
    """Lay each layer over the ones before it: tables are merged, everything else is replaced."""
    values: dict[str, Any] = {}
    origins: dict[Path, str] = {}
    for layer in layers:
        _overlay(values, layer.values)
        origins |= layer.origins
    return Layer(values, origins)


def _overlay(lower: dict[str, Any], upper: Mapping[str, Any]) -> None:
    for key, value in upper.items():
        below = lower.get(key)
        if isinstance(value, Mapping):
            table = below if isinstance(below, dict) else {}
            lower[key] = table
            _overlay(table, value)
        else:
            lower[key] = value


def dotted(path: Path) -> str:
    """A path as faults and `config print` show it."""
    return ".".join(path)
