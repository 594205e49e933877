"""Pure functions that compute the settings of the master and its children from a Config."""

import dataclasses
import os
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, NamedTuple, TypedDict

from msgspec import Struct

from rota.child.child_settings import LogSettings, ServerSettings
from rota.durations import microseconds, unix_microseconds
from rota.protocol.replies import LegacySource
from rota.protocol.signatures import SigningSettings
from rota.protocol.tiers import Domain, QueueCondition, QueueShare, domain_of, text_of_hours
from rota.schedules.schedule import CronRule, EveryRule, Rule, Schedule
from rota.server.address import Topology, parse_address
from rota.server.connection import LONG_PARK_SECONDS, PARK_SECONDS
from rota.tasks.options import NO_RATE, parse_rate
from rota_supervisor.config.conditions import check_chunk, intervals, parse_hours
from rota_supervisor.config.model import (
    ConditionConfig,
    Config,
    PoolConfig,
    QueueConfig,
    ScheduleConfig,
)

EVERY_QUEUE = "*"
DEFAULT_POOL = "default"
SHARE_KEYS = ("weight", "cap", "rate", "condition")  # the keys of [queues.NAME] from which a QueueShare is made
LEGACY_LIST_PREFIX = "queue:"  # a legacy list whose key has this prefix is named after its queue


def served_queues(config: Config) -> tuple[str, ...]:
    """Return all queues and patterns of all tiers, the highest tier first."""
    return tuple(queue for tier in config.tiers for queue in tier)


class WorkerRange(NamedTuple):
    """The configured range for the number of workers of a pool. The number is fixed if both ends are equal."""

    least: int
    most: int

    @property
    def is_fixed(self) -> bool:
        """Whether the pool always has the same number of workers."""
        return self.least == self.most

    def clamped(self, workers: int) -> int:
        """Return the nearest number in the range."""
        return max(self.least, min(workers, self.most))

    def __str__(self) -> str:
        return str(self.least) if self.is_fixed else f"{self.least}..{self.most}"


def worker_range(value: int | str) -> WorkerRange:
    """Return the range for a value of `workers`, which is a number or a text such as "2..16"."""
    least, _, most = str(value).partition("..")
    return WorkerRange(int(least), int(most or least))


def pool_sizes(config: Config) -> dict[str, WorkerRange]:
    """Return the range of workers of each pool. If neither `workers` nor `pools` is set, there is one worker per
    processor.
    """
    return {name: worker_range(pool.workers) for name, pool in resolve_pools(config).items()}


def resolve_pools(config: Config) -> dict[str, PoolConfig]:
    """Return the configured pools, or the single pool that `workers` defines."""
    if config.pools:
        return config.pools
    workers = config.workers if config.workers is not None else os.cpu_count() or 1
    return {DEFAULT_POOL: PoolConfig(workers=workers)}


def taken_queues(config: Config, counts: Mapping[str, int]) -> list[str]:
    """Return the queues that pools with workers serve, the highest tier first. `counts`: the number of workers by pool.

    A pool whose range begins at 0 serves its queues even without a worker, because their first task starts one.
    """
    sizes = pool_sizes(config)
    takes = {name for name, size in sizes.items() if counts.get(name) or (not size.is_fixed and size.most)}
    taken = {queue for name, pool in resolve_pools(config).items() if name in takes for queue in pool.queues}
    return [queue for queue in served_queues(config) if queue in taken or EVERY_QUEUE in taken]


def queue_shares(config: Config) -> tuple[QueueShare, ...]:
    """Return the options of each queue or pattern in `[queues]`, such as its weight and rate, in the form that the
    scripts use."""
    return tuple(_share(config, name) for name in config.queues)


def pattern_domains(config: Config) -> tuple[Domain, ...]:
    """Return the domains of all pools, without duplicates and without domains that contain no pattern. A domain is the
    set of queues and patterns that a pool serves in one tier.
    """
    domains = {
        tier for pool in resolve_pools(config).values() for tier in domains_of(config, pool) if tier.has_patterns
    }
    return tuple(sorted(domains, key=attrgetter("name")))


def warnings_of_pools(config: Config) -> list[str]:
    """Return a warning for each queue that no worker will serve because its pools have no workers."""
    taken = taken_queues(config, {name: size.least for name, size in pool_sizes(config).items()})
    if not taken:
        return ["no pool has workers, so this node runs no tasks"]
    warnings = []
    for queue in served_queues(config):
        if queue not in taken:
            pools = ", ".join(name for name, pool in config.pools.items() if _takes(pool, queue))
            warnings.append(f'no worker takes queue "{queue}": the pools that serve it have no workers ({pools})')
    return warnings


def _takes(pool: PoolConfig, queue: str) -> bool:
    return queue in pool.queues or EVERY_QUEUE in pool.queues


def park_seconds(config: Config, pool: PoolConfig) -> float:
    """Return the longest time for which a worker waits at its doorbells.

    A worker normally waits for only PARK_SECONDS, so that it soon notices if the server has died. If the master renews
    the lease at short intervals, each renewal shows that the server replies, so the worker can wait for longer. A
    worker that runs many tasks at once always waits only for PARK_SECONDS.
    """
    is_renewed = config.lease.renew_seconds <= PARK_SECONDS and pool.concurrency == 1
    return min(LONG_PARK_SECONDS if is_renewed else PARK_SECONDS, config.limits.beat_seconds * 2 / 3)


def domains_of(config: Config, pool: PoolConfig) -> tuple[Domain, ...]:
    """Return the tiers that a pool serves, each reduced to the pool's own queues. Tiers with none of its queues are
    omitted."""
    wanted = [[queue for queue in tier if _takes(pool, queue)] for tier in config.tiers]
    served = served_queues(config)
    return tuple(domain_of([_share(config, queue) for queue in tier], served) for tier in wanted if tier)


def _share(config: Config, name: str) -> QueueShare:
    queue = config.queues.get(name, QueueConfig())
    rate = parse_rate(queue.rate) if queue.rate else NO_RATE
    return QueueShare(name, queue.weight, queue.cap, *rate, queue.condition)


def conditions_at(conditions: Mapping[str, ConditionConfig], now_us: int) -> list[QueueCondition]:
    """Return the conditions in the format that the scripts read. Opening hours are computed for the days after
    `now_us`, a time by the clock of Redis.
    """
    return [_condition(name, each, now_us) for name, each in conditions.items()]


def _condition(name: str, condition: ConditionConfig, now_us: int) -> QueueCondition:
    if condition.lua:
        return QueueCondition(name, "lua", check_chunk(condition.lua))
    return QueueCondition(name, "hours", text_of_hours(*intervals(parse_hours(condition.hours), now_us)))


def legacy_sources(config: Config) -> tuple[LegacySource, ...]:
    """Return the legacy lists from which pollers adopt tasks."""
    return tuple(LegacySource(key, adopt.queue or queue_in_key(key), adopt.task) for key, adopt in config.adopt.items())


def server_settings(config: Config) -> ServerSettings:
    """Return the address of the server and its TLS files."""
    return ServerSettings(**by_name(ServerSettings, config))


def topology_of(config: Config) -> Topology:
    """Return how redis_url names the server, which must be a valid URL."""
    return parse_address(config.redis_url).topology


def signing_settings(config: Config) -> SigningSettings:
    """Return the settings for signing and verifying tasks."""
    return SigningSettings(**by_name(SigningSettings, config.signing))


class AccessOptions(TypedDict):
    """The options of a client in addition to the URL: the TLS files, the provider of the user name and password, and
    the signing keys.
    """

    redis_tls_ca: str
    redis_tls_cert: str
    redis_tls_key: str
    redis_credentials: str
    signing_keys: dict[str, str | bytes]
    sign_with: str
    signing_required: bool


def access_options(config: Config) -> AccessOptions:
    """Return the options for the client of a command, in addition to the URL."""
    return AccessOptions(
        redis_tls_ca=config.redis_tls_ca,
        redis_tls_cert=config.redis_tls_cert,
        redis_tls_key=config.redis_tls_key,
        redis_credentials=config.redis_credentials,
        signing_keys=dict(config.signing.keys),
        sign_with=config.signing.sign_with,
        signing_required=config.signing.required,
    )


def log_settings(config: Config) -> LogSettings:
    """Return the log settings of every process of the fleet."""
    return LogSettings(**by_name(LogSettings, config.log))


def by_name(settings: type[Any], *sections: Struct) -> dict[str, Any]:
    """Return the values in these sections of the configuration that a child's settings also have. `settings` is the
    class of the child's settings. A value is returned if its key is the name of a field of this class.
    """
    wanted = {field.name for field in dataclasses.fields(settings)}
    return {name: getattr(each, name) for each in sections for name in each.__struct_fields__ if name in wanted}


def queue_in_key(key: str) -> str:
    """Return the queue that the key of a legacy list names, for example `email` for `queue:email`, or "" for any other
    key."""
    return key.removeprefix(LEGACY_LIST_PREFIX) if key.startswith(LEGACY_LIST_PREFIX) else ""


# Schedules


def calls_of(config: Config) -> dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Return what each schedule calls (the task, args and kwargs), by the name of the schedule."""
    return {name: (given.task, given.args, given.kwargs) for name, given in config.schedules.items()}


def schedules_in_force(config: Config, queues: Mapping[str, str]) -> tuple[Schedule, ...]:
    """Return the schedules of a configuration. `queues`: the queue of each task, as the code sets it.

    A schedule without a known queue is omitted: see `rules.schedules_without_queue`.
    """
    found = ((name, given, given.queue or queues.get(given.task)) for name, given in config.schedules.items())
    return tuple(schedule_of(name, given, queue) for name, given, queue in found if queue)


def schedule_of(name: str, given: ScheduleConfig, queue: str) -> Schedule:
    """Return the schedule that a table `[schedules.NAME]` describes. `queue`: the queue of its task. Raises
    BadSchedule."""
    return Schedule(
        name=name,
        task=given.task,
        rule=_rule(given),
        queue=queue,
        args=given.args,
        kwargs=given.kwargs,
        missed=given.missed,
        overlap=given.overlap,
        jitter_us=microseconds(given.jitter, "jitter"),
        start_us=None if given.start is None else unix_microseconds(given.start, "start"),
        end_us=None if given.end is None else unix_microseconds(given.end, "end"),
        source="file",
    )


def _rule(given: ScheduleConfig) -> Rule:
    if given.every is not None:
        return EveryRule(microseconds(given.every, "every"))
    return CronRule(given.cron, given.timezone or "UTC")
