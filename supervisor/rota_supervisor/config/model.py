"""The structure of the configuration, with its defaults. Defaults that are also needed without a configuration, for
example by clients, are defined in `rota`.

`rota.toml` is decoded into these classes; docs/configuration.md describes each key. `load` fills them from the file,
the environment and flags, and reports all faults at once. Times are in seconds unless the name states another unit.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from rota.child.child_settings import Format, Level, LogSettings, TaskLines
from rota.child.slot_layout import MAX_CONCURRENCY
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
Weight = Annotated[float, Meta(ge=0.001, le=10_000)]  # beyond these limits, fair rotation is too costly or imprecise
Share = Annotated[float, Meta(gt=0, lt=1)]
RangeText = Annotated[str, Meta(pattern=r"^[0-9]{1,9}\.\.[0-9]{1,9}$")]  # for example "2..16"
_LOG = LogSettings()


class QueueConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[queues.NAME]`: a queue or a pattern of queues."""

    weight: Weight = 1.0
    cap: Count = 0  # the limit of running tasks in the whole fleet; 0 means no cap
    rate: str = ""  # the limit of starts in the whole fleet, for example "100/m"
    condition: str = ""  # the name of the condition under which the queue is open
    lag_objective_seconds: Positive | None = None
    lag_target: Share | None = None


class ConditionConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[conditions.NAME]`: a condition under which queues are open. Exactly one of the keys is set."""

    hours: str = ""  # for example "Mon-Fri 08:00-18:00 Europe/Zurich"
    lua: str = ""  # the Lua text; before files are read, it can be the path of a file


class TaskConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[tasks.NAME]`: options with which the operator overrides those in the code of a task."""

    retries: Count | None = None
    crash_limit: Annotated[int, Meta(ge=0, le=MOST_CRASHES)] | None = None
    time_limit_seconds: Positive | None = None
    soft_time_limit_seconds: Positive | None = None
    max_delay_seconds: Positive | None = None
    rate: str | None = None


class AdoptConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[adopt.NAME]`: a legacy list, which is a list or a sorted set in Redis whose items become tasks."""

    queue: str = ""  # the queue of all items; if "", NAME for a list `queue:NAME`, else the queue that each item names
    task: str = ""  # the task that gets each item as its only argument, or "" if items name their task


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
    """`[pools.NAME]`: a group of workers."""

    workers: Count | RangeText = 1  # a number, or a range within which the pool is scaled to meet the lag objectives
    queues: tuple[str, ...] = ("*",)  # "*" stands for every queue
    concurrency: Annotated[int, Meta(ge=1, le=MAX_CONCURRENCY)] = 1  # the number of tasks that each worker runs at once


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """`[limits]`: the limits on tasks, workers and processes."""

    time_limit_seconds: Positive = DEFAULT_TIME_LIMIT_SECONDS
    drain_seconds: Seconds = 25.0
    boot_seconds: Positive = 60.0
    beat_seconds: Annotated[float, Meta(ge=2)] = 30.0  # at least 2, because a poller sleeps for up to 1 s
    max_tasks: Count = 0  # 0 means no limit
    max_tasks_jitter: Annotated[float, Meta(ge=0, le=1)] = 0.1
    max_rss_mb: Count = 0  # 0 means no limit
    max_payload_kb: Annotated[int, Meta(ge=1)] = DEFAULT_MAX_PAYLOAD_KB
    max_result_kb: Annotated[int, Meta(ge=1)] = DEFAULT_MAX_RESULT_KB
    forget_queue_seconds: Positive = DEFAULT_FORGET_SECONDS


class LeaseConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[lease]`: how long a silent node keeps its tasks, and how often a live node renews its lease."""

    seconds: Annotated[float, Meta(ge=1)] = 20.0
    renew_seconds: Positive = 5.0


class Restarts(Struct, frozen=True, forbid_unknown_fields=True):
    """`[restarts]`: the back-off in a crash loop, and the number of crashes or losses after which a task becomes
    dead.
    """

    backoff_seconds: Positive = 0.1
    backoff_max_seconds: Positive = 30.0
    healthy_seconds: Positive = 60.0
    crash_limit: Annotated[int, Meta(ge=1)] = DEFAULT_CRASH_LIMIT
    loss_limit: Annotated[int, Meta(ge=1)] = DEFAULT_LOSS_LIMIT


class Http(Struct, frozen=True, forbid_unknown_fields=True):
    """`[http]`: the server for metrics, health and the status page."""

    listen: str = "127.0.0.1:9477"  # "" turns the server off, and port 0 picks a free port
    allowed_hosts: tuple[str, ...] = ()  # additional host names that requests may use
    token_file: str = ""  # the file with the token that each request must contain
    read_token_file: str = ""  # the file with a token that admits only read requests
    tls_cert: str = ""
    tls_key: str = ""
    actions: bool = False  # whether the status page may change the fleet


class Metrics(Struct, frozen=True, forbid_unknown_fields=True):
    """`[metrics]`: the default lag objective of queues, and the limits on the number of series."""

    lag_objective_seconds: Positive = 30.0
    lag_target: Share = 0.99
    cluster: Literal["auto", "always", "never"] = "auto"
    max_series: Annotated[int, Meta(ge=1)] = 20_000
    top_queues: Annotated[int, Meta(ge=0, le=500)] = 20


class Control(Struct, frozen=True, forbid_unknown_fields=True):
    """`[control]`: the files through which commands and other masters find this master."""

    socket: str = ""  # "" stands for the default path
    pid_file: str = ""  # "" means no pid file


class Log(Struct, frozen=True, forbid_unknown_fields=True):
    """`[log]`: which lines are logged, and in which format."""

    level: Level = _LOG.level
    format: Format = _LOG.format
    tasks: TaskLines = _LOG.tasks
    capture_output: bool = _LOG.capture_output


class Events(Struct, frozen=True, forbid_unknown_fields=True):
    """`[events]`: the optional stream of task events. One call of a script writes up to 1,000 events."""

    enabled: bool = False
    max_length: Annotated[int, Meta(ge=1000, le=100_000_000)] = 100_000


class EndedConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[ended]`: how many ended tasks are remembered."""

    # The number of ended tasks whose outcomes the fleet remembers, or 0 to remember none
    keep: Annotated[int, Meta(ge=0, le=MOST_ENDED_KEEP)] = DEFAULT_ENDED_KEEP


class ScalingConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[scaling]`: the limits that apply to all pools with a range together, on each node."""

    budget: Count = 0  # the maximum number of workers on a node; 0 means no limit
    # If more than this share of the node's processor time is in use, no pool grows; 1 turns this limit off
    max_cpu: Annotated[float, Meta(gt=0, le=1)] = 0.95


class Alerts(Struct, frozen=True, forbid_unknown_fields=True):
    """`[alerts]`: how long a queue may be closed to claims before an alert fires."""

    forgotten_seconds: Positive = 86_400.0


class SigningConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[signing]`: the keys with which tasks are signed and verified."""

    keys: dict[str, str] = field(default_factory=dict)  # by key name: `file:PATH` or `env:NAME`, the source of the key
    sign_with: str = ""  # the name of the key with which tasks are signed
    required: bool = False  # whether unsigned tasks become dead instead of being run


class DeadConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """`[dead]`: how long dead tasks are kept, and how many of them."""

    max_age_seconds: Positive = 7_776_000.0
    max_count: Annotated[int, Meta(ge=1)] = 100_000


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of `rota.toml`. Only one of `workers` and `pools` can be set: see `resolution.resolve_pools`."""

    namespace: str = DEFAULT_NAMESPACE
    redis_url: str = DEFAULT_REDIS_URL
    redis_url_file: str = ""
    redis_tls_ca: str = ""
    redis_tls_cert: str = ""
    redis_tls_key: str = ""
    redis_credentials: str = ""
    imports: tuple[str, ...] = ()
    workers: Count | RangeText | None = None
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
    scaling: ScalingConfig = ScalingConfig()
    signing: SigningConfig = field(default_factory=SigningConfig)
