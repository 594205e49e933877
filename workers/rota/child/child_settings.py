"""The settings of a child: the part of the configuration it needs, frozen.

The master writes these as JSON into the child's first message. Nothing else in a child reads the configuration file or
the environment. The defaults stand in `rota_supervisor.config.model`, and a field named as there is filled by its name.
"""

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, Literal

from rota.protocol.replies import ClassicSource
from rota.protocol.tiers import Domain, QueueShare


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The server and the namespace in it. The URL may carry a password; it is not shown. The files are for TLS, "" for
    none. `redis_credentials`: the provider of user and password, "" for those of the URL."""

    redis_url: str = field(repr=False)
    namespace: str
    redis_tls_ca: str = ""
    redis_tls_cert: str = ""
    redis_tls_key: str = ""
    redis_credentials: str = ""


Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "json", "console", "logfmt"]
TaskLines = Literal["all", "late", "failures", "sample"]


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How a process logs, also before it has its settings. `tasks`: which lines about tasks are written.
    `capture_output`: what tasks print becomes lines, too."""

    level: Level = "info"
    format: Format = "auto"
    tasks: TaskLines = "all"
    capture_output: bool = False


@dataclass(frozen=True, slots=True)
class TaskOverride:
    """The operator's `[tasks.NAME]`: each value given wins over the decorator's."""

    retries: int | None = None
    crash_limit: int | None = None
    time_limit_seconds: float | None = None
    soft_time_limit_seconds: float | None = None
    max_delay_seconds: float | None = None
    rate: str | None = None


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What every worker of one pool and generation shares.

    Whatever differs here makes its workers stale, so nothing stands here that no worker reads.
    `concurrency`: how many tasks each runs at once. `tiers`: what the pool serves, highest first. `beat_seconds`: how
    long a worker may be silent between tasks; one that runs several at once, also while it runs some. `park_seconds`:
    how long it sleeps at its doorbells at most. `durability`: of what its tasks enqueue. `lag_objectives`: seconds by
    queue; `lag_objective_seconds` for all others.
    """

    server: ServerSettings
    pool: str
    concurrency: int
    tiers: tuple[Domain, ...]
    lease_seconds: float
    beat_seconds: float
    park_seconds: float
    time_limit_seconds: float
    max_tasks: int
    max_tasks_jitter: float
    max_rss_mb: int
    max_payload_kb: int
    max_result_kb: int
    durability: str
    overrides: dict[str, TaskOverride]
    lag_objective_seconds: float
    lag_objectives: dict[str, float]
    log: LogSettings


@dataclass(frozen=True, slots=True)
class PollerSettings:
    """What a poller needs. `rank` is its place among its node's pollers: stand-bys wait 3 ms a rank.
    `forget_queue_seconds`: after how long an empty queue of a pattern is forgotten. `queues`: those of all tiers, where
    patterns are among them: so it knows as which of these a queue is counted. `adopts`: the sources that it takes
    from."""

    server: ServerSettings
    rank: int
    lease_seconds: float
    crash_limit: int
    loss_limit: int
    dead_max_age_seconds: float
    dead_max_count: int
    forget_queue_seconds: float
    queues: tuple[str, ...]
    adopts: tuple[ClassicSource, ...]
    log: LogSettings


def settings_to_json(settings: WorkerSettings | PollerSettings) -> str:
    """Write settings for a child's first message."""
    return json.dumps(dataclasses.asdict(settings), separators=(",", ":"))


def worker_settings_from_json(text: str) -> WorkerSettings:
    """Read what `settings_to_json` wrote. Raises KeyError or TypeError for another shape."""
    raw: dict[str, Any] = json.loads(text)
    raw["server"] = ServerSettings(**raw["server"])
    raw["log"] = LogSettings(**raw["log"])
    raw["tiers"] = tuple(
        Domain(tier["name"], tuple(QueueShare(**share) for share in tier["queues"]), tuple(tier["excluded"]))
        for tier in raw["tiers"]
    )
    raw["overrides"] = {name: TaskOverride(**override) for name, override in raw["overrides"].items()}
    return WorkerSettings(**raw)


def poller_settings_from_json(text: str) -> PollerSettings:
    """Read what `settings_to_json` wrote. Raises KeyError or TypeError for another shape."""
    raw: dict[str, Any] = json.loads(text)
    raw["server"] = ServerSettings(**raw["server"])
    raw["adopts"] = tuple(ClassicSource(*source) for source in raw["adopts"])
    raw["log"] = LogSettings(**raw["log"])
    return PollerSettings(**{**raw, "queues": tuple(raw["queues"])})
