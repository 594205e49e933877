"""The definitions of all metrics of Rota: name, type, help, labels, buckets, and the processes that compute the metric.
Names are public.

A process counts with a `recorder.Recorder` in its own slot. The exporter reads all slots, and queries Redis about the
queues. Each kind of process (`Writer`) computes its own metrics:

* WORKER and POLLER write their definitions into their own slot;
* MASTER writes its definitions, including the fleet's gauges, into slot 0;
* EXPORTER computes the rest at each scrape: from Redis, slot headers, its settings and /proc.

Series whose label values are known in advance exist from the start, with the value 0. Series are never removed, but a
pattern can match any number of queues over time. Therefore all queues of a pattern are counted under the pattern
(`QueueLabels`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, get_args

from rota.protocol.entry import Kind
from rota.protocol.keys import STAR, is_pattern
from rota.protocol.outcome import Outcome

OTHER: Final = "_other"  # the label value of the series that counts everything that has no series of its own
# The kinds for which every queue has series. THROTTLED and RECOVERED are missing, because most queues never have such
# tasks.
KINDS: Final = tuple(kind.label for kind in Kind if kind not in (Kind.THROTTLED, Kind.RECOVERED))
WORKER_STATES: Final = ("booting", "running", "quiet", "draining", "backoff", "fatal")
RESTART_REASONS: Final = (
    *("crash", "signal", "oom", "hung", "timeout", "cancelled"),
    *("max_tasks", "max_rss", "reload", "boot"),
)
CHILD_ROLES: Final = ("exporter", "zygote", "poller", "worker")
RECOVERY_REASONS: Final = ("child_exit", "lease_expired")
RELOAD_RESULTS: Final = ("success", "failure")
OUTCOMES: Final = tuple(outcome.label for outcome in get_args(Outcome))
# When the first of these series is created, the others are created with the value 0, so that `increase()` in Prometheus
# counts even the first event of each.
OCCURRENCE_OUTCOMES: Final = ("enqueued", "missed", "skipped")
LAG_BUCKETS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
    2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
)  # fmt: skip
# Labels whose values are not known in advance. A metric without such a label has a fixed number of series.
OPEN_LABELS: Final = frozenset({"queue", "task", "schedule", "source"})


class QueueLabels:
    """Determines the value of the label `queue` from the names and patterns in the tiers. It is the queue's name if the
    tiers list it, and otherwise the longest pattern that matches it. The result is the same as that of
    `rota.protocol.keys.served_as`, but this class is fast enough to be called for every task."""

    def __init__(self, served: Iterable[str] = ()) -> None:
        names = frozenset(served)
        patterns = sorted(filter(is_pattern, names), key=len, reverse=True)
        self._beginnings = tuple((pattern.removesuffix(STAR), pattern) for pattern in patterns)
        self._names = names
        self.of: Callable[[str], str] = self._of if patterns else str
        """Return the label of a queue. Without patterns, this is `str` and not a Python function, because it is called
        for each task."""

    def _of(self, queue: str) -> str:
        for beginning, pattern in self._beginnings:
            if queue.startswith(beginning) and queue not in self._names:
                return pattern
        return queue


class Writer(StrEnum):
    """A kind of process that computes metrics."""

    MASTER = "master"
    WORKER = "worker"
    POLLER = "poller"
    EXPORTER = "exporter"


@dataclass(frozen=True, slots=True)
class Definition:
    """The base class of the definitions of metrics. `writers` lists the kinds of processes that compute the metric."""

    name: str
    help: str
    labels: tuple[str, ...]
    writers: tuple[Writer, ...]

    @property
    def numbers(self) -> int:
        """The number of values in a record of this metric."""
        return 1

    @property
    def is_open(self) -> bool:
        """Whether the metric has a label that can have any number of values, such as `task`, so that its number of
        series is not limited.
        """
        return not OPEN_LABELS.isdisjoint(self.labels)

    @property
    def is_of_tasks(self) -> bool:
        """Whether the metric has a series for each task of a queue."""
        return self.labels[:2] == ("queue", "task")

    def as_other(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return the labels with `_other` in place of each open label, or of all labels if none is open."""
        return tuple(
            OTHER if name in OPEN_LABELS or not self.is_open else value
            for name, value in zip(self.labels, labels, strict=True)
        )

    def tasks_as_other(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return the labels with `_other` in place of the task, if the metric has a series for each task."""
        return (labels[0], OTHER, *labels[2:]) if self.is_of_tasks else labels


@dataclass(frozen=True, slots=True)
class CounterDefinition(Definition):
    """A metric that only increases, even across restarts. The values of all slots are added."""


@dataclass(frozen=True, slots=True)
class GaugeDefinition(Definition):
    """A metric that increases and decreases. Its value counts only while the process that set it is alive. The values
    of living processes are added, or, with `takes_highest`, the highest value is shown."""

    takes_highest: bool = False


@dataclass(frozen=True, slots=True)
class PeakDefinition(Definition):
    """A metric that shows the highest value that any process observed in about the last minute, or 0 if there was none.
    It is exported as a gauge.

    A record has two pairs of numbers, used alternately for the half minutes of CLOCK_BOOTTIME. A pair has the number of
    its half minute, and the highest value in that half minute. The peak is therefore correct even if it is rarely read,
    and even after the process has died.
    """

    @property
    def numbers(self) -> int:
        return 4


@dataclass(frozen=True, slots=True)
class HistogramDefinition(Definition):
    """A metric that counts observations in `buckets`, which are upper bounds in ascending order. The counts of all
    slots are added."""

    buckets: tuple[float, ...] = LAG_BUCKETS

    @property
    def numbers(self) -> int:
        """The number of values in a record of this metric: one for each bucket, one for values above the last bucket,
        and the sum."""
        return len(self.buckets) + 2


RUNTIME_BUCKETS: Final = (
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0,
)  # fmt: skip
COMMAND_BUCKETS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)

_Writers = tuple[Writer, ...]
_WORKER = (Writer.WORKER,)
_POLLER = (Writer.POLLER,)
_MASTER = (Writer.MASTER,)
_EXPORTER = (Writer.EXPORTER,)
_ALL_WITH_REDIS = (Writer.MASTER, Writer.WORKER, Writer.POLLER)


def _counter(name: str, writers: _Writers, text: str, labels: str = "") -> CounterDefinition:
    return CounterDefinition(name, text, tuple(labels.split()), writers)


def _gauge(name: str, writers: _Writers, text: str, labels: str = "", *, highest: bool = False) -> GaugeDefinition:
    return GaugeDefinition(name, text, tuple(labels.split()), writers, highest)


def _histogram(
    name: str, writers: _Writers, text: str, labels: str, buckets: tuple[float, ...] = LAG_BUCKETS
) -> HistogramDefinition:
    return HistogramDefinition(name, text, tuple(labels.split()), writers, buckets)


# Lags, all by Redis time. The `due` time of an immediate task is its enqueue time.

TASK_LAG = _histogram("rota_task_lag_seconds", _WORKER, "Start time of a task minus its due time.", "queue kind")
TASK_STARTS = _counter(
    "rota_task_starts_total",
    _EXPORTER,
    "Number of task starts: the count of rota_task_lag_seconds, but exported as 0 before the first start.",
    "queue kind",
)
TASK_LAG_OBJECTIVE_MISSES = _counter(
    "rota_task_lag_objective_misses_total",
    _WORKER,
    "Starts that missed the lag objective of their queue.",
    "queue kind",
)
TASK_LAG_WORST = PeakDefinition(
    "rota_task_lag_worst_seconds",
    "The highest lag of all starts in about the last minute, or 0 if no task started. Throttled tasks are excluded.",
    ("queue",),
    _WORKER,
)
PROMOTION_LAG = _histogram(
    "rota_promotion_lag_seconds",
    _WORKER,
    "Time from when a task was due until it was ready, for tasks that waited for their due time. Pollers cause this "
    "part of the lag.",
    "queue",
)
QUEUE_WAIT = _histogram(
    "rota_queue_wait_seconds",
    _WORKER,
    "Time from when a task was ready until it started. Workers cause this part of the lag.",
    "queue kind",
)
TASK_EARLY_STARTS = _counter(
    "rota_task_early_starts_total", _WORKER, "Tasks that started before they were due. This should be 0.", "queue"
)
QUEUE_LAG_OBJECTIVE = _gauge("rota_queue_lag_objective_seconds", _EXPORTER, "The configured lag objective.", "queue")
QUEUE_LAG_TARGET = _gauge(
    "rota_queue_lag_target_ratio", _EXPORTER, "The share of starts that must meet the lag objective.", "queue"
)
REDIS_CLOCK_OFFSET = _gauge("rota_redis_clock_offset_seconds", _EXPORTER, "Redis time minus this machine's wall clock.")

# Queues, as they are in Redis at the time of the scrape. Absent while Redis cannot be reached.

QUEUE_READY = _gauge("rota_queue_ready_tasks", _EXPORTER, "Tasks in both lanes.", "queue")
QUEUE_SCHEDULED = _gauge("rota_queue_scheduled_tasks", _EXPORTER, "Tasks that wait for their due time.", "queue")
QUEUE_OVERDUE = _gauge("rota_queue_overdue_tasks", _EXPORTER, "Scheduled tasks whose due time has passed.", "queue")
QUEUE_INFLIGHT = _gauge("rota_queue_inflight_tasks", _EXPORTER, "Tasks that are claimed but not yet settled.", "queue")
QUEUE_DEAD = _gauge("rota_queue_dead_tasks", _EXPORTER, "Dead tasks that are kept.", "queue")
QUEUE_OLDEST_READY_AGE = _gauge(
    "rota_queue_oldest_ready_age_seconds", _EXPORTER, "Time since the oldest ready task became ready.", "queue"
)
QUEUE_OLDEST_OVERDUE_AGE = _gauge(
    "rota_queue_oldest_overdue_age_seconds", _EXPORTER, "Time since the oldest overdue task became due.", "queue"
)
QUEUE_OLDEST_RUNNING_AGE = _gauge(
    "rota_queue_oldest_running_age_seconds",
    _EXPORTER,
    "Time since the oldest running task of this node started, or 0 if no task is running.",
    "queue",
)
QUEUE_PAUSED = _gauge("rota_queue_paused", _EXPORTER, "1 while the queue is paused.", "queue")
QUEUE_CLOSED = _gauge(
    "rota_queue_closed",
    _EXPORTER,
    "1 while the condition of the queue keeps it closed. For a pattern, 1 while one of its largest queues is closed.",
    "queue",
)
QUEUE_CLOSED_AGE = _gauge(
    "rota_queue_closed_age_seconds",
    _EXPORTER,
    "How long the queue has been paused, or its condition has kept tasks waiting, or 0 if neither is the case.",
    "queue",
)
CONDITION_ERRORS = _counter(
    "rota_condition_errors_total",
    _MASTER,
    "Failed evaluations of the queue's condition, which keep it closed. A master evaluates it when it renews leases.",
    "queue",
)
QUIET_AGE = _gauge("rota_quiet_age_seconds", _MASTER, "How long this node has been quiet, or 0 if it is not quiet.")
FORGOTTEN_AFTER = _gauge(
    "rota_forgotten_after_seconds", _EXPORTER, "Time after which a closed queue or a quiet node counts as forgotten."
)
QUEUE_WEIGHT = _gauge("rota_queue_weight", _EXPORTER, "The configured weight of the queue in its tier.", "queue")
QUEUE_SERVED = _gauge("rota_queue_served", _EXPORTER, "1 while a master or a consumer serves the queue.", "queue")
QUEUE_PATTERN = _gauge(
    "rota_queue_pattern",
    _EXPORTER,
    "1 for each queue of a pattern that is shown by name, and for _other. Its tasks are counted under the pattern.",
    "queue pattern",
)
QUEUE_STATES_AGE = _gauge(
    "rota_queue_states_age_seconds",
    _EXPORTER,
    "The age of the queue gauges: the time since their values were read from Redis, or since the last successful "
    "reading. Absent if `cluster` under [metrics] turns the reading off on this node.",
)
CONSUMERS = _gauge("rota_consumers", _EXPORTER, "Consumers in the whole fleet.")
CONSUMER_HELD_TASKS = _gauge("rota_consumer_held_tasks", _EXPORTER, "Tasks that consumers hold.")
GROUPS_OPEN = _gauge("rota_groups_open", _EXPORTER, "Groups in the whole fleet that have not ended.")
GROUPS_ENDED = _counter(
    "rota_groups_ended_total",
    _EXPORTER,
    "Groups that ended in the whole fleet, by outcome: then, on_dead, nothing or cancelled.",
    "outcome",
)
TASKS_ENQUEUED = _counter("rota_tasks_enqueued_total", _EXPORTER, "Tasks accepted by the whole fleet.", "queue")

# Tasks.

TASK_RUNTIME = _histogram(
    "rota_task_runtime_seconds",
    _WORKER,
    "How long the task's function ran, measured by the monotonic clock. A run that was killed, for example at the hard "
    "time limit, is not counted.",
    "queue task",
    RUNTIME_BUCKETS,
)
TASKS_PROCESSED = _counter(
    "rota_tasks_processed_total",
    (Writer.WORKER, Writer.MASTER),
    f"Attempts that have ended, by outcome: {', '.join(OUTCOMES[:-1])} or {OUTCOMES[-1]}.",
    "queue task outcome",
)
TASK_RETRIES = _counter(
    "rota_task_retries_total",
    (Writer.WORKER, Writer.MASTER),
    "Attempts that failed and will be retried.",
    "queue task",
)
TASKS_DEAD = _counter(
    "rota_tasks_dead_total",
    (Writer.WORKER, Writer.MASTER, Writer.POLLER),
    "Tasks that became dead, by reason.",
    "queue task reason",
)
TASKS_THROTTLED = _counter(
    "rota_tasks_throttled_total", _WORKER, "Starts that were postponed by the rate of the task.", "queue task"
)
TASKS_RECOVERED = _counter(
    "rota_tasks_recovered_total",
    (Writer.MASTER, Writer.POLLER),
    "Entries returned to their lane after their owner died, by the master (child_exit) or a poller (lease_expired).",
    "queue reason",
)
CLAIMS = _counter("rota_claims_total", _WORKER, "Entries claimed by workers.", "queue")
CLAIMS_EMPTY = _counter("rota_claims_empty_total", _WORKER, "Turns in which a worker requested tasks and got none.")
CLAIMS_REFUSED = _counter(
    "rota_claims_refused_total", _WORKER, "Turns that were refused because their owner was no longer registered."
)

# The fleet.

WORKERS = _gauge("rota_workers", _MASTER, "Workers by state.", "pool state")
WORKERS_DESIRED = _gauge("rota_workers_desired", _MASTER, "Desired workers.", "pool")
FLEET_WORKERS_WANTED = _gauge(
    "rota_fleet_workers_wanted",
    _MASTER,
    "Workers that a pool with a range needs in the whole fleet. This may be more than its nodes are allowed to run. "
    "Exported by the node that leads the pool.",
    "pool",
)
POOL_WORKERS = _gauge(
    "rota_pool_workers",
    _MASTER,
    "Workers of a pool with a range on this node: how many are wanted, how many there are, and the limits of the "
    "range, min and max.",
    "pool count",
)
SCALING_LIMITED = _gauge(
    "rota_scaling_limited", _MASTER, "1 while the labelled cause keeps a pool with a range from growing.", "pool cause"
)
STARTS_HELD = _gauge(
    "rota_starts_held",
    _EXPORTER,
    "1 while a back-off or a fatal error delays the start of processes. Only workers have a value in the label pool.",
    "role pool",
)
WORKERS_BUSY = _gauge("rota_workers_busy", _WORKER, "Running tasks, as reported by each worker.", "pool")
WORKER_CONCURRENCY = _gauge(
    "rota_worker_concurrency", _WORKER, "Number of tasks that all workers of the pool together may run at once.", "pool"
)
WORKER_LOOP_BLOCKED = _counter(
    "rota_worker_loop_blocked_seconds_total",
    _WORKER,
    "Time spent in coroutine steps of more than 0.1 s, during which no other task of the same worker could run.",
    "queue task",
)
WORKER_BUSY_SECONDS = _counter("rota_worker_busy_seconds_total", _WORKER, "Time spent in task functions.", "pool")
PROCESS_RESTARTS = _counter(
    "rota_process_restarts_total", _MASTER, "Child processes that were replaced, by role and reason.", "role reason"
)
PROCESS_RESIDENT_MEMORY = _gauge(
    "rota_process_resident_memory_bytes", _EXPORTER, "Resident memory of the process, with shared pages.", "role slot"
)
PROCESS_CPU = _counter(
    "rota_process_cpu_seconds_total",
    (Writer.MASTER, Writer.EXPORTER),
    "User and system CPU time of the current process of the slot, plus that of its earlier processes.",
    "role slot",
)
PROCESS_OPEN_FDS = _gauge("rota_process_open_fds", _EXPORTER, "Open file descriptors.", "role slot")
HEARTBEAT_AGE = _gauge(
    "rota_heartbeat_age_seconds",
    _EXPORTER,
    "Time since the last heartbeat. While a worker without concurrency runs a task, only the task can send heartbeats.",
    "role slot",
)
POLLER_PROMOTED = _counter("rota_poller_promoted_total", _POLLER, "Due tasks moved to their lane.", "queue")
POLLER_LAST_SUCCESS = _gauge(
    "rota_poller_last_success_timestamp_seconds",
    _POLLER,
    "Unix time of the poller's last complete round.",
    "slot",
    highest=True,
)
SCHEDULE_OCCURRENCES = _counter(
    "rota_schedule_occurrences_total",
    _POLLER,
    "Occurrences of schedules, by outcome: enqueued, missed, or skipped because an earlier occurrence had not ended.",
    "schedule outcome",
)
DOORBELL_RESCUES = _counter(
    "rota_doorbell_rescues_total", _POLLER, "Doorbells that the sweep rang for entries that no token had announced."
)
INFLIGHT_ORPHANS = _gauge(
    "rota_inflight_orphans",
    _POLLER,
    "In-flight lists without a registered owner at the last scan. This should be 0.",
    highest=True,
)
ADOPTED = _counter("rota_adopted_total", _POLLER, "Items of a legacy list that became tasks.", "source")
ADOPT_WAITING = _gauge("rota_adopt_waiting_items", _POLLER, "Items in a legacy list.", "source", highest=True)
ADOPT_ERRORS = _counter(
    "rota_adopt_errors_total", _POLLER, "Failed attempts to adopt items of a legacy list.", "source"
)
LEASES_LOST = _counter(
    "rota_leases_lost_total", _MASTER, "Owners of this node whose lease was lost while they were alive."
)

# Configuration and Redis.

CONFIG_LAST_RELOAD_SUCCESSFUL = _gauge(
    "rota_config_last_reload_successful", _MASTER, "1 if the last configuration reload was accepted, 0 if rejected."
)
CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP = _gauge(
    "rota_config_last_reload_success_timestamp_seconds", _MASTER, "Unix time of the last accepted configuration reload."
)
CONFIG_RELOADS = _counter("rota_config_reloads_total", _MASTER, "Reloads by result: success or failure.", "result")
REDIS_UP = _gauge("rota_redis_up", _MASTER, "1 while the master reaches Redis.")
REDIS_ROUND_TRIP = _gauge(
    "rota_redis_round_trip_seconds",
    _MASTER,
    "How long the master waits for Redis: the shortest wait for its last six commands. Absent if Redis is unreachable.",
)
REDIS_EVICTS_KEYS = _gauge(
    "rota_redis_evicts_keys",
    _MASTER,
    "1 while Redis is configured to evict keys when its memory is full. This should be 0.",
)
REDIS_ERRORS = _counter("rota_redis_errors_total", _ALL_WITH_REDIS, "Calls to Redis that failed, by reason.", "reason")
REDIS_COMMAND = _histogram(
    "rota_redis_command_seconds",
    _ALL_WITH_REDIS,
    "Duration of the round trips to Redis for which the process waited.",
    "command",
    COMMAND_BUCKETS,
)
AUDIT_MISSING = _gauge(
    "rota_audit_missing_tasks", _EXPORTER, "Accepted tasks that the counters cannot account for. This should be 0."
)
AUDIT_UNPLACED = _gauge(
    "rota_audit_unplaced_tasks",
    _POLLER,
    "Live tasks that were in no lane or list at the last scan. Exported by the node whose poller scans the fleet. This "
    "should be 0.",
    highest=True,
)

# The telemetry itself.

BUILD_INFO = _gauge(
    "rota_build_info", _EXPORTER, "Always 1. The labels are the versions of Rota and the protocol.", "version protocol"
)
START_TIME = _gauge("rota_start_time_seconds", _MASTER, "Unix time at which the master started.")
COLLECT_SECONDS = _gauge(
    "rota_metrics_collect_seconds", _EXPORTER, "How long the exporter took to collect and write this response."
)
SERIES_DROPPED = _counter(
    "rota_metrics_series_dropped_total",
    tuple(Writer),
    'How often a queue, a task or another label set exceeded the limit of series and was counted as "_other".',
)
QUEUES_SHOWN = _gauge("rota_metrics_queues_shown", _EXPORTER, "Configured queues that have their own series.")
QUEUES_FOLDED = _gauge(
    "rota_metrics_queues_folded",
    _EXPORTER,
    'Configured queues whose series would exceed metrics.max_series, and are therefore merged into one, "_other".',
)
LOG_LINES_TRUNCATED = _counter("rota_log_lines_truncated_total", _ALL_WITH_REDIS, "Log lines cut to 4,096 bytes.")
LOG_LINES_DROPPED = _counter(
    "rota_log_lines_dropped_total", _ALL_WITH_REDIS, "Log lines lost because they could not be written at once."
)
LOG_LINES_FAILED = _counter(
    "rota_log_lines_failed_total",
    _ALL_WITH_REDIS,
    "Lost log lines whose write failed, for example on a full disk. For the other lost lines, the reader was too slow.",
)

ALL: Final = tuple(value for value in globals().values() if isinstance(value, Definition))
BY_NAME: Final = {definition.name: definition for definition in ALL}
