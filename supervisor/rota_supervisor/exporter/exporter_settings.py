"""The settings of the exporter: the part of the configuration that it needs.

The master sends them in the first message to the exporter, as the JSON of `dataclasses.asdict`. The exporter reads
neither the configuration file nor the environment.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rota.child.child_settings import LogSettings, ServerSettings
from rota_supervisor.fleet_snapshot import HeartbeatLimits


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """A queue or a pattern of a tier."""

    name: str
    tier: int  # the number of the queue's tier, 1 for the highest
    weight: float
    lag_objective_seconds: float
    lag_target: float  # the share of starts that must meet the objective


@dataclass(frozen=True, slots=True)
class ExporterSettings:
    """The settings of the exporter."""

    server: ServerSettings
    queues: tuple[QueueSettings, ...]  # the queues and patterns of all tiers, the highest tier first
    beat_seconds: float  # the longest silence of a child that runs no task
    tick_seconds: float  # the interval between two heartbeats of the master
    max_series: int  # the maximum number of series that are exported from the slots
    top_queues: int  # how many queues that match patterns are shown by name
    forgotten_seconds: float  # after this time, a closed queue counts as forgotten
    reads_redis: bool  # whether to read the queues from Redis and show their gauges, which are the same on every node
    allowed_hosts: tuple[str, ...]  # further host names that clients may use
    token_file: str  # the path of the file, or "" for none, as in the next three fields
    read_token_file: str
    tls_cert: str
    tls_key: str
    actions: bool  # whether the status page may change the fleet
    log: LogSettings
    control_socket: str = ""  # the path of the master's control socket
    is_standalone: bool = False  # whether there is no master on this machine, because the fleet runs elsewhere

    @property
    def heartbeat_limits(self) -> HeartbeatLimits | None:
        """The longest silence of the processes of the fleet, or None if the fleet runs elsewhere."""
        return None if self.is_standalone else HeartbeatLimits(self.tick_seconds, self.beat_seconds)


def exporter_settings(raw: Mapping[str, Any]) -> ExporterSettings:
    """Return the settings from their JSON form. Raises KeyError or TypeError if their structure is wrong."""
    return ExporterSettings(
        **{
            **raw,
            "server": ServerSettings(**raw["server"]),
            "queues": tuple(QueueSettings(**queue) for queue in raw["queues"]),
            "allowed_hosts": tuple(raw["allowed_hosts"]),
            "log": LogSettings(**raw["log"]),
        }
    )
