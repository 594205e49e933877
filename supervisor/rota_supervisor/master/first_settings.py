"""What a spawned child is told in its first packet. Pure."""

import dataclasses
from typing import Any

from rota_supervisor import messages
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolve import log_settings, poller_settings
from rota_supervisor.layout import Role
from rota_supervisor.master.children import Child
from rota_supervisor.master.reload import exporter_settings


def first_settings(child: Child, config: Config, rank: int, import_paths: tuple[str, ...]) -> dict[str, Any]:
    """The settings of a zygote, a poller of that rank, or the exporter."""
    match child.role:
        case Role.ZYGOTE:
            log = dataclasses.asdict(log_settings(config))
            return dataclasses.asdict(messages.ZygoteSettings(config.imports, import_paths, log))
        case Role.POLLER:
            return dataclasses.asdict(poller_settings(config, rank))
        case Role.EXPORTER:
            return dataclasses.asdict(exporter_settings(config))
        case _:
            raise ValueError(f"a {child.role} is not spawned")
