"""The flags of `rota run` as the highest layer, and the pools and tiers they select."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from rota_supervisor.config.faults import Fault, suggestion
from rota_supervisor.config.layers import Layer, layer_of
from rota_supervisor.config.model import Config
from rota_supervisor.config.rules import DEFAULT_POOL, EVERY_QUEUE


@dataclass(frozen=True, slots=True)
class Flags:
    """What the command line said. `workers` is `-w N`, `pool_workers` each `-w POOL=N`, `pools` each
    `--pool`, `tiers` each `-Q`, `pid_file` what `--pid-file` names."""

    workers: int | None = None
    pool_workers: tuple[tuple[str, int], ...] = ()
    pools: tuple[str, ...] = ()
    tiers: tuple[tuple[str, ...], ...] = ()
    imports: tuple[str, ...] = ()
    pid_file: str = ""


NO_FLAGS = Flags()


def flag_layer(flags: Flags, lower: Mapping[str, Any]) -> Layer:
    """The flags as raw values. `lower`: what the layers below say, to know whether there are pools."""
    values: dict[str, Any] = {}
    if flags.tiers:
        values["tiers"] = [list(tier) for tier in flags.tiers]
    if flags.imports:
        values["imports"] = list(flags.imports)
    if flags.workers is not None:
        values["workers"] = flags.workers
    if flags.pid_file:
        values["control"] = {"pid_file": flags.pid_file}
    for pool, workers in flags.pool_workers:
        if lower.get("pools"):
            values.setdefault("pools", {})[pool] = {"workers": workers}
        elif pool == DEFAULT_POOL:
            values["workers"] = workers
    return layer_of(values, "command line")


def flag_faults(flags: Flags, lower: Mapping[str, Any]) -> list[Fault]:
    """Pools named on the command line that the layers below it do not have."""
    known = lower.get("pools") or {DEFAULT_POOL: {}}
    if not isinstance(known, Mapping):
        return []
    named = [("-w", pool) for pool, _ in flags.pool_workers] + [("--pool", pool) for pool in flags.pools]
    return [
        Fault(f"{flag} {pool}", f"there is no such pool{suggestion(pool, known)}")
        for flag, pool in named
        if pool not in known
    ]


def without_unserved(flags: Flags, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values without the queues, and the pools of such queues, that `-Q` leaves out."""
    narrowed = dict(values)
    served = {queue for tier in flags.tiers for queue in tier}
    queues, pools = values.get("queues"), values.get("pools")
    if served and isinstance(queues, Mapping):
        narrowed["queues"] = {name: table for name, table in queues.items() if name in served}
    if served and isinstance(pools, Mapping):
        kept = {name: _with_queues(pool, served) for name, pool in pools.items()}
        narrowed["pools"] = {name: pool for name, pool in kept.items() if pool is not None}
    return narrowed


def _with_queues(pool: Any, served: set[str]) -> Any:
    queues = pool.get("queues") if isinstance(pool, Mapping) else None
    if not isinstance(queues, list) or EVERY_QUEUE in queues:
        return pool
    kept = [queue for queue in queues if queue in served]
    return {**pool, "queues": kept} if kept else None


def with_selected_pools(flags: Flags, config: Config) -> Config:
    """The configuration with the pools of `--pool` only."""
    if not flags.pools or not config.pools:
        return config
    return structs.replace(config, pools={name: pool for name, pool in config.pools.items() if name in flags.pools})
