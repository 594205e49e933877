"""What a new configuration changes, as a pure difference of two: so that nothing else is touched."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rota.child.child_settings import settings_to_json
from rota.protocol.names import served_as
from rota_supervisor.config import loader, resolution, schedules
from rota_supervisor.config.faults import Fault
from rota_supervisor.config.loader import Loaded
from rota_supervisor.config.model import Config
from rota_supervisor.config.rules import served_queues
from rota_supervisor.master.core import child_settings
from rota_supervisor.messages import MAX_SETTINGS

# Changing these would move the fleet to other tasks or another place under its clients' feet. Whether the server can
# confirm what a durability asks for is looked at by a master that starts, and by no other.
_NEEDS_RESTART: Final = (
    *("namespace", "redis_url", "redis_tls_ca", "redis_tls_cert", "redis_tls_key"),
    *("control", "durability"),
)
_MAY_BE_EMPTY: Final = "adopt."  # a table of this sort says something without a key


@dataclass(frozen=True, slots=True)
class Change:
    """What is different. `words`: what people are told has changed. `code`: modules are imported anew. `pools`: those
    whose workers are told something else, or that are new."""

    words: list[str]
    code: bool
    pools: tuple[str, ...]


def change_between(old: Config, new: Config, *, fresh: bool = False) -> Change:
    """Compare what children are told by each. `fresh`: the code is to be loaded again, whatever is different."""
    before, after = child_settings.worker_settings(old), child_settings.worker_settings(new)
    stale = [pool for pool in after if pool in before and before[pool] != after[pool]]
    code = old.imports != new.imports
    changed = {
        "counts": resolution.pool_sizes(old) != resolution.pool_sizes(new) or old.pollers != new.pollers,
        "workers": code or bool(stale),
        "pollers": child_settings.poller_settings(old, 0) != child_settings.poller_settings(new, 0),
        "schedules": old.schedules != new.schedules,
        "exporter": child_settings.exporter_settings(old) != child_settings.exporter_settings(new),
        "listen": old.http.listen != new.http.listen,
    }
    changed["rest"] = old != new and not any(changed.values())  # what only the master reads, as the limits of draining
    changed["workers"] |= fresh
    words = [word for word, is_changed in changed.items() if is_changed]
    return Change(words, code or fresh, (*stale, *(after.keys() - before.keys())))


def faults_of_change(old: Config, new: Config) -> list[Fault]:
    """What a reload cannot change, each with the advice to restart."""
    return [
        Fault(key, "cannot be changed by a reload: stop the master and start it again")
        for key in _NEEDS_RESTART
        if getattr(old, key) != getattr(new, key)
    ]


def oversized_pools(config: Config) -> list[Fault]:
    """Pools whose settings do not fit into one packet to a zygote: thousands of queues or overrides."""
    sizes = {pool: len(settings_to_json(settings)) for pool, settings in child_settings.worker_settings(config).items()}
    return [
        Fault(f"pools.{pool}", f"its queues and overrides take {size} bytes, the limit is {MAX_SETTINGS}: split it")
        for pool, size in sizes.items()
        if size > MAX_SETTINGS
    ]


def compared_with_code(config: Config, tasks: dict[str, str]) -> tuple[list[Fault], list[Fault]]:
    """Return the faults of a configuration whose code has these tasks, and what people should know of it.

    `tasks`: the queue of each.
    """
    known = [Fault(path, "no imported module defines this task") for path in unknown_tasks(config, tasks)]
    unserved, is_strict = unserved_queues(config, tasks), config.unserved_queues == "error"
    if faults := [*(unserved if is_strict else ()), *schedules.without_queue(config, tasks)]:
        return faults, known
    return [], [*known, *unserved, *schedules.unknown_tasks(config, tasks)]


def unserved_queues(config: Config, tasks: dict[str, str]) -> list[Fault]:
    """The imported tasks whose queue stands in no tier: nobody would ever run them."""
    served = served_queues(config)
    return [
        Fault("tiers", f"no tier serves queue {queue!r} of task {name!r}: add it to tiers, or to the task's pool")
        for name, queue in sorted(tasks.items())
        if served_as(queue, served) is None
    ]


def unknown_tasks(config: Config, tasks: dict[str, str]) -> list[str]:
    """Where the configuration names a task that no imported module defines."""
    overrides = [f"tasks.{name}" for name in sorted(config.tasks.keys() - tasks.keys())]
    return overrides + [
        f"adopt.{key}.task" for key, adopt in config.adopt.items() if adopt.task and adopt.task not in tasks
    ]


# The keys that differ


def differences(before: Config, origins: Mapping[str, str], loaded: Loaded) -> list[dict[str, Any]]:
    """Return a row for each key that has another value, in the order of the configuration. None means no value.

    `origins`: where the values of `before` come from. Secrets are redacted.
    """
    old, new = _given(before, origins), _given(loaded.config, loaded.origins)
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    if before.redis_url != loaded.config.redis_url and "redis_url" not in keys:  # another password
        keys.append("redis_url")
    return [
        {"key": key, "old": old.get(key), "new": new.get(key), "origin": loader.origin_of(loaded, key)} for key in keys
    ]


def in_lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the rows as lines for people: `workers: 2 -> 4 (file rota.toml)`."""
    return [f"{row['key']}: {_shown(row['old'])} -> {_shown(row['new'])} ({row['origin']})" for row in rows]


def _given(config: Config, origins: Mapping[str, str]) -> dict[str, Any]:
    """Return the values by dotted path, without the defaults of keys left out in tables such as `[queues.NAME]`."""
    usual = dict(_flat(loader.as_values(Config())))
    values = _flat(loader.as_values(config))
    return {key: value for key, value in values if key in usual or key in origins or key.startswith(_MAY_BE_EMPTY)}


def _flat(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_shown, value))}]"
    return "none" if value is None else f'"{value}"' if isinstance(value, str) else str(value).lower()
