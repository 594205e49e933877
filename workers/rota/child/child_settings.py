"""The settings of a child process: a frozen copy of the part of the configuration that the child needs.

The master sends the settings as JSON in its first message to the child. A child reads neither the configuration file
nor the environment. Each field has the value of the setting with the same name in `rota_supervisor.config.model`. The
defaults are there too.
"""

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, Literal

from rota.protocol.replies import LegacySource
from rota.protocol.signatures import SigningSettings
from rota.protocol.tiers import Domain, QueueShare


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The server and the namespace to connect to. The URL may contain a password, so it is excluded from the repr."""

    redis_url: str = field(repr=False)
    namespace: str
    redis_tls_ca: str = ""  # path of a file, "" for none
    redis_tls_cert: str = ""  # path of a file, "" for none
    redis_tls_key: str = ""  # path of a file, "" for none
    redis_credentials: str = ""  # import path of the provider of the user and password, "" to take both from the URL


Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "json", "console", "logfmt"]
TaskLines = Literal["all", "late", "failures", "sample"]


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The log settings of a process. The defaults apply until the process has received its settings."""

    level: Level = "info"
    format: Format = "auto"
    tasks: TaskLines = "all"  # which task events are logged
    capture_output: bool = False  # whether the output of tasks becomes log lines


@dataclass(frozen=True, slots=True)
class TaskOverride:
    """A table `[tasks.NAME]` of the configuration file. Each value in it overrides the value in `@rota.task`."""

    retries: int | None = None
    crash_limit: int | None = None
    time_limit_seconds: float | None = None
    soft_time_limit_seconds: float | None = None
    max_delay_seconds: float | None = None
    rate: str | None = None


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings that all workers of one pool and generation share.

    If one of these settings changes, the workers of the pool are replaced. So this class contains only settings that
    workers read.
    """

    server: ServerSettings
    pool: str
    concurrency: int  # number of tasks that each worker runs at once
    tiers: tuple[Domain, ...]  # the tiers that the pool serves, highest first
    lease_seconds: float  # how long an owner remains registered in Redis without a renewal of its lease
    beat_seconds: float  # longest time between two heartbeats while no task runs, and in concurrent workers at any time
    park_seconds: float  # longest wait at the doorbells
    time_limit_seconds: float  # hard time limit of tasks that do not have their own
    max_tasks: int  # number of attempts after which a worker is replaced, 0 for no limit
    max_tasks_jitter: float  # largest share by which `max_tasks` is reduced at random
    max_rss_mb: int  # growth of a worker's memory, in MB, at which it is replaced, 0 for no limit
    max_payload_kb: int  # largest body of a task, in KiB
    max_result_kb: int  # largest result that is stored, in KiB
    durability: str  # the durability of enqueues that the tasks themselves make
    signing: SigningSettings  # the keys that verify claimed tasks, and that sign tasks enqueued by tasks
    overrides: dict[str, TaskOverride]  # the tables `[tasks.NAME]`, by the name of the task
    lag_objective_seconds: float  # lag objective of the queues that are not in `lag_objectives`
    lag_objectives: dict[str, float]  # lag objectives in seconds, by queue
    log: LogSettings


@dataclass(frozen=True, slots=True)
class PollerSettings:
    """The settings of a poller."""

    server: ServerSettings
    # The number of the poller on its node, from 0. A poller acts 3 ms x its rank after the due time, so poller 0
    # usually does the work.
    rank: int
    lease_seconds: float
    crash_limit: int  # a task that has crashed this many workers becomes dead
    loss_limit: int  # a task becomes dead when this many nodes were lost while they held it
    dead_max_age_seconds: float  # dead tasks older than this are removed
    dead_max_count: int  # the oldest dead tasks beyond this number are removed
    forget_queue_seconds: float  # how long a queue of a pattern may be empty before it is forgotten
    queues: tuple[str, ...]  # queues and patterns of all tiers; metrics count a queue under its own name or its pattern
    adopts: tuple[LegacySource, ...]  # the legacy lists that the poller takes items from
    signing: SigningSettings  # the keys that verify schedules and sign their tasks
    log: LogSettings


def settings_to_json(settings: WorkerSettings | PollerSettings) -> str:
    """Return settings as JSON, for a child's first message."""
    return json.dumps(dataclasses.asdict(settings), separators=(",", ":"))


def worker_settings_from_json(text: str) -> WorkerSettings:
    """Return the worker settings from the JSON of `settings_to_json`. Raises KeyError or TypeError if the fields of the
    JSON do not match."""
    raw: dict[str, Any] = json.loads(text)
    raw["server"] = ServerSettings(**raw["server"])
    raw["log"] = LogSettings(**raw["log"])
    raw["tiers"] = tuple(
        Domain(tier["name"], tuple(QueueShare(**share) for share in tier["queues"]), tuple(tier["excluded"]))
        for tier in raw["tiers"]
    )
    raw["signing"] = SigningSettings(**raw["signing"])
    raw["overrides"] = {name: TaskOverride(**override) for name, override in raw["overrides"].items()}
    return WorkerSettings(**raw)


def poller_settings_from_json(text: str) -> PollerSettings:
    """Return the poller settings from the JSON of `settings_to_json`. Raises KeyError or TypeError if the fields of the
    JSON do not match."""
    raw: dict[str, Any] = json.loads(text)
    raw["server"] = ServerSettings(**raw["server"])
    raw["signing"] = SigningSettings(**raw["signing"])
    raw["adopts"] = tuple(LegacySource(*source) for source in raw["adopts"])
    raw["log"] = LogSettings(**raw["log"])
    return PollerSettings(**{**raw, "queues": tuple(raw["queues"])})
