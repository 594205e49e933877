"""Every metric of Rota: name, type, help, labels, buckets, and which process computes it. Names are public.

`docs/metrics.md` carries the same table, compared with this module by a test. A process counts with a
`recorder.Recorder` over its own slot; the exporter reads all slots and asks Redis for the queues:

* WORKER and POLLER write the definitions marked so into their own slot;
* MASTER writes its own into slot 0, the fleet's gauges among them;
* EXPORTER computes the rest at each scrape (from Redis, slot headers, its settings and /proc). Nobody
  records those.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rota.protocol.entry import Kind

LAG_BUCKETS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
    2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
)  # fmt: skip
RUNTIME_BUCKETS: Final = (
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0,
)  # fmt: skip
COMMAND_BUCKETS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)

OTHER: Final = "_other"  # the value of every label of a series that found no room

# Label values that are sets fixed in advance. `queue`, `task`, `pool` and `slot` are bounded by the configuration.
KINDS: Final = tuple(kind.label for kind in Kind)
WORKER_STATES: Final = ("booting", "running", "quiet", "draining", "backoff", "fatal")
RESTART_REASONS: Final = ("crash", "signal", "oom", "hung", "timeout", "max_tasks", "max_rss", "reload", "boot")
CHILD_ROLES: Final = ("exporter", "zygote", "poller", "worker")
RECOVERY_REASONS: Final = ("child_exit", "lease_expired")
RELOAD_RESULTS: Final = ("success", "failure")


class Writer(StrEnum):
    """The process that computes a metric."""

    MASTER = "master"
    WORKER = "worker"
    POLLER = "poller"
    EXPORTER = "exporter"


class Merge(StrEnum):
    """How the gauges of several living slots become one value."""

    SUM = "sum"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Definition:
    """What all metrics have in common. `writers` are the processes that compute it."""

    name: str
    help: str
    labels: tuple[str, ...]
    writers: tuple[Writer, ...]

    @property
    def numbers(self) -> int:
        """How many numbers a record of this metric holds."""
        return 1


@dataclass(frozen=True, slots=True)
class CounterDefinition(Definition):
    """Only grows, through restarts too. Slots are summed."""


@dataclass(frozen=True, slots=True)
class GaugeDefinition(Definition):
    """Goes up and down. Counts only while the process that set it lives."""

    merge: Merge = Merge.SUM


@dataclass(frozen=True, slots=True)
class HistogramDefinition(Definition):
    """Counts observations in `buckets`, upper bounds in ascending order. Slots are summed."""

    buckets: tuple[float, ...] = LAG_BUCKETS

    @property
    def numbers(self) -> int:
        """One number a bucket, one for what is above the last, and the sum."""
        return len(self.buckets) + 2


_WORKER = (Writer.WORKER,)
_POLLER = (Writer.POLLER,)
_MASTER = (Writer.MASTER,)
_EXPORTER = (Writer.EXPORTER,)
_ALL_WITH_REDIS = (Writer.MASTER, Writer.WORKER, Writer.POLLER)

# How late. All by Redis time; `due` of an immediate task is its enqueue time.

TASK_LAG: Final = HistogramDefinition(
    "rota_task_lag_seconds", "Start of a task minus the time it was due.", ("queue", "kind"), _WORKER
)
TASK_LAG_OBJECTIVE_MISSES: Final = CounterDefinition(
    "rota_task_lag_objective_misses_total",
    "Starts later than the lag objective of their queue.",
    ("queue", "kind"),
    _WORKER,
)
PROMOTION_LAG: Final = HistogramDefinition(
    "rota_promotion_lag_seconds",
    "From due to ready, of tasks that waited for a due time: the pollers' part of the lag.",
    ("queue",),
    _WORKER,
)
QUEUE_WAIT: Final = HistogramDefinition(
    "rota_queue_wait_seconds", "From ready to start: the workers' part of the lag.", ("queue", "kind"), _WORKER
)
TASK_EARLY_STARTS: Final = CounterDefinition(
    "rota_task_early_starts_total", "Starts before the task was due. Expected 0.", ("queue",), _WORKER
)
QUEUE_LAG_OBJECTIVE: Final = GaugeDefinition(
    "rota_queue_lag_objective_seconds", "The configured lag objective.", ("queue",), _EXPORTER
)
QUEUE_LAG_TARGET: Final = GaugeDefinition(
    "rota_queue_lag_target_ratio", "The share of starts that must meet the lag objective.", ("queue",), _EXPORTER
)
REDIS_CLOCK_OFFSET: Final = GaugeDefinition(
    "rota_redis_clock_offset_seconds", "Redis time minus this machine's wall clock.", (), _EXPORTER
)

# Queues, as Redis has them at the scrape. Absent while Redis is away.

QUEUE_READY: Final = GaugeDefinition("rota_queue_ready_tasks", "Tasks in both lanes.", ("queue",), _EXPORTER)
QUEUE_SCHEDULED: Final = GaugeDefinition(
    "rota_queue_scheduled_tasks", "Tasks that wait for their due time.", ("queue",), _EXPORTER
)
QUEUE_OVERDUE: Final = GaugeDefinition(
    "rota_queue_overdue_tasks", "Scheduled tasks whose due time has passed.", ("queue",), _EXPORTER
)
QUEUE_INFLIGHT: Final = GaugeDefinition(
    "rota_queue_inflight_tasks", "Tasks claimed and not settled.", ("queue",), _EXPORTER
)
QUEUE_DEAD: Final = GaugeDefinition("rota_queue_dead_tasks", "Tasks set aside as dead.", ("queue",), _EXPORTER)
QUEUE_OLDEST_READY_AGE: Final = GaugeDefinition(
    "rota_queue_oldest_ready_age_seconds", "How long the oldest ready task has been ready.", ("queue",), _EXPORTER
)
QUEUE_OLDEST_OVERDUE_AGE: Final = GaugeDefinition(
    "rota_queue_oldest_overdue_age_seconds", "How long the oldest overdue task has been due.", ("queue",), _EXPORTER
)
QUEUE_OLDEST_RUNNING_AGE: Final = GaugeDefinition(
    "rota_queue_oldest_running_age_seconds",
    "How long the task that runs longest on this node has been running, 0 when none runs.",
    ("queue",),
    _EXPORTER,
)
QUEUE_PAUSED: Final = GaugeDefinition("rota_queue_paused", "1 while claims are stopped.", ("queue",), _EXPORTER)
QUEUE_WEIGHT: Final = GaugeDefinition(
    "rota_queue_weight", "The configured share of the queue in its tier.", ("queue",), _EXPORTER
)
QUEUE_SERVED: Final = GaugeDefinition("rota_queue_served", "1 while some master serves it.", ("queue",), _EXPORTER)
TASKS_ENQUEUED: Final = CounterDefinition(
    "rota_tasks_enqueued_total", "Tasks accepted, over the whole fleet.", ("queue",), _EXPORTER
)

# Tasks.

TASK_RUNTIME: Final = HistogramDefinition(
    "rota_task_runtime_seconds",
    "How long the task's function ran, by the monotonic clock.",
    ("queue", "task"),
    _WORKER,
    RUNTIME_BUCKETS,
)
TASKS_PROCESSED: Final = CounterDefinition(
    "rota_tasks_processed_total",
    "Attempts ended: done, retry, dead, released, cancelled or expired.",
    ("queue", "task", "outcome"),
    (Writer.WORKER, Writer.MASTER),
)
TASK_RETRIES: Final = CounterDefinition(
    "rota_task_retries_total", "Attempts that failed and will be repeated.", ("queue", "task"), _WORKER
)
TASKS_DEAD: Final = CounterDefinition(
    "rota_tasks_dead_total",
    "Tasks set aside as dead.",
    ("queue", "task", "reason"),
    (Writer.WORKER, Writer.MASTER, Writer.POLLER),
)
TASKS_RECOVERED: Final = CounterDefinition(
    "rota_tasks_recovered_total",
    "Entries given back to their lane for an owner that died: child_exit by the master, lease_expired by a poller.",
    ("queue", "reason"),
    (Writer.MASTER, Writer.POLLER),
)
CLAIMS: Final = CounterDefinition("rota_claims_total", "Entries claimed.", ("queue",), _WORKER)
CLAIMS_EMPTY: Final = CounterDefinition(
    "rota_claims_empty_total", "Turns that asked for work and got none.", (), _WORKER
)
CLAIMS_REFUSED: Final = CounterDefinition(
    "rota_claims_refused_total", "Turns refused because the owner was no longer registered.", (), _WORKER
)

# The fleet.

WORKERS: Final = GaugeDefinition("rota_workers", "Workers by state.", ("pool", "state"), _MASTER)
WORKERS_DESIRED: Final = GaugeDefinition("rota_workers_desired", "Workers asked for.", ("pool",), _MASTER)
WORKERS_BUSY: Final = GaugeDefinition(
    "rota_workers_busy", "Workers that run a task: each worker sets 1 or 0 for itself.", ("pool",), _WORKER
)
WORKER_BUSY_SECONDS: Final = CounterDefinition(
    "rota_worker_busy_seconds_total", "Time spent in task functions.", ("pool",), _WORKER
)
PROCESS_RESTARTS: Final = CounterDefinition(
    "rota_process_restarts_total", "Children replaced, by role and reason.", ("role", "reason"), _MASTER
)
PROCESS_RESIDENT_MEMORY: Final = GaugeDefinition(
    "rota_process_resident_memory_bytes", "Resident memory, shared pages included.", ("role", "slot"), _EXPORTER
)
PROCESS_CPU: Final = CounterDefinition(
    "rota_process_cpu_seconds_total",
    "User and system time of the processes that lived in the slot, as far as this exporter saw them.",
    ("role", "slot"),
    _EXPORTER,
)
PROCESS_OPEN_FDS: Final = GaugeDefinition(
    "rota_process_open_fds", "Open file descriptors.", ("role", "slot"), _EXPORTER
)
HEARTBEAT_AGE: Final = GaugeDefinition(
    "rota_heartbeat_age_seconds",
    "Since the process last said that it is alive; a worker in a task says so when the task does.",
    ("role", "slot"),
    _EXPORTER,
)
POLLER_PROMOTED: Final = CounterDefinition(
    "rota_poller_promoted_total", "Due tasks moved to their lane.", ("queue",), _POLLER
)
POLLER_LAST_SUCCESS: Final = GaugeDefinition(
    "rota_poller_last_success_timestamp_seconds",
    "Unix time of the poller's last complete round.",
    ("slot",),
    _POLLER,
    Merge.MAX,
)
DOORBELL_RESCUES: Final = CounterDefinition(
    "rota_doorbell_rescues_total", "Doorbells the sweep rang for entries nobody had been told of.", (), _POLLER
)
INFLIGHT_ORPHANS: Final = GaugeDefinition(
    "rota_inflight_orphans",
    "In-flight lists whose owner nobody registered, at the last scan. Expected 0.",
    (),
    _POLLER,
    Merge.MAX,
)
LEASES_LOST: Final = CounterDefinition(
    "rota_leases_lost_total", "Owners of this node whose lease was lost while they lived.", (), _MASTER
)

# Configuration and Redis.

CONFIG_LAST_RELOAD_SUCCESSFUL: Final = GaugeDefinition(
    "rota_config_last_reload_successful", "1 when the last reload was accepted, 0 when rejected.", (), _MASTER
)
CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP: Final = GaugeDefinition(
    "rota_config_last_reload_success_timestamp_seconds", "Unix time of the last reload accepted.", (), _MASTER
)
CONFIG_RELOADS: Final = CounterDefinition(
    "rota_config_reloads_total", "Reloads by result: success or failure.", ("result",), _MASTER
)
REDIS_UP: Final = GaugeDefinition("rota_redis_up", "1 while the master reaches Redis.", (), _MASTER)
REDIS_EVICTS_KEYS: Final = GaugeDefinition(
    "rota_redis_evicts_keys", "1 while Redis is set to drop keys when its memory is full. Expected 0.", (), _MASTER
)
REDIS_ERRORS: Final = CounterDefinition(
    "rota_redis_errors_total", "Calls to Redis that failed, by reason.", ("reason",), _ALL_WITH_REDIS
)
REDIS_COMMAND: Final = HistogramDefinition(
    "rota_redis_command_seconds", "Round trips to Redis.", ("command",), _ALL_WITH_REDIS, COMMAND_BUCKETS
)
AUDIT_MISSING: Final = GaugeDefinition(
    "rota_audit_missing_tasks", "Accepted tasks the books cannot account for. Expected 0.", (), _EXPORTER
)

# About itself.

BUILD_INFO: Final = GaugeDefinition(
    "rota_build_info",
    "1, with the version, the protocol and the namespace.",
    ("version", "protocol", "fleet"),
    _EXPORTER,
)
START_TIME: Final = GaugeDefinition("rota_start_time_seconds", "Unix time of the master's start.", (), _EXPORTER)
COLLECT_SECONDS: Final = GaugeDefinition(
    "rota_metrics_collect_seconds", "How long collecting this answer took.", (), _EXPORTER
)
SERIES_DROPPED: Final = CounterDefinition(
    "rota_metrics_series_dropped_total",
    'Times a label set found no room and was counted under "_other".',
    (),
    (Writer.MASTER, Writer.WORKER, Writer.POLLER, Writer.EXPORTER),
)
LOG_LINES_TRUNCATED: Final = CounterDefinition(
    "rota_log_lines_truncated_total", "Log lines cut to 4,096 bytes.", (), _ALL_WITH_REDIS
)
LOG_LINES_DROPPED: Final = CounterDefinition(
    "rota_log_lines_dropped_total", "Log lines lost because they could not be written at once.", (), _ALL_WITH_REDIS
)


def _definitions() -> Iterable[Definition]:
    return (value for value in globals().values() if isinstance(value, Definition))


ALL: Final[tuple[Definition, ...]] = tuple(_definitions())
BY_NAME: Final = {definition.name: definition for definition in ALL}
