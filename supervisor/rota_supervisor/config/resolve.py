"""From a Config to what the master and its children need, as pure functions."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from rota.child.settings import LogSettings, PollerSettings, ServerSettings, TaskOverride, WorkerSettings
from rota.protocol.store import Domain, QueueShare, domain_of
from rota_supervisor.config.model import Config, PoolConfig, QueueConfig
from rota_supervisor.config.rates import parse_rate
from rota_supervisor.config.rules import DEFAULT_POOL, EVERY_QUEUE, served_queues


def pool_sizes(config: Config) -> dict[str, int]:
    """How many workers each pool is to have; without `workers` and `pools`, one a processor."""
    return {name: pool.workers for name, pool in resolve_pools(config).items()}


def resolve_pools(config: Config) -> dict[str, PoolConfig]:
    """The pools; where there are none, the one that `workers` stands for."""
    if config.pools:
        return config.pools
    workers = config.workers if config.workers is not None else os.cpu_count() or 1
    return {DEFAULT_POOL: PoolConfig(workers=workers)}


def taken_queues(config: Config, counts: Mapping[str, int]) -> list[str]:
    """The queues that pools with workers take, highest tier first. `counts`: workers by pool."""
    taken = {queue for name, pool in resolve_pools(config).items() if counts.get(name) for queue in pool.queues}
    return [queue for queue in served_queues(config) if queue in taken or EVERY_QUEUE in taken]


def warnings_of_pools(config: Config) -> list[str]:
    """Queues that no worker will take, as their pools have none."""
    sizes = pool_sizes(config)
    taken = taken_queues(config, sizes)
    if not taken:
        return ["no pool has workers: this node will run no task"]
    return [
        f'nobody takes queue "{queue}": its pools have no workers ({", ".join(_pools_of(config, queue))})'
        for queue in served_queues(config)
        if queue not in taken
    ]


def _pools_of(config: Config, queue: str) -> list[str]:
    return [name for name, pool in config.pools.items() if queue in pool.queues or EVERY_QUEUE in pool.queues]


def worker_settings(config: Config) -> dict[str, WorkerSettings]:
    """What the workers of each pool are told."""
    return {name: _settings_of_pool(config, name, pool) for name, pool in resolve_pools(config).items()}


def _settings_of_pool(config: Config, name: str, pool: PoolConfig) -> WorkerSettings:
    tiers = pool_tiers(config, pool)
    return WorkerSettings(
        server=server_settings(config),
        pool=name,
        tiers=tiers,
        lease_seconds=config.lease.seconds,
        durability=config.durability,
        overrides=task_overrides(config),
        lag_objectives=_lag_objectives_of(config, tiers),
        log=log_settings(config),
        **by_name(WorkerSettings, config.limits, config.metrics),
    )


def _lag_objectives_of(config: Config, tiers: tuple[Domain, ...]) -> dict[str, float]:
    served = {share.name for tier in tiers for share in tier.queues}
    return {name: seconds for name, seconds in lag_objectives(config).items() if name in served}


def pool_tiers(config: Config, pool: PoolConfig) -> tuple[Domain, ...]:
    """The tiers as a pool serves them: its queues only, and no tier that has none of them."""
    wanted = [[queue for queue in tier if queue in pool.queues or EVERY_QUEUE in pool.queues] for tier in config.tiers]
    return tuple(domain_of([_share(config, queue) for queue in tier]) for tier in wanted if tier)


def _share(config: Config, name: str) -> QueueShare:
    queue = config.queues.get(name, QueueConfig())
    if not queue.rate:
        return QueueShare(name, queue.weight, queue.cap)
    rate = parse_rate(queue.rate)
    return QueueShare(name, queue.weight, queue.cap, rate.interval_us, rate.burst)


def poller_settings(config: Config, rank: int) -> PollerSettings:
    """What the poller of that rank is told."""
    return PollerSettings(
        server=server_settings(config),
        rank=rank,
        lease_seconds=config.lease.seconds,
        dead_max_age_seconds=config.dead.max_age_seconds,
        dead_max_count=config.dead.max_count,
        log=log_settings(config),
        **by_name(PollerSettings, config.restarts),
    )


def by_name(settings: type[Any], *sections: Struct) -> dict[str, Any]:
    """What settings of a child take from sections of the configuration: the fields that have the same names in both."""
    wanted = {field.name for field in dataclasses.fields(settings)}
    return {name: getattr(each, name) for each in sections for name in each.__struct_fields__ if name in wanted}


def server_settings(config: Config) -> ServerSettings:
    """Where the server is."""
    return ServerSettings(redis_url=config.redis_url, namespace=config.namespace)


def log_settings(config: Config) -> LogSettings:
    """How every process of the fleet logs."""
    return LogSettings(**by_name(LogSettings, config.log))


def task_overrides(config: Config) -> dict[str, TaskOverride]:
    """The operator's options by task name."""
    return {name: TaskOverride(**by_name(TaskOverride, task)) for name, task in config.tasks.items()}


def lag_objectives(config: Config) -> dict[str, float]:
    """Seconds by queue, for the queues that have an objective of their own."""
    return {
        name: queue.lag_objective_seconds
        for name, queue in config.queues.items()
        if queue.lag_objective_seconds is not None
    }
