"""What children are told: a spawned one in its first packet, the workers of a pool by way of their zygote."""

import dataclasses
from collections import deque
from typing import Any, Final

from rota.child.settings import WorkerSettings, settings_to_json
from rota.protocol.store import pack_tiers
from rota.protocol.wire import Packed
from rota_supervisor import messages
from rota_supervisor.config.model import Config, QueueConfig
from rota_supervisor.config.resolve import by_name, log_settings, poller_settings, server_settings, worker_settings
from rota_supervisor.config.rules import served_queues
from rota_supervisor.exporter.settings import ExporterSettings, QueueSettings
from rota_supervisor.layout import TICK_SECONDS, Role
from rota_supervisor.master.core.children import Child

_CONFIGS_IN_USE: Final = 4  # the one in force, a candidate's, and those of generations that are leaving
NO_TIERS: Final = pack_tiers(())


def first_settings(child: Child, config: Config, rank: int, import_paths: tuple[str, ...]) -> dict[str, Any]:
    """The settings of a zygote, a poller of that rank, or the exporter."""
    match child.role:
        case Role.ZYGOTE:
            log = dataclasses.asdict(log_settings(config))
            settings = messages.ZygoteSettings(config.namespace, child.generation, config.imports, import_paths, log)
            return settings._asdict()
        case Role.POLLER:
            return dataclasses.asdict(poller_settings(config, rank))
        case Role.EXPORTER:
            return dataclasses.asdict(exporter_settings(config))
        case _:
            raise ValueError(f"a {child.role} is not spawned")


def exporter_settings(config: Config) -> ExporterSettings:
    """What the exporter is told."""
    return ExporterSettings(
        server=server_settings(config),
        queues=tuple(_queue_settings(config, name) for name in served_queues(config)),
        tick_seconds=TICK_SECONDS,
        ask_redis=config.metrics.cluster != "never",
        log=log_settings(config),
        **by_name(ExporterSettings, config.limits, config.metrics),
    )


def _queue_settings(config: Config, name: str) -> QueueSettings:
    queue, metrics = config.queues.get(name, QueueConfig()), config.metrics
    return QueueSettings(
        name,
        queue.weight,
        queue.lag_objective_seconds or metrics.lag_objective_seconds,
        queue.lag_target or metrics.lag_target,
    )


# Workers


@dataclasses.dataclass(frozen=True, slots=True)
class WorkersOfPool:
    """What the workers of a pool are told: their settings, those as text for the zygote, and the tiers for scripts."""

    settings: WorkerSettings
    text: str
    tiers: Packed


class WorkerSettingsCache:
    """What workers are told, worked out once for each configuration in use; a configuration is frozen.

    With 500 queues that takes 8 ms. Starts, deaths and recalls ask for it one by one: 50 at once held the loop for
    0.4 s.
    """

    def __init__(self) -> None:
        self._kept: deque[tuple[Config, dict[str, WorkersOfPool]]] = deque(maxlen=_CONFIGS_IN_USE)

    def of(self, config: Config) -> dict[str, WorkersOfPool]:
        """What the workers of each pool are told."""
        for known, pools in self._kept:
            if known is config:
                return pools
        pools = {
            name: WorkersOfPool(settings, settings_to_json(settings), pack_tiers(settings.tiers))
            for name, settings in worker_settings(config).items()
        }
        self._kept.append((config, pools))
        return pools
