"""The settings of children, and the configuration keys from which each setting is computed.

A spawned child receives its settings with its first packet, and a worker receives them from its zygote.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rota.child.child_settings import PollerSettings, ServerSettings, TaskOverride, WorkerSettings, settings_to_json
from rota.protocol.keys import is_pattern
from rota.protocol.tiers import QueueShare, pack_tiers
from rota.protocol.wire import Packed
from rota.url_logins import without_login
from rota_supervisor import messages
from rota_supervisor.config import resolution
from rota_supervisor.config.model import Config, PoolConfig, QueueConfig
from rota_supervisor.config.resolution import calls_of, served_queues
from rota_supervisor.exporter.exporter_settings import ExporterSettings, QueueSettings
from rota_supervisor.layout import TICK_SECONDS, Role
from rota_supervisor.master.core.children import Child

ChildSettings = WorkerSettings | PollerSettings | ExporterSettings


@dataclasses.dataclass(frozen=True, slots=True)
class Surroundings:
    """The environment of a master, which does not change while the master runs."""

    node: str = "node"  # the name of this node
    pid: int = 0
    import_paths: tuple[str, ...] = ()  # the folders with the task modules
    control_socket: str = ""  # the path of the control socket
    has_manager: bool = False  # whether a service manager expects messages
    watchdog_seconds: float = 0.0  # the longest silence that the service manager allows, or 0 for no limit
    host: str = ""  # the name of the machine
    file: str = ""  # the absolute path of the configuration file, even if there is no such file


def first_settings(child: Child, config: Config, rank: int, surroundings: Surroundings) -> dict[str, Any]:
    """Return the settings of a zygote, a poller or the exporter. `rank` is used only for a poller: how many other
    pollers of its generation this node has."""
    match child.role:
        case Role.ZYGOTE:
            log = dataclasses.asdict(resolution.log_settings(config))
            return messages.ZygoteSettings(
                config.namespace,
                child.generation,
                config.imports,
                surroundings.import_paths,
                _calls_to_compare(config),
                log,
            )._asdict()
        case Role.POLLER:
            return dataclasses.asdict(poller_settings(config, rank))
        case Role.EXPORTER:
            settings = exporter_settings(config)
            return dataclasses.asdict(dataclasses.replace(settings, control_socket=surroundings.control_socket))
        case _:
            raise ValueError(f"a {child.role} cannot be spawned")


def _calls_to_compare(config: Config) -> messages.ScheduledCalls:
    """Return the task name and the arguments with which each configured schedule calls its task. A zygote compares them
    with the tasks that it has imported.

    Return no calls if they do not fit into a packet; `rota check` then still makes the same comparison.
    """
    calls = calls_of(config)
    return calls if len(json.dumps(calls)) <= messages.MAX_SETTINGS else {}


def _server_of_children(config: Config) -> ServerSettings:
    """Return the settings of the Redis server for children. The URL has no user and no password, because children read
    these from shared memory."""
    settings = resolution.server_settings(config)
    return dataclasses.replace(settings, redis_url=without_login(settings.redis_url))


def exporter_settings(config: Config) -> ExporterSettings:
    """Return the settings of the exporter."""
    by_name = _filled(ExporterSettings, config)
    listen_host, _, _ = config.http.listen.rpartition(":")
    by_name["allowed_hosts"] = (*config.http.allowed_hosts, listen_host)
    return ExporterSettings(
        server=_server_of_children(config),
        queues=tuple(
            _queue_settings(config, name, number) for number, tier in enumerate(config.tiers, 1) for name in tier
        ),
        tick_seconds=TICK_SECONDS,
        reads_redis=config.metrics.cluster != "never",
        log=resolution.log_settings(config),
        **by_name,
    )


def _queue_settings(config: Config, name: str, tier: int) -> QueueSettings:
    queue = config.queues.get(name, QueueConfig())
    return QueueSettings(name, tier, queue.weight, *objective_of(config, name))


def objective_of(config: Config, name: str) -> tuple[float, float]:
    """Return the lag objective of a queue or pattern in seconds, and the share of task starts that must meet it."""
    queue = config.queues.get(name, QueueConfig())
    metrics = config.metrics
    return queue.lag_objective_seconds or metrics.lag_objective_seconds, queue.lag_target or metrics.lag_target


@dataclasses.dataclass(frozen=True, slots=True)
class WorkersOfPool:
    """The settings of a pool's workers, in the formats that the master, the zygote and the scripts use."""

    settings: WorkerSettings
    text: str  # the settings as JSON, for the zygote
    tiers: Packed  # the tiers in the format of the scripts


def of_workers(config: Config) -> dict[str, WorkersOfPool]:
    """Return the settings of each pool's workers, in the formats for the zygote and for the scripts."""
    return {
        pool: WorkersOfPool(settings, settings_to_json(settings), pack_tiers(settings.tiers))
        for pool, settings in worker_settings(config).items()
    }


def worker_settings(config: Config) -> dict[str, WorkerSettings]:
    """Return the settings of the workers of each pool."""
    return {name: _settings_of_pool(config, name, pool) for name, pool in resolution.resolve_pools(config).items()}


def _settings_of_pool(config: Config, name: str, pool: PoolConfig) -> WorkerSettings:
    tiers = resolution.domains_of(config, pool)
    served = {share.name for tier in tiers for share in tier.queues}
    objectives = {name: queue.lag_objective_seconds for name, queue in config.queues.items() if name in served}
    return WorkerSettings(
        server=_server_of_children(config),
        pool=name,
        concurrency=pool.concurrency,
        tiers=tiers,
        lease_seconds=config.lease.seconds,
        park_seconds=resolution.park_seconds(config, pool),
        durability=config.durability,
        signing=resolution.signing_settings(config),
        overrides={name: TaskOverride(**resolution.by_name(TaskOverride, task)) for name, task in config.tasks.items()},
        lag_objectives={name: seconds for name, seconds in objectives.items() if seconds is not None},
        log=resolution.log_settings(config),
        **_filled(WorkerSettings, config),
    )


def poller_settings(config: Config, rank: int) -> PollerSettings:
    """Return the settings of a poller. `rank` is the number of pollers that act before it: pollers with a higher rank
    are on stand-by."""
    return PollerSettings(
        server=_server_of_children(config),
        rank=rank,
        lease_seconds=config.lease.seconds,
        dead_max_age_seconds=config.dead.max_age_seconds,
        dead_max_count=config.dead.max_count,
        adopts=resolution.legacy_sources(config),
        signing=resolution.signing_settings(config),
        queues=served_queues(config) if any(map(is_pattern, served_queues(config))) else (),
        log=resolution.log_settings(config),
        **_filled(PollerSettings, config),
    )


# The sources of each setting


# The configuration sections whose values fill the fields of the same names.
SECTIONS: Final[Mapping[type, tuple[str, ...]]] = {
    WorkerSettings: ("limits", "metrics"),
    PollerSettings: ("restarts", "limits"),
    ExporterSettings: ("limits", "metrics", "alerts", "http"),
}
# The keys from which all other fields are computed. A name that ends with a dot is a table. POOL stands for the name of
# the pool, and QUEUE for the name of each queue that the pool serves.
KEYS: Final[Mapping[type, Mapping[str, tuple[str, ...]]]] = {
    WorkerSettings: {
        "server": ("redis_credentials",),
        "concurrency": ("pools.POOL.concurrency",),
        "tiers": (
            "tiers",
            "pools.POOL.queues",
            *(f"queues.QUEUE.{key}" for key in resolution.SHARE_KEYS),
        ),
        "overrides": ("tasks.",),
        "lease_seconds": ("lease.seconds",),
        "park_seconds": ("lease.renew_seconds", "limits.beat_seconds", "pools.POOL.concurrency"),
        "lag_objectives": ("queues.QUEUE.lag_objective_seconds",),
        "signing": ("signing.",),
        "log": ("log.",),
    },
    PollerSettings: {
        "server": ("redis_credentials",),
        "lease_seconds": ("lease.seconds",),
        "dead_max_age_seconds": ("dead.max_age_seconds",),
        "dead_max_count": ("dead.max_count",),
        "queues": ("tiers",),
        "adopts": ("adopt.",),
        "signing": ("signing.",),
        "log": ("log.",),
    },
    ExporterSettings: {
        "server": ("redis_credentials",),
        "queues": (
            *("tiers", "metrics.lag_objective_seconds", "metrics.lag_target"),
            *(f"queues.QUEUE.{key}" for key in ("weight", "lag_objective_seconds", "lag_target")),
        ),
        "reads_redis": ("metrics.cluster",),
        "allowed_hosts": ("http.allowed_hosts", "http.listen"),
        "log": ("log.",),
    },
}


def _filled(kind: type[Any], config: Config) -> dict[str, Any]:
    return resolution.by_name(kind, *(getattr(config, section) for section in SECTIONS[kind]))


def keys_of_difference(old: ChildSettings, new: ChildSettings, keys: Sequence[str], pool: str = "") -> list[str]:
    """Return those of `keys` (configuration keys whose values have changed) that explain why two settings differ. If
    none of them explains the difference in a setting, the name of the setting is listed instead."""
    kind = type(new)
    queues = {queue.name for settings in (old, new) for queue in _queues_in(settings)}
    found: list[str] = []
    for field in dataclasses.fields(new):
        if getattr(old, field.name) != getattr(new, field.name):
            sources = KEYS[kind].get(field.name) or [f"{section}.{field.name}" for section in SECTIONS[kind]]
            wanted = {
                each.replace("POOL", pool).replace("QUEUE", queue) for each in sources for queue in queues or {""}
            }
            found += [key for key in keys if key in wanted or f"{key.partition('.')[0]}." in wanted] or [field.name]
    return list(dict.fromkeys(found))


def _queues_in(settings: ChildSettings) -> Iterator[QueueShare | QueueSettings]:
    if isinstance(settings, WorkerSettings):
        yield from (share for tier in settings.tiers for share in tier.queues)
    elif isinstance(settings, ExporterSettings):
        yield from settings.queues
