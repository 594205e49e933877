"""Loads the configuration from the defaults, the file, the environment and flags, of which each overrides those before.
Reports all faults at once. Also prints a loaded configuration.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from rota.display_text import redact
from rota.protocol.keys import is_name
from rota_supervisor.config import layers
from rota_supervisor.config.errors import ConfigError, Fault, suggestion
from rota_supervisor.config.layers import leaves, resolve_files
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolution import DEFAULT_POOL, EVERY_QUEUE, queue_in_key, warnings_of_pools
from rota_supervisor.config.rules import broken_rules, warnings_of_conditions, warnings_of_http
from rota_supervisor.config.typed_config import convert_config

DEFAULT_FILE = "rota.toml"
TIERS_VARIABLE = "ROTA_TIERS"


@dataclass(frozen=True, slots=True)
class Flags:
    """The settings given on the command line."""

    workers: int | str | None = None  # `-w N`, a number or a range
    pool_workers: tuple[tuple[str, int | str], ...] = ()  # one for each `-w POOL=N`
    pools: tuple[str, ...] = ()  # each `--pool`
    tiers: tuple[tuple[str, ...], ...] = ()  # each `-Q`
    imports: tuple[str, ...] = ()
    pid_file: str = ""  # `--pid-file`


NO_FLAGS = Flags()


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of a configuration."""

    file: Path = Path(DEFAULT_FILE)
    required: bool = False  # whether a missing file is a fault, as it is if the user named the file
    environment: Mapping[str, str] = field(default_factory=dict)
    flags: Flags = NO_FLAGS


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration without faults, and where its values came from."""

    config: Config
    origins: Mapping[str, str]  # the source of each value, by its dotted path
    warnings: tuple[str, ...]
    content: bytes | None = None  # the contents of the file, or None if there is no file


def sources_of(file: str | None, flags: Flags = NO_FLAGS) -> Sources:
    """Return the sources of this process. The configuration file is `file`, or else the file that ROTA_CONFIG names, or
    else ./rota.toml.
    """
    chosen = file or os.environ.get(layers.CONFIG_VARIABLE)
    return Sources(Path(chosen or DEFAULT_FILE), chosen is not None, dict(os.environ), flags)


def load_config(sources: Sources) -> Loaded:
    """Load and check the configuration. Raises ConfigError with all faults."""
    content, of_file = layers.read_file(sources.file, required=sources.required)
    environment = layers.read_environment(sources.environment, _names(of_file.values, sources))
    given = [layers.fallback_layer(sources.environment), of_file, environment]
    lower = layers.merge(given)
    flags = _flag_layer(sources.flags, lower.values)
    merged = layers.merge([lower, flags])
    faults = of_file.faults + flags.faults + environment.faults
    faults += layers.choose_server_url(given, merged, sources.file.parent)
    faults += layers.read_chunks(merged, sources.file.parent)
    faults += resolve_files(merged, sources.file.parent)
    config, faults_of_types = convert_config(_without_unserved(sources.flags, merged.values))
    faults += faults_of_types
    faults += broken_rules(config, {fault.top_key for fault in faults})
    if faults:
        # If the file itself cannot be used, the other faults would be misleading.
        reported = of_file.faults or [_with_origin(fault, merged.origins, sources.file) for fault in faults]
        raise ConfigError(reported, config, content)
    judged = (warnings_of_conditions, warnings_of_pools, warnings_of_http)
    warnings = (*environment.warnings, *(warning for warnings_of in judged for warning in warnings_of(config)))
    if sources.flags.pools and config.pools:
        selected = {name: pool for name, pool in config.pools.items() if name in sources.flags.pools}
        config = structs.replace(config, pools=selected)
    return Loaded(config, merged.origins, warnings, content)


def _names(of_file: Mapping[str, Any], sources: Sources) -> dict[str, list[str]]:
    """Return the names of the entries of each table, for example of the pools in `pools`. An environment variable can
    contain these names. Queue names are taken from the tiers of all sources.
    """
    names = {key: list(table) for key, table in of_file.items() if isinstance(table, dict)}
    variable = {key: text for key, text in sources.environment.items() if key == TIERS_VARIABLE}
    of_environment = layers.read_environment(variable, {}).values
    for tiers in (of_file.get("tiers"), of_environment.get("tiers"), sources.flags.tiers):
        listed = [tier for tier in tiers if isinstance(tier, list | tuple)] if isinstance(tiers, list | tuple) else []
        queues = [queue for tier in listed for queue in tier if isinstance(queue, str)]
        names["queues"] = [*names.get("queues", ()), *queues]
    return names


def _with_origin(fault: Fault, origins: Mapping[str, str], file: Path) -> Fault:
    """Return the fault with the origin of its value added, for example an environment variable. No origin is added if
    it is the file, or if the fault is about a table whose values have several origins.
    """
    of_file = layers.origin_of_file(file)
    found = {origin for path, origin in origins.items() if _holds(path, fault.path) or _holds(fault.path, path)}
    return Fault(fault.path, fault.message, found.pop()) if len(found) == 1 and of_file not in found else fault


def _holds(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith((f"{outer}.", f"{outer}["))


# Flags


def _flag_layer(flags: Flags, lower: Mapping[str, Any]) -> layers.Layer:
    """Return the flags as the highest layer. `lower`: the merged values of the layers below, which can define pools."""
    pools = lower.get("pools")
    workers = flags.workers
    sizes = {}
    for pool, count in flags.pool_workers:
        if pools:
            sizes[pool] = {"workers": count}
        elif pool == DEFAULT_POOL:
            workers = count
    given: dict[str, Any] = {
        "tiers": [list(tier) for tier in flags.tiers],
        "imports": list(flags.imports),
        "workers": workers,
        "control": {"pid_file": flags.pid_file} if flags.pid_file else {},
        "pools": sizes,
    }
    values = {key: value for key, value in given.items() if value not in ([], {}, None)}
    layer = layers.layer_of(values, "command line")
    known = pools or {DEFAULT_POOL: {}}
    named = [("-w", pool) for pool, _ in flags.pool_workers] + [("--pool", pool) for pool in flags.pools]
    layer.faults.extend(
        Fault(f"{flag} {pool}", f"there is no such pool{suggestion(pool, known) or _others(known)}")
        for flag, pool in named
        if isinstance(known, Mapping) and pool not in known
    )
    return layer


def _others(known: Iterable[str]) -> str:
    names = list(known)
    if not names:
        return ": the file has no [pools.NAME]"
    return f": the pools are {', '.join(names)}" if len(names) > 1 else f": the only pool is {names[0]}"


def _without_unserved(flags: Flags, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values without the queues that `-Q` leaves out, and without the pools and legacy lists that use only
    such queues.
    """
    narrowed = dict(values)
    served = {queue for tier in flags.tiers for queue in tier}
    queues = values.get("queues")
    pools = values.get("pools")
    if served and isinstance(queues, Mapping):
        narrowed["queues"] = {name: table for name, table in queues.items() if name in served}
    if served and isinstance(adopt := values.get("adopt"), Mapping):
        narrowed["adopt"] = {key: table for key, table in adopt.items() if _feeds(key, table) in (*served, "")}
    if served and isinstance(pools, Mapping):
        kept = {name: _with_queues(pool, served) for name, pool in pools.items()}
        narrowed["pools"] = {name: pool for name, pool in kept.items() if pool is not None}
    return narrowed


def _feeds(key: str, source: Any) -> str:
    """Return the queue to which all items of a legacy list go: the configured queue, or else the queue that the key of
    the list names. Returns "" if there is neither, because such items can go to any queue.
    """
    queue = source.get("queue") if isinstance(source, Mapping) else ""
    return queue if queue and isinstance(queue, str) else queue_in_key(key)


def _with_queues(pool: Any, served: set[str]) -> Any:
    queues = pool.get("queues") if isinstance(pool, Mapping) else None
    if not isinstance(queues, list) or EVERY_QUEUE in queues or not all(isinstance(each, str) for each in queues):
        return pool  # Values that are not text are reported later, each with its own path.
    kept = [queue for queue in queues if queue in served]
    return {**pool, "queues": kept} if kept else None


# The configuration for people and programs, with secrets redacted


def as_values(config: Config) -> dict[str, Any]:
    """Return the configuration as plain values for JSON, without keys that are not set."""
    values: dict[str, Any] = _without_none(msgspec.to_builtins(config))
    return {**values, "redis_url": redact(config.redis_url)}


def _without_none(values: Any) -> Any:
    if not isinstance(values, Mapping):
        return values
    return {key: _without_none(value) for key, value in values.items() if value is not None}


def origin_of(loaded: Loaded, path: str) -> str:
    """Return the source of the value at a dotted path, or "default" if no source sets it."""
    return loaded.origins.get(path, "default")


def as_toml(loaded: Loaded, *, origins: bool) -> str:
    """Return the configuration as TOML. `origins`: whether to add the source of each value as a comment."""
    return "\n".join(_table(loaded, as_values(loaded.config), (), origins=origins)).strip() + "\n"


def _table(loaded: Loaded, values: Mapping[str, Any], path: tuple[str, ...], *, origins: bool) -> Iterator[str]:
    plain = {key: value for key, value in values.items() if not isinstance(value, Mapping)}
    if path and plain:
        yield ""
        yield f"[{'.'.join(map(_key, path))}]"
    for key, value in plain.items():
        origin = f"  # {origin_of(loaded, '.'.join((*path, key)))}" if origins else ""
        yield f"{_key(key)} = {_literal(value)}{origin}"
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _table(loaded, value, (*path, key), origins=origins)


def _key(key: str) -> str:
    bare = is_name(key) and "." not in key and ":" not in key
    return key if bare else _literal(key)


def _literal(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_literal(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_literal, value)) + "]"
    # A JSON string is also valid TOML, except that only JSON permits an unescaped DEL character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def origins_by_path(loaded: Loaded) -> dict[str, str]:
    """Return the origin of every value of the configuration, by its dotted path."""
    return {path: origin_of(loaded, path) for path, _ in leaves(as_values(loaded.config))}
