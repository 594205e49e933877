"""What the exporter is told at its start: the part of the configuration it needs, frozen.

The master writes it into the child's first message (`dataclasses.asdict` is its JSON shape); nothing else
in the exporter reads the configuration file or the environment.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rota.child.child_settings import LogSettings, ServerSettings
from rota_supervisor.fleet_snapshot import Patience


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """A configured queue. `tier`: its number, 1 for the highest. `lag_target`: the share of starts that must meet the
    objective."""

    name: str
    tier: int
    weight: float
    lag_objective_seconds: float
    lag_target: float


@dataclass(frozen=True, slots=True)
class ExporterSettings:
    """`queues`: those of all tiers, highest first, patterns among them. `beat_seconds`: the longest silence of a child
    outside a task. `tick_seconds`: how often the master beats. `max_series`: the bound on series from the slots.
    `top_queues`: how many queues of patterns are shown by name. `forgotten_seconds`: after how long what is closed
    counts as forgotten. `ask_redis`: whether to show the queues' gauges, which every node of a fleet shows alike.
    `allowed_hosts`: names by which it may be asked, beside those of every machine.
    `token_file`, `tls_cert`, `tls_key`: "" for none. `control_socket`: where the master is asked.
    `alone`: there is no master: the fleet runs elsewhere."""

    server: ServerSettings
    queues: tuple[QueueSettings, ...]
    beat_seconds: float
    tick_seconds: float
    max_series: int
    top_queues: int
    forgotten_seconds: float
    ask_redis: bool
    allowed_hosts: tuple[str, ...]
    token_file: str
    tls_cert: str
    tls_key: str
    actions: bool
    log: LogSettings
    control_socket: str = ""
    alone: bool = False

    @property
    def patience(self) -> Patience | None:
        """For how long the processes of the fleet may be silent; None where it runs elsewhere."""
        return None if self.alone else Patience(self.tick_seconds, self.beat_seconds)


def exporter_settings(raw: Mapping[str, Any]) -> ExporterSettings:
    """Read what `dataclasses.asdict` and JSON made of settings. Raises KeyError or TypeError for another shape."""
    return ExporterSettings(
        **{
            **raw,
            "server": ServerSettings(**raw["server"]),
            "queues": tuple(QueueSettings(**queue) for queue in raw["queues"]),
            "allowed_hosts": tuple(raw["allowed_hosts"]),
            "log": LogSettings(**raw["log"]),
        }
    )
