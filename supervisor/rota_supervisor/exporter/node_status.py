"""The contents of `/status.json`: the state of this node and of the fleet, as a dictionary with a row for each process,
queue and node. `docs/status.md` explains each key. The data about this node comes from its slots, and the data about
other nodes from their last heartbeat. A node that stops sending heartbeats is shown as lost for a few minutes, unless
the node was starting or leaving.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import groupby
from operator import add, attrgetter
from typing import Final, NamedTuple

from rota.child.slots import Phase
from rota.durations import utc_datetime
from rota.protocol.entry import MICROSECONDS
from rota.protocol.groups import GroupState
from rota.protocol.keys import is_pattern
from rota.protocol.nodes import Node, NodeReport
from rota.protocol.schedule_store import SchedulePage
from rota.protocol.store import Store
from rota.protocol.views import QueueState
from rota.schedules.schedule_status import rows_of
from rota.telemetry import metrics as m
from rota.telemetry.metrics import OTHER, CounterDefinition, QueueLabels
from rota_supervisor.exporter.exporter_settings import ExporterSettings, QueueSettings
from rota_supervisor.exporter.headlines import headlines
from rota_supervisor.exporter.history import (
    LATE_NOW_SECONDS,
    STEP_SECONDS,
    LateStarts,
    Recent,
    RecentProblems,
    quantile,
)
from rota_supervisor.exporter.observer import Observation, throughput_of
from rota_supervisor.exporter.queue_watch import queue_row, size_of
from rota_supervisor.exporter.redis_thread import CachedResult, RedisThread
from rota_supervisor.exporter.series import Numbers, Samples
from rota_supervisor.fleet_snapshot import (
    LOST,
    MemberTask,
    ObservedTimes,
    WorkerLoad,
    node_report,
    snapshot,
    state_of,
)
from rota_supervisor.layout import Role
from rota_supervisor.master_snapshot import FLEET_STATES, Json

_MAX_DIGITS: Final = 16  # a longer time in an entry is not valid; a task can overwrite its entry with anything
_LEAST_RUNS: Final = 10  # a task needs this many runs before its usual run time is known


def node_status(
    settings: ExporterSettings, seen: Observation, found: Iterable[Node] | None = None, events_after: int = 0
) -> Json:
    """Return the status of the node and the fleet.

    `found`: the nodes of the fleet, or None if they are not known. `events_after`: the number of the last event that
    the client already has; events up to this one are omitted.
    """
    known = TaskHistory(settings, seen)
    members = [member.with_history(known.of) for member in seen.fleet]
    seen_here = snapshot(members, seen.master_snapshot, seen.at, settings.heartbeat_limits)
    status = {
        **seen_here.with_shortages(seen.problems.short_seconds).to_json(),
        "actions": settings.actions,
        "forgotten_after_seconds": settings.forgotten_seconds,
        **_redis(settings, seen),
        **_counted(seen),
        **_problems(seen.problems),
        **_recent(seen),
        "nodes": node_rows(seen, found),
        "tiers": [
            {"number": number, "queues": [queue.name for queue in tier]} for number, tier in tiers_of(settings).items()
        ],
        "queues": queue_rows(settings, seen),
    }
    # The headlines are based on all events, including those that the client already has.
    events = [event for event in status["events"] if event["n"] > events_after]
    return {"headlines": headlines(status), **status, "events": events}


def _redis(settings: ExporterSettings, seen: Observation) -> Json:
    """Return the values that come from Redis. Every value is None if Redis did not reply."""
    reading = seen.reading
    return {
        "redis_asked": settings.reads_redis,
        "queue_states_age_seconds": None if reading is None else seen.samples.value(m.QUEUE_STATES_AGE),
        "clock_offset_seconds": None if reading is None else reading.clock_offset_seconds,
        "missing_tasks": None if reading is None else reading.missing_tasks,
        "schedules": None if reading is None else _schedules(reading.schedules),
        "groups": None if reading is None else list(map(_group, reading.groups.page)),
    }


def _counted(seen: Observation) -> Json:
    """Return the sums of this node's counters, and the problems that its pollers have found in Redis."""
    restarts = sorted(seen.samples.series(m.PROCESS_RESTARTS))
    return {
        "unplaced_tasks": int(seen.samples.value(m.AUDIT_UNPLACED) or 0),
        "orphans": int(seen.samples.value(m.INFLIGHT_ORPHANS) or 0),
        "stray_lists": list(seen.stray_lists),
        "restarts": [{"role": role, "reason": reason, "count": int(n)} for (role, reason), (n,) in restarts if n],
        "recovered": _total(seen, m.TASKS_RECOVERED),
        "early_starts": _total(seen, m.TASK_EARLY_STARTS),
    }


def _recent(seen: Observation) -> Json:
    """Return this node's history over the last few minutes, summed over all queues."""
    recent = seen.recent
    done, started = recent.rates
    ends_at = round(seen.at.wall - (recent.now - recent.noted_at), 3)
    return {
        "history": {"step_seconds": STEP_SECONDS, "ends_at": ends_at, "length": len(recent.steps)},
        "overall": recent.row(),
        "scaled_pools": recent.workers(),
        "lag": {**recent.lag(recent.overall)._asdict(), "late": recent.overall.share_late},
        "rate": {"done_per_second": round(done, 3), "started_per_second": round(started, 3)},
    }


def _problems(recent: RecentProblems) -> Json:
    """Return the problems of the last quarter of an hour."""
    return {
        "adopt_errors": recent.of(m.ADOPT_ERRORS),
        "missed_occurrences": recent.of(m.SCHEDULE_OCCURRENCES),
        "series_dropped": recent.total(m.SERIES_DROPPED),
        "log_lines_dropped": recent.total(m.LOG_LINES_DROPPED),
        "log_lines_failed": recent.total(m.LOG_LINES_FAILED),
    }


def _total(seen: Observation, counter: CounterDefinition) -> int:
    return int(sum(count for _, (count,) in seen.samples.series(counter)))


def _group(found: GroupState) -> Json:
    row = found._asdict()
    del row["ended_us"], row["followed_by"]  # These fields apply only to groups that have ended.
    opened_at = utc_datetime(row.pop("opened_us")).isoformat(timespec="seconds")
    ended = row.pop("ended")
    return {**row, **ended, "state": row.pop("phase"), "opened_at": opened_at}


def _schedules(found: SchedulePage) -> list[Json]:
    return rows_of(found) if found.total else []


_MAY_GO: Final = (FLEET_STATES[Phase.BOOTING], FLEET_STATES[Phase.DRAINING])


def nodes_reader(settings: ExporterSettings, redis: RedisThread | None) -> Callable[[], list[Node] | None]:
    """Return a function that reads all nodes from Redis. It returns None if Redis does not reply, or if this node must
    not query Redis."""
    if redis is None:
        return lambda: None
    query = Store(settings.server.namespace).nodes()
    return CachedResult(redis, lambda run: run(query)).read


def node_rows(seen: Observation, nodes: Iterable[Node] | None) -> list[Json]:
    """Return a row for each node. The first row is for the node of this exporter, unless the exporter runs without a
    master."""
    this = seen.master_snapshot.node
    own = {"node": this, "is_this": True, **own_report(seen)._asdict(), "seen_seconds_ago": 0.0}
    return [*([own] if this else []), *_others(this, nodes or ())]


def _others(this: str, nodes: Iterable[Node]) -> Iterator[Json]:
    for node in sorted(nodes):
        if node.name == this or (not node.is_alive and node.report.state in _MAY_GO):
            continue
        report = node.report if node.is_alive else node.report._replace(state=LOST)
        silent = round(node.silent_seconds, 1)
        yield {"node": node.name, "is_this": False, **report._asdict(), "seen_seconds_ago": silent}


def own_report(seen: Observation) -> NodeReport:
    """Return the report about this node, with the same fields as other nodes publish in Redis."""
    workers = [member for member in seen.fleet if member.role is Role.WORKER]
    loads = [WorkerLoad(len(each.tasks), each.concurrency, each.phase is Phase.QUIET) for each in workers]
    report = node_report(seen.master_snapshot, state_of(seen.fleet), loads)
    return throughput_of(seen.recent, seen.at.now).added_to(report)


class TaskHistory:
    """A lookup that returns the lag of a running task, and the usual run time of tasks with the same name."""

    def __init__(self, settings: ExporterSettings, seen: Observation) -> None:
        self._labels = QueueLabels([queue.name for queue in settings.queues])
        self._seen = seen

    def of(self, running: MemberTask) -> ObservedTimes:
        """Return the lag and the usual run time of a running task."""
        task = running.task
        return ObservedTimes(self._lag(running), self._usual(task.queue, task.name))

    def _lag(self, running: MemberTask) -> float | None:
        """Return the lag of the task by the clock of Redis, or None if that clock or the due time is not known."""
        reading = self._seen.reading
        due = running.task.due
        if reading is None or not due.isdecimal() or len(due) > _MAX_DIGITS:
            return None
        started_at = self._seen.at.wall + reading.clock_offset_seconds - running.age_seconds
        return round(max(0.0, started_at - int(due) / MICROSECONDS), 3)

    def _usual(self, queue: str, name: str) -> float | None:
        """Return the run time that 99 % of the runs of a task did not exceed. If the task has run too rarely, the runs
        of all tasks of the queue are used.
        """
        label = self._labels.of(queue)
        of_task = _longest(self._seen.samples.get(m.TASK_RUNTIME, label, name))
        return _longest(self._runs_of_queues.get(label)) if of_task is None else of_task

    @cached_property
    def _runs_of_queues(self) -> Mapping[str, Numbers]:
        runs: dict[str, Numbers] = {}
        for (queue, _), numbers in self._seen.samples.series(m.TASK_RUNTIME):
            runs[queue] = tuple(map(add, runs[queue], numbers)) if queue in runs else numbers
        return runs


def _longest(numbers: Numbers | None) -> float | None:
    return quantile(m.TASK_RUNTIME, numbers, 0.99) if numbers and sum(numbers[:-1]) >= _LEAST_RUNS else None


def tiers_of(settings: ExporterSettings) -> dict[int, tuple[QueueSettings, ...]]:
    """Return the queues and patterns of each tier, by the number of the tier. The highest tier comes first."""
    return {number: tuple(tier) for number, tier in groupby(settings.queues, key=attrgetter("tier"))}


class TierSums(NamedTuple):
    """The starts and the weights of all queues of a tier, summed up. The share of each queue is computed from these
    sums.
    """

    starts: float
    weights: float | None  # None if the tier has a pattern, because the number of its queues is not known

    @classmethod
    def of(cls, tier: tuple[QueueSettings, ...], recent: Recent) -> "TierSums":
        has_patterns = any(is_pattern(queue.name) for queue in tier)
        weights = None if has_patterns else sum(queue.weight for queue in tier)
        return cls(sum(recent.starts(queue.name).number for queue in tier), weights)


def queue_rows(settings: ExporterSettings, seen: Observation) -> list[Json]:
    """Return a row for each configured queue, and then for each other queue in use.

    The row `_other` sums up the smaller queues of patterns, and the counts for which there was no room.
    """
    states = {} if seen.reading is None else {state.queue: state for state in seen.reading.shown.queues}
    configured = {queue.name: queue for queue in settings.queues}
    tiers = {number: TierSums.of(tier, seen.recent) for number, tier in tiers_of(settings).items()}
    in_use = {name for name, state in states.items() if _is_in_use(state)}
    counted_as_one = {OTHER} & seen.recent.totals.queues.keys()
    others = sorted((in_use | counted_as_one) - configured.keys(), key=lambda name: (name == OTHER, name))
    labels = QueueLabels(configured)
    processed = _processed(seen.samples)
    rows = []
    for name in (*configured, *others):
        label = labels.of(name)
        queue = configured.get(label)
        rows.append(
            {
                **_described(name, label, queue, states.get(name)),
                **_served(name, queue, None if queue is None else tiers[queue.tier], seen.recent),
                **_late(seen, name, queue),
                "processed": dict(processed[name]),
            }
        )
    return rows


def _is_in_use(state: QueueState) -> bool:
    """Whether a queue is served, paused or not empty. Other queues are omitted, because Redis remembers a purged queue
    for a few minutes.
    """
    return state.served or state.paused or state.dead > 0 or size_of(state) > 0


def _processed(samples: Samples) -> Mapping[str, Counter[str]]:
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for (queue, _, outcome), (count,) in samples.series(m.TASKS_PROCESSED):
        found[queue][outcome] += int(count)
    return found


def _described(name: str, label: str, queue: QueueSettings | None, state: QueueState | None) -> Json:
    """Return the settings and the state of a queue.

    If the tasks of the queue are counted under the name of a pattern, the key `pattern` holds this name.
    """
    return {
        "name": name,
        "configured": queue is not None,
        "pattern": None if label == name else label,
        "tier": None if queue is None else queue.tier,
        "weight": None if queue is None else queue.weight,
        "lag_objective_seconds": None if queue is None else queue.lag_objective_seconds,
        "lag_target": None if queue is None else queue.lag_target,
        "state": None if state is None else queue_row(state),
    }


def _late(seen: Observation, name: str, queue: QueueSettings | None) -> Json:
    """Return how late a queue was on this node: the highest lag in about the last minute, and the number of starts that
    missed the objective.
    """
    late = seen.problems.late.get(name, LateStarts())
    too_many = queue is not None and late.number > (1 - queue.lag_target) * seen.recent.starts(name).number
    is_now = too_many and late.until is not None and seen.at.wall - late.until <= LATE_NOW_SECONDS
    return {
        "worst_lag_seconds": seen.samples.value(m.TASK_LAG_WORST, name) or 0.0,
        "late": {
            "now": is_now,
            "too_many": too_many,
            "starts": late.number,
            "worst_seconds": late.worst_seconds,
            "until": late.until,
        },
    }


def _served(name: str, queue: QueueSettings | None, tier: TierSums | None, recent: Recent) -> Json:
    """Return what this node has run from a queue over the last few minutes: the queue's share of its tier, its
    attempts, and its lag.
    """
    starts = recent.starts(name)
    is_own = queue is not None and queue.name == name
    is_counted = is_own or name in recent.totals.queues
    due = None if queue is None or tier is None or tier.weights is None else queue.weight / tier.weights
    return {
        "share": round(starts.number / tier.starts, 4) if is_own and tier and tier.starts else None,
        "due_share": None if due is None else round(due, 4),
        "attempts": {"done": int(starts.done), "failed": int(starts.failed)} if is_counted else None,
        "lag": recent.lag(starts)._asdict() if is_counted else None,
        "history": recent.row(name) if is_counted else None,
    }
