"""What a reload would do, said before it is done: a pure function of two configurations and the counts in force."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from rota.child.settings import WorkerSettings
from rota_supervisor.config.faults import Fault
from rota_supervisor.config.load import Loaded
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolve import pool_sizes
from rota_supervisor.config.resolve import worker_settings as worker_settings_of
from rota_supervisor.config.show import as_values, origin_of
from rota_supervisor.control.port import Answer
from rota_supervisor.master.core.change import Change, change_between
from rota_supervisor.master.core.rollout import Generation
from rota_supervisor.master.core.scaling import Scaling

_NONE: Final = "none"
# Where what a worker is told comes from, when its name is not the key's in [limits]; QUEUE is each it serves.
_KEYS_OF: Final = {
    "tiers": ("tiers", "pools.POOL.queues", "queues.QUEUE.weight", "queues.QUEUE.cap", "queues.QUEUE.rate"),
    "overrides": ("tasks.",),
    "lease_seconds": ("lease.seconds",),
    "lag_objective_seconds": ("metrics.lag_objective_seconds",),
    "lag_objectives": ("queues.QUEUE.lag_objective_seconds",),
    "log": ("log.",),
}
_POLLERS_KEYS: Final = ("restarts.crash_limit", "restarts.loss_limit", "dead.", "lease.seconds", "log.")
_NOT_THE_EXPORTERS: Final = (".cap", ".rate")
_EXPORTERS_KEYS: Final = ("tiers", "queues.", "metrics.", "limits.beat_seconds", "log.", "http.listen")


@dataclass(frozen=True, slots=True)
class Difference:
    """A key whose value is another one; None where it had or has none."""

    key: str
    old: Any
    new: Any
    origin: str

    def __str__(self) -> str:
        return f"{self.key}: {_shown(self.old)} -> {_shown(self.new)} ({self.origin})"


def preview_of(before: Generation, loaded: Loaded, faults: list[Fault], scaling: Scaling) -> Answer:
    """The answer to `reload --dry-run`: what differs, what would be done, and the faults for which it would not be."""
    differences = differences_between(before, loaded) if loaded.origins or not faults else []
    said = [] if faults else steps(before.config, loaded.config, differences, scaling)
    return {
        "result": "failure" if faults else "success",
        "faults": [str(fault) for fault in faults],
        "warnings": list(loaded.warnings),
        "changes": [{"key": each.key, "old": each.old, "new": each.new, "origin": each.origin} for each in differences],
        "plan": [*map(str, differences), *said],
    }


def differences_between(before: Generation, loaded: Loaded) -> list[Difference]:
    """Each key that has another value, in the order of the configuration; secrets are redacted."""
    old, new = before.config, loaded.config
    told, tells = _given(old, before.origins), _given(new, loaded.origins)
    keys = [key for key in {**told, **tells} if told.get(key) != tells.get(key)]
    if old.redis_url != new.redis_url and "redis_url" not in keys:  # another password
        keys.append("redis_url")
    return [Difference(key, told.get(key), tells.get(key), origin_of(loaded, key)) for key in keys]


def _given(config: Config, origins: Mapping[str, str]) -> dict[str, Any]:
    """The values by dotted path, without what a table that somebody gave is filled up with."""
    usual = dict(_flat(as_values(Config())))
    values = _flat(as_values(config))
    return {key: value for key, value in values if key in usual or key in origins}


def _flat(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        at = f"{path}.{key}" if path else key
        if isinstance(value, Mapping) and value:
            yield from _flat(value, at)
        elif not isinstance(value, Mapping):
            yield at, value


def _shown(value: Any) -> str:
    return _NONE if value is None else f'"{value}"' if isinstance(value, str) else _in_brackets(value)


def _in_brackets(value: Any) -> str:
    return f"[{', '.join(map(_shown, value))}]" if isinstance(value, list | tuple) else str(value).lower()


# What would be done


def steps(old: Config, new: Config, differences: list[Difference], scaling: Scaling) -> list[str]:
    """A line for each thing that would be done."""
    change = change_between(old, new)
    keys = [each.key for each in differences]
    said = [
        *_steps_of_code(change, new),
        *_steps_of_pools(change, old, new, keys, scaling),
        *_steps_of_others(change, old, new, keys),
    ]
    if not said:
        return ["no process is touched: the master takes notice" if differences else "nothing changes"]
    return said


def _steps_of_code(change: Change, new: Config) -> Iterator[str]:
    if change.code:
        modules = ", ".join(new.imports) or "no modules"
        yield f"a fresh process imports {modules}; if that fails, nothing else is done (it is not tried now)"


def _steps_of_pools(change: Change, old: Config, new: Config, keys: list[str], scaling: Scaling) -> Iterator[str]:
    before, after = scaling.counts(pool_sizes(old)), scaling.counts(pool_sizes(new))
    told_before, told_after = worker_settings_of(old), worker_settings_of(new)
    for pool in {**before, **after}:
        had, has = before.get(pool), after.get(pool)
        if has is None:
            yield f"pool {pool}: its {_workers(had or 0)} drained, the pool is gone"
        elif had is None:
            yield f"pool {pool}: {_workers(has)} started, the pool is new"
        else:
            reasons = ["new code"] if change.code else _reasons(told_before[pool], told_after[pool], keys)
            yield from _steps_of_pool(pool, had, has, reasons)


def _steps_of_pool(pool: str, had: int, has: int, reasons: list[str]) -> Iterator[str]:
    if had != has:
        grows = f"{has - had} started" if has > had else f"{had - has} drained"
        yield f"pool {pool}: {had} -> {_workers(has)}, {grows}"
    if reasons and had and has:
        yield f"pool {pool}: each worker is replaced, one beside the others: {', '.join(reasons)}"


def _steps_of_others(change: Change, old: Config, new: Config, keys: list[str]) -> Iterator[str]:
    if old.pollers != new.pollers:
        yield f"pollers: {old.pollers} -> {new.pollers}"
    if change.pollers:
        yield f"pollers: each is replaced: {', '.join(_fed_by(keys, _POLLERS_KEYS))}"
    if change.listen and not (old.http.listen and new.http.listen):
        yield f"exporter: it {'starts' if new.http.listen else 'leaves'}: http.listen"
    elif new.http.listen and (change.exporter or change.listen):
        told = [key for key in keys if not key.endswith(_NOT_THE_EXPORTERS)]
        yield f"exporter: it is replaced: {', '.join(_fed_by(told, _EXPORTERS_KEYS))}"


def _workers(count: int) -> str:
    return f"{count} worker" if count == 1 else f"{count} workers"


def _reasons(old: WorkerSettings, new: WorkerSettings, keys: list[str]) -> list[str]:
    """The keys for which the workers of a pool are told something else."""
    names = [each.name for each in fields(WorkerSettings) if getattr(old, each.name) != getattr(new, each.name)]
    queues = {share.name for tier in (*old.tiers, *new.tiers) for share in tier.queues}
    found: list[str] = []
    for name in names:
        patterns = [each.replace("POOL", old.pool) for each in _KEYS_OF.get(name, (f"limits.{name}",))]
        sources = {each.replace("QUEUE", queue) for each in patterns for queue in queues or {""}}
        found += _fed_by(keys, sources) or [name]
    return list(dict.fromkeys(found))


def _fed_by(keys: Iterable[str], sources: Iterable[str]) -> list[str]:
    """Those of the keys that are one of the sources, or stand in a table that is one."""
    wanted = frozenset(sources)
    return [key for key in keys if key in wanted or f"{key.partition('.')[0]}." in wanted]
