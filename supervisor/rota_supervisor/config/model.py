"""The shape of the configuration, with every default in it, and the faults of one. Defaults that hold without a
configuration too are in `rota`.

`rota.toml` decodes into these; `load` fills them from file, environment and flags and reports all faults
at once. Times are seconds unless the name says otherwise.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from rota.child.child_settings import Format, Level, LogSettings, TaskLines
from rota.child.slot_layout import MOST_PLACES
from rota.display_text import quoted
from rota.protocol.tiers import (
    DEFAULT_CRASH_LIMIT,
    DEFAULT_ENDED_KEEP,
    DEFAULT_FORGET_SECONDS,
    DEFAULT_LOSS_LIMIT,
    MOST_CRASHES,
    MOST_ENDED_KEEP,
)
from rota.schedules.schedule import Missed, Overlap
from rota.server.session import Durability
from rota.tasks.fleet_settings import (
    DEFAULT_DURABILITY,
    DEFAULT_MAX_PAYLOAD_KB,
    DEFAULT_MAX_RESULT_KB,
    DEFAULT_NAMESPACE,
    DEFAULT_REDIS_URL,
    DEFAULT_TIME_LIMIT_SECONDS,
)

Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(ge=0.001)]
Weight = Annotated[float, Meta(ge=0.001, le=10_000)]  # beyond, turns are too dear to count, or too cheap to tell apart
Share = Annotated[float, Meta(gt=0, lt=1)]
_LOG = LogSettings()


class QueueConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[queues.NAME]`: `cap` running at once over the fleet (0: none), `rate` as in "100/m", `condition`: the name of
    one."""

    weight: Weight = 1.0
    cap: Count = 0
    rate: str = ""
    condition: str = ""
    lag_objective_seconds: Positive | None = None
    lag_target: Share | None = None


class ConditionConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[conditions.NAME]`: when queues that name it are open: `hours` as in "Mon-Fri 08:00-18:00 Europe/Zurich", or
    `lua`, a text or, until the file is read, the path of one."""

    hours: str = ""
    lua: str = ""


class TaskConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[tasks.NAME]`: the operator's override of a decorator's options."""

    retries: Count | None = None
    crash_limit: Annotated[int, Meta(ge=0, le=MOST_CRASHES)] | None = None
    time_limit_seconds: Positive | None = None
    soft_time_limit_seconds: Positive | None = None
    max_delay_seconds: Positive | None = None
    rate: str | None = None


class AdoptConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[adopt.NAME]`: a list or a sorted set of a classic queue. `queue`: where its items go ("": to NAME from a list
    `queue:NAME`, else where each says). `task`: what each item is the one argument of."""

    queue: str = ""
    task: str = ""


class ScheduleConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[schedules.NAME]`: a task that is enqueued periodically, by `cron` or `every`."""

    task: str = ""
    cron: str = ""
    timezone: str = ""
    every: Annotated[float, Meta(ge=1)] | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    queue: str = ""
    missed: Missed = "last"
    overlap: Overlap = "skip"
    jitter: Seconds = 0.0
    start: datetime | None = None
    end: datetime | None = None


class PoolConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[pools.NAME]`: how many workers, which queues they may take ("*" is every queue), and how many tasks each runs
    at once."""

    workers: Count = 1
    queues: tuple[str, ...] = ("*",)
    concurrency: Annotated[int, Meta(ge=1, le=MOST_PLACES)] = 1


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """`[limits]`: 0 turns a limit off for max_tasks and max_rss_mb."""

    time_limit_seconds: Positive = DEFAULT_TIME_LIMIT_SECONDS
    drain_seconds: Seconds = 25.0
    boot_seconds: Positive = 60.0
    beat_seconds: Annotated[float, Meta(ge=2)] = 30.0  # a poller sleeps for up to 1
    max_tasks: Count = 0
    max_tasks_jitter: Annotated[float, Meta(ge=0, le=1)] = 0.1
    max_rss_mb: Count = 0
    max_payload_kb: Annotated[int, Meta(ge=1)] = DEFAULT_MAX_PAYLOAD_KB
    max_result_kb: Annotated[int, Meta(ge=1)] = DEFAULT_MAX_RESULT_KB
    forget_queue_seconds: Positive = DEFAULT_FORGET_SECONDS


class LeaseConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[lease]`: how long a silent node keeps its tasks, and how often a live one says so."""

    seconds: Annotated[float, Meta(ge=1)] = 20.0
    renew_seconds: Positive = 5.0


class Restarts(Struct, frozen=True, forbid_unknown_fields=True):
    """`[restarts]`: back-off of a crash loop, and after how many crashes or losses a task is dead."""

    backoff_seconds: Positive = 0.1
    backoff_max_seconds: Positive = 30.0
    healthy_seconds: Positive = 60.0
    crash_limit: Annotated[int, Meta(ge=1)] = DEFAULT_CRASH_LIMIT
    loss_limit: Annotated[int, Meta(ge=1)] = DEFAULT_LOSS_LIMIT


class Http(Struct, frozen=True, forbid_unknown_fields=True):
    """`[http]`: where metrics, health and the status page are served; "" turns it off, port 0 picks one. Who
    asks there has to bear a token, by which further names, with which certificate it is served, and whether the page
    may do more than show."""

    listen: str = "127.0.0.1:9477"
    allowed_hosts: tuple[str, ...] = ()
    token_file: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    actions: bool = False


class Metrics(Struct, frozen=True, forbid_unknown_fields=True):
    """`[metrics]`: the lag objective of queues without one of their own, and the bounds on series."""

    lag_objective_seconds: Positive = 30.0
    lag_target: Share = 0.99
    cluster: Literal["auto", "always", "never"] = "auto"
    max_series: Annotated[int, Meta(ge=1)] = 20_000
    top_queues: Annotated[int, Meta(ge=0, le=500)] = 20


class Control(Struct, frozen=True, forbid_unknown_fields=True):
    """`[control]`: the control socket ("" for the default place) and the pid file ("" for none)."""

    socket: str = ""
    pid_file: str = ""


class Log(Struct, frozen=True, forbid_unknown_fields=True):
    """`[log]`."""

    level: Level = _LOG.level
    format: Format = _LOG.format
    tasks: TaskLines = _LOG.tasks
    capture_output: bool = _LOG.capture_output


class Events(Struct, frozen=True, forbid_unknown_fields=True):
    """`[events]`: the stream of task events, opt-in. One script writes up to 1,000 of them."""

    enabled: bool = False
    max_length: Annotated[int, Meta(ge=1000, le=100_000_000)] = 100_000


class EndedConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[ended]`: of how many tasks that ended the fleet remembers how; 0 turns it off."""

    keep: Annotated[int, Meta(ge=0, le=MOST_ENDED_KEEP)] = DEFAULT_ENDED_KEEP


class Alerts(Struct, frozen=True, forbid_unknown_fields=True):
    """`[alerts]`: after how long an alert tells that nobody may claim from a queue."""

    forgotten_seconds: Positive = 86_400.0


class DeadConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[dead]`: how long and how many dead tasks are kept."""

    max_age_seconds: Positive = 7_776_000.0
    max_count: Annotated[int, Meta(ge=1)] = 100_000


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole of `rota.toml`. `workers` and `pools` exclude each other; see `resolution.resolve_pools`."""

    namespace: str = DEFAULT_NAMESPACE
    redis_url: str = DEFAULT_REDIS_URL
    redis_url_file: str = ""
    redis_tls_ca: str = ""
    redis_tls_cert: str = ""
    redis_tls_key: str = ""
    redis_credentials: str = ""
    imports: tuple[str, ...] = ()
    workers: Count | None = None
    pollers: Annotated[int, Meta(ge=1, le=2)] = 1
    tiers: tuple[tuple[str, ...], ...] = (("default",),)
    durability: Durability = DEFAULT_DURABILITY
    unserved_queues: Literal["error", "warn"] = "error"
    watch_config: bool = False
    queues: dict[str, QueueConfig] = field(default_factory=dict)
    conditions: dict[str, ConditionConfig] = field(default_factory=dict)
    tasks: dict[str, TaskConfig] = field(default_factory=dict)
    schedules: dict[str, ScheduleConfig] = field(default_factory=dict)
    pools: dict[str, PoolConfig] = field(default_factory=dict)
    adopt: dict[str, AdoptConfig] = field(default_factory=dict)
    limits: Limits = Limits()
    lease: LeaseConfig = LeaseConfig()
    restarts: Restarts = Restarts()
    http: Http = Http()
    metrics: Metrics = Metrics()
    control: Control = Control()
    log: Log = Log()
    events: Events = Events()
    ended: EndedConfig = EndedConfig()
    dead: DeadConfig = DeadConfig()
    alerts: Alerts = Alerts()


# What is wrong with a configuration: every fault at once, each with its path

SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong. `path` as in `tiers[1]` or `queues.sold-email.weight`; `origin` is said when
    the value does not stand in the file, as in `environment ROTA_WORKERS`."""

    path: str
    message: str
    origin: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" + (f" ({self.origin})" if self.origin else "")


class ConfigError(Exception):
    """The configuration cannot be used; `faults` says everything that is wrong with it.

    `usable`: what could be read of it, with defaults for the rest: enough to find a master by. `content`: of its file.
    """

    def __init__(self, faults: Iterable[Fault], usable: Config | None = None, content: bytes | None = None) -> None:
        self.faults = tuple(faults)
        self.usable = usable or Config()
        self.content = content
        super().__init__("; ".join(str(fault) for fault in self.faults))


def shown(value: object) -> str:
    """A value as a person wrote it, shortened and without what may be a secret, for "got ..."."""
    if isinstance(value, list | Mapping):
        return "a list" if isinstance(value, list) else "a table"
    try:
        text = quoted(value) if isinstance(value, str) else json.dumps(value)
    except (TypeError, ValueError):  # a date; a number of thousands of digits
        text = "a date or a time" if isinstance(value, date | time) else "a number too long to show"
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."


def suggestion(word: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """`, did you mean "X"?` for the nearest known word, or "" when none is as near as `likeness` (0 to 1)."""
    import difflib  # noqa: PLC0415 - 0.2 MB that a master without faults does not pay

    near = difflib.get_close_matches(word, list(known), n=1, cutoff=likeness)
    return f', did you mean "{near[0]}"?' if near else ""
