"""What a spawned child is told in its first packet. Pure."""

import dataclasses
from typing import Any

from rota_supervisor import messages
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolve import lag_objectives, log_settings, poller_settings, server_settings
from rota_supervisor.exporter.settings import ExporterSettings, QueueSettings
from rota_supervisor.layout import TICK_SECONDS, Role
from rota_supervisor.master.children.child import Child


def first_settings(child: Child, config: Config, rank: int, import_paths: tuple[str, ...]) -> dict[str, Any]:
    """The settings of a zygote, a poller of that rank, or the exporter."""
    match child.role:
        case Role.ZYGOTE:
            log = dataclasses.asdict(log_settings(config))
            settings = messages.ZygoteSettings(config.namespace, child.generation, config.imports, import_paths, log)
            return dataclasses.asdict(settings)
        case Role.POLLER:
            return dataclasses.asdict(poller_settings(config, rank))
        case Role.EXPORTER:
            return dataclasses.asdict(exporter_settings(config))
        case _:
            raise ValueError(f"a {child.role} is not spawned")


def exporter_settings(config: Config) -> ExporterSettings:
    """What the exporter is told."""
    weights = {name: queue.weight for name, queue in config.queues.items()}
    targets = {name: queue.lag_target for name, queue in config.queues.items()}
    objectives = lag_objectives(config)
    queues = [
        QueueSettings(
            name,
            weights.get(name, 1.0),
            objectives.get(name, config.metrics.lag_objective_seconds),
            targets.get(name) or config.metrics.lag_target,
        )
        for tier in config.tiers
        for name in tier
    ]
    return ExporterSettings(
        server=server_settings(config),
        queues=tuple(queues),
        beat_seconds=config.limits.beat_seconds,
        tick_seconds=TICK_SECONDS,
        max_series=config.metrics.max_series,
        ask_redis=config.metrics.cluster != "never",
        log=log_settings(config),
    )
