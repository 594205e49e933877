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
    """The settings of a queue, or of a pattern of queues, in a tier."""

    name: str
    tier: int  # the number of the queue's tier, 1 for the highest
    weight: float
    lag_objective_seconds: float
    lag_target: float  # the share of starts that must meet the lag objective


@dataclass(frozen=True, slots=True)
class ExporterSettings:
    """The settings of the exporter."""

    server: ServerSettings
    queues: tuple[QueueSettings, ...]  # the queues and patterns of all tiers, the highest tier first
    beat_seconds: float  # how long a child that runs no task may go without a heartbeat
    tick_seconds: float  # the interval between the heartbeats of the master
    max_series: int  # the maximum number of series that are exported from the slots
    top_queues: int  # how many of the queues that match patterns are shown by name
    forgotten_seconds: float  # after this time, a closed queue counts as forgotten
    reads_redis: bool  # whether this node reads the queues from Redis and exports their gauges
    allowed_hosts: tuple[str, ...]  # additional host names that clients may use for this node
    token_file: str  # in this and the next three fields: the path of the file, or "" for none
    read_token_file: str
    tls_cert: str
    tls_key: str
    actions: bool  # whether the status page may change the fleet
    log: LogSettings
    control_socket: str = ""  # the path of the master's control socket
    is_standalone: bool = False  # whether there is no master on this machine, because the fleet runs elsewhere

    @property
    def heartbeat_limits(self) -> HeartbeatLimits | None:
        """The longest times that the master and its children may go without a heartbeat, or None if the fleet runs
        elsewhere.
        """
        return None if self.is_standalone else HeartbeatLimits(self.tick_seconds, self.beat_seconds)


def exporter_settings(raw: Mapping[str, Any]) -> ExporterSettings:
    """Return the settings that this JSON contains. Raises KeyError or TypeError if the JSON has the wrong structure."""
    return ExporterSettings(
        **{
            **raw,
            "server": ServerSettings(**raw["server"]),
            "queues": tuple(QueueSettings(**queue) for queue in raw["queues"]),
            "allowed_hosts": tuple(raw["allowed_hosts"]),
            "log": LogSettings(**raw["log"]),
        }
    )
