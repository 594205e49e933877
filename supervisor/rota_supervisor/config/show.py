"""A configuration as people and programs read it, with secrets redacted."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from rota.protocol.names import is_name
from rota.redaction import redact
from rota_supervisor.config.layers import leaves
from rota_supervisor.config.load import Loaded
from rota_supervisor.config.model import Config


def as_values(config: Config) -> dict[str, Any]:
    """The configuration as plain values, fit for JSON; keys without a value are left out."""
    values: dict[str, Any] = _without_none(msgspec.to_builtins(config))
    return {**values, "redis_url": redact(config.redis_url)}


def _without_none(values: Any) -> Any:
    if not isinstance(values, Mapping):
        return values
    return {key: _without_none(value) for key, value in values.items() if value is not None}


def origin_of(loaded: Loaded, path: str) -> str:
    """Where the value at a dotted path came from; "default" when nobody gave one."""
    return loaded.origins.get(path, "default")


def as_toml(loaded: Loaded, *, origins: bool) -> str:
    """The configuration as TOML, with a comment beside each value that says where it came from if wanted."""
    return "\n".join(_table(loaded, as_values(loaded.config), (), origins)).strip() + "\n"


def _table(loaded: Loaded, values: Mapping[str, Any], path: tuple[str, ...], origins: bool) -> Iterator[str]:
    plain = {key: value for key, value in values.items() if not isinstance(value, Mapping)}
    if path and plain:
        yield ""
        yield f"[{'.'.join(map(_key, path))}]"
    for key, value in plain.items():
        origin = f"  # {origin_of(loaded, '.'.join((*path, key)))}" if origins else ""
        yield f"{_key(key)} = {_literal(value)}{origin}"
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _table(loaded, value, (*path, key), origins)


def _key(key: str) -> str:
    bare = is_name(key) and "." not in key and ":" not in key
    return key if bare else _literal(key)


def _literal(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_literal(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_literal, value)) + "]"
    # JSON text is TOML text but for DEL, which JSON lets through.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def origins_by_path(loaded: Loaded) -> dict[str, str]:
    """The origin of every value of the configuration, by its dotted path."""
    return {path: origin_of(loaded, path) for path in leaves(as_values(loaded.config))}
