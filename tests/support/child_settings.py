"""Default settings for child processes, for tests that start a child or only one of its parts."""

import dataclasses
from typing import Any

from rota.child.child_settings import PollerSettings, ServerSettings, WorkerSettings
from rota.protocol.tiers import Domain
from rota_supervisor.config.model import Config, QueueConfig
from rota_supervisor.exporter.exporter_settings import ExporterSettings, QueueSettings
from rota_supervisor.master.core import process_settings
from rota_supervisor.master.core import process_settings as told

_NOWHERE = ServerSettings("redis://", "n")
_DEFAULTS = Config()


def worker_settings(
    tiers: tuple[Domain, ...] = (), server: ServerSettings = _NOWHERE, **changes: Any
) -> WorkerSettings:
    """Return settings of a worker in the pool "main". `changes` sets fields of WorkerSettings."""
    (found,) = process_settings.worker_settings(_DEFAULTS).values()
    return dataclasses.replace(found, **{"server": server, "pool": "main", "tiers": tiers, **changes})


def poller_settings(server: ServerSettings = _NOWHERE, **changes: Any) -> PollerSettings:
    """Return settings of the poller of rank 0. `changes` sets fields of PollerSettings."""
    return dataclasses.replace(process_settings.poller_settings(_DEFAULTS, 0), **{"server": server, **changes})


def exporter_settings(
    queues: dict[str, QueueConfig], server: ServerSettings = _NOWHERE, **changes: Any
) -> ExporterSettings:
    """Return settings of an exporter with these queues in one tier. `changes` sets fields of ExporterSettings."""
    config = Config(tiers=(tuple(queues),), queues=queues)
    return dataclasses.replace(told.exporter_settings(config), **{"server": server, **changes})


def queue_settings(name: str) -> QueueSettings:
    """Return the settings of a queue that the configuration does not mention."""
    (queue,) = exporter_settings({name: QueueConfig()}).queues
    return queue
