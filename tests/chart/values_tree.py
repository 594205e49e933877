"""The values of the chart as its schema describes them. For each value there are other valid values and invalid
values.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from chart.derived_files import SCHEMA
from chart.kube import Object, at_path, default_values

Path = tuple[str, ...]

SAMPLE: Final = "sample"  # the name of the entry that is added to a table, for example the name of a queue
WRONG_TEXT: Final = "not valid, whatever is expected!"
_FREE: Final = ("global",)  # keys that belong to Helm itself, such as `global`, whose values apply to all charts


@dataclass(frozen=True, slots=True)
class Value:
    """A single value of the chart. A table of other values does not count."""

    path: Path
    schema: Mapping[str, Any]
    default: Any

    def __str__(self) -> str:
        return ".".join(self.path)

    def another(self) -> list[Any]:
        """Return other valid values: the examples from the schema, or values of the same type."""
        examples = self.schema.get("examples")
        if examples is not None:
            return list(examples)
        if "enum" in self.schema:
            return [each for each in self.schema["enum"] if each != self.default]
        assert self.schema.get("type") == "boolean", f"{self}: the schema has no examples"
        return [not self.default]

    def of_wrong_type(self) -> Any:
        """Return a value whose type is not allowed here."""
        return WRONG_TEXT if self.types() & {"array", "object"} else [WRONG_TEXT]

    def types(self) -> set[str]:
        """Return the types that the schema allows."""
        if "enum" in self.schema or "anyOf" in self.schema:
            return {"string"}
        kind = self.schema["type"]
        return {kind} if isinstance(kind, str) else set(kind)

    def out_of_bounds(self) -> Iterator[Any]:
        """Yield values that have the right type but are not allowed."""
        schema = self.schema
        if "minimum" in schema:
            yield schema["minimum"] - 1
        if "exclusiveMinimum" in schema:
            yield schema["exclusiveMinimum"]
        if "maximum" in schema:
            yield schema["maximum"] + 1
        if "exclusiveMaximum" in schema:
            yield schema["exclusiveMaximum"]
        if "pattern" in schema or "enum" in schema or "anyOf" in schema:
            yield WRONG_TEXT


def schema() -> Object:
    """Return the schema of the values."""
    read: Object = json.loads(SCHEMA.read_text())
    return read


def values() -> list[Value]:
    """Return every value of the chart, including the keys of `config`."""
    return [Value(path, each, _default(path)) for path, each in _leaves(schema(), schema(), ()) if path[0] not in _FREE]


def tables() -> list[Path]:
    """Return the paths of all tables that accept only known keys. The path () is the whole chart."""
    nodes = _nodes(schema(), schema(), ())
    return [path for path, each in nodes if each.get("additionalProperties") is False and not _entry(each)]


def _default(path: Path) -> Any:
    def inside(table: Any, key: str) -> Any:
        return table.get(key) if isinstance(table, Mapping) else None

    return reduce(inside, path, default_values())


def _leaves(root: Object, node: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    for at, each in _nodes(root, node, path):
        is_table = "properties" in each and "examples" not in each
        if not is_table and not _entry(each):
            yield at, each


def _nodes(root: Object, node: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield a node and all nodes below it. A node with examples, such as `tolerations`, is yielded without the nodes
    below it, because the tests only set it as a whole.
    """
    node = _resolved(root, node)
    yield path, node
    if "examples" in node:
        return
    for key, inner in node.get("properties", {}).items():
        yield from _nodes(root, inner, (*path, key))
    if entry := _entry(node):
        yield from _nodes(root, entry, (*path, SAMPLE))


def _entry(node: Mapping[str, Any]) -> Any:
    """Return the schema of the entries of a table that accepts arbitrary keys, or None for any other table."""
    return next(iter(node.get("patternProperties", {}).values()), None)


def _resolved(root: Object, node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema to which a schema refers, or the schema itself if it has no reference."""
    references = [each for each in (node, *node.get("allOf", ())) if "$ref" in each]
    for each in references:
        definition = root["definitions"][each["$ref"].removeprefix("#/definitions/")]
        node = {**_resolved(root, definition), **{key: value for key, value in node.items() if key != "$ref"}}
    return node


def change(value: Value, new: Any) -> Object:
    """Return values for the chart that only set this value to `new`."""
    return at_path(value.path, new)
