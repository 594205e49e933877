"""What children are told: a spawned one in its first packet, the workers of a pool by way of their zygote."""

import dataclasses
import json
from typing import Any, Final

from rota.child.child_settings import WorkerSettings, settings_to_json
from rota.protocol.tiers import pack_tiers
from rota.protocol.wire import Packed
from rota_supervisor import messages
from rota_supervisor.config import resolution
from rota_supervisor.config.model import Config, QueueConfig
from rota_supervisor.config.schedules import calls_of
from rota_supervisor.exporter.exporter_settings import ExporterSettings, QueueSettings
from rota_supervisor.layout import TICK_SECONDS, Role
from rota_supervisor.master.core.children import Child

NO_TIERS: Final = pack_tiers(())


@dataclasses.dataclass(frozen=True, slots=True)
class Surroundings:
    """What does not change while a master lives. `node`: its name. `redis`: where the server is, without a password.
    `import_paths`: folders with the task modules. `control_socket`: its path. `has_manager`: a service manager is to be
    told how it goes; `watchdog_seconds`: the longest silence that it bears, 0 for any. `host`: the name of
    the machine. `file`: the absolute path of the configuration file, whether or not there is one."""

    node: str = "node"
    pid: int = 0
    redis: str = ""
    import_paths: tuple[str, ...] = ()
    control_socket: str = ""
    has_manager: bool = False
    watchdog_seconds: float = 0.0
    host: str = ""
    file: str = ""


def first_settings(child: Child, config: Config, rank: int, surroundings: Surroundings) -> dict[str, Any]:
    """The settings of a zygote, a poller of that rank, or the exporter."""
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
            return dataclasses.asdict(resolution.poller_settings(config, rank))
        case Role.EXPORTER:
            told = exporter_settings(config)
            return dataclasses.asdict(dataclasses.replace(told, control_socket=surroundings.control_socket))
        case _:
            raise ValueError(f"a {child.role} is not spawned")


def _calls_to_compare(config: Config) -> messages.ScheduledCalls:
    """The calls of schedules, none where all of them do not fit into one packet: `rota check` compares these too."""
    calls = calls_of(config)
    return calls if len(json.dumps(calls)) <= messages.MAX_SETTINGS else {}


def exporter_settings(config: Config) -> ExporterSettings:
    """What the exporter is told."""
    by_name = resolution.by_name(ExporterSettings, config.limits, config.metrics, config.alerts, config.http)
    listen_host, _, _ = config.http.listen.rpartition(":")
    by_name["allowed_hosts"] = (*config.http.allowed_hosts, listen_host)
    return ExporterSettings(
        server=resolution.server_settings(config),
        queues=tuple(
            _queue_settings(config, name, number) for number, tier in enumerate(config.tiers, 1) for name in tier
        ),
        tick_seconds=TICK_SECONDS,
        ask_redis=config.metrics.cluster != "never",
        log=resolution.log_settings(config),
        **by_name,
    )


def _queue_settings(config: Config, name: str, tier: int) -> QueueSettings:
    queue, metrics = config.queues.get(name, QueueConfig()), config.metrics
    return QueueSettings(
        name,
        tier,
        queue.weight,
        queue.lag_objective_seconds or metrics.lag_objective_seconds,
        queue.lag_target or metrics.lag_target,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class WorkersOfPool:
    """What the workers of a pool are told: their settings, those as text for the zygote, and the tiers for scripts."""

    settings: WorkerSettings
    text: str
    tiers: Packed


def of_workers(config: Config) -> dict[str, WorkersOfPool]:
    """What the workers of each pool are told."""
    return {
        pool: WorkersOfPool(settings, settings_to_json(settings), pack_tiers(settings.tiers))
        for pool, settings in resolution.worker_settings(config).items()
    }
