"""The state of the fleet as one plain dictionary, which `/status.json` answers and the page shows."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from rota.durations import utc_datetime
from rota.protocol.groups import GroupState
from rota.protocol.progress import progress_row
from rota.protocol.schedules import Page
from rota.protocol.views import QueueState
from rota.telemetry import metrics as m
from rota.telemetry.label_values import OTHER
from rota.telemetry.queue_labels import QueueLabels
from rota_supervisor.exporter.fleet import Member, MemberTask
from rota_supervisor.exporter.observer import Observation
from rota_supervisor.exporter.queues import queue_row
from rota_supervisor.exporter.settings import ExporterSettings, QueueSettings
from rota_supervisor.notice import Json, states_of_pools

_NO_TASK: Final[Json] = {"task": None, "task_age_seconds": None, "progress": None}


def status(settings: ExporterSettings, seen: Observation) -> Json:
    """Return all that people ask first. `redis` is false and each queue's `state` null while Redis is away."""
    states = {} if seen.reading is None else {state.queue: state for state in seen.reading.shown.queues}
    configured = {queue.name: queue for queue in settings.queues}
    names = [
        *configured,
        *sorted(states.keys() - configured.keys(), key=lambda name: (name == OTHER, name)),
    ]
    labels = QueueLabels(configured)
    restarts = sorted(seen.samples.series(m.PROCESS_RESTARTS))
    return {
        "fleet": settings.server.namespace,
        "ready": seen.ready.row(),
        "redis": seen.reading is not None,
        "started_at": seen.samples.value(m.START_TIME),
        "missing_tasks": None if seen.reading is None else seen.reading.missing_tasks,
        "pools": _pools(seen),
        "held": list(seen.held),
        "processes": [_process(member) for member in seen.fleet],
        "queues": [_queue(name, labels.of(name), configured, states.get(name), seen) for name in names],
        "schedules": None if seen.reading is None else _schedules(seen.reading.schedules),
        "groups": None if seen.reading is None else list(map(_group, seen.reading.groups.page)),
        "restarts": [{"role": role, "reason": reason, "count": int(n)} for (role, reason), (n,) in restarts if n],
    }


def _pools(seen: Observation) -> list[Json]:
    desired = {pool: int(count) for (pool,), (count,) in seen.samples.series(m.WORKERS_DESIRED)}
    workers: dict[str, dict[str, int]] = {pool: {} for pool in desired}
    for (pool, state), (count,) in seen.samples.series(m.WORKERS):
        if pool in workers and count:
            workers[pool][state] = int(count)
    states = states_of_pools(seen.held)
    return [
        {"name": pool, "desired": desired[pool], "state": states[pool], "workers": workers[pool]}
        for pool in sorted(desired)
    ]


def _process(member: Member) -> Json:
    tasks = [_task(running) for running in member.tasks]
    return {
        "slot": member.slot,
        "role": str(member.role),
        "pid": member.pid,
        "phase": member.phase.name.lower(),
        "beat_age_seconds": member.beat_age_seconds,
        **(tasks[0] if tasks else _NO_TASK),
        "tasks": [{"place": running.task.place, **row} for running, row in zip(member.tasks, tasks, strict=True)],
    }


def _task(running: MemberTask) -> Json:
    task = running.task
    return {
        "task": {"id": task.id, "name": task.name, "queue": task.queue},
        "task_age_seconds": running.age_seconds,
        "progress": progress_row(running.progress),
    }


def _queue(
    name: str, label: str, configured: Mapping[str, QueueSettings], state: QueueState | None, seen: Observation
) -> Json:
    """`pattern`: what it is counted as, where that is another name: its lag and what was done of it stand there."""
    lag, settings = seen.lags.get(name), configured.get(label)
    processed: Counter[str] = Counter()
    for (queue, _, outcome), (count,) in seen.samples.series(m.TASKS_PROCESSED):
        if queue == name:
            processed[outcome] += int(count)
    return {
        "name": name,
        "configured": settings is not None,
        "pattern": None if label == name else label,
        "lag_objective_seconds": None if settings is None else settings.lag_objective_seconds,
        "state": None if state is None else queue_row(state),
        "lag": None if lag is None else asdict(lag),
        "processed": dict(processed),
    }


def _group(found: GroupState) -> Json:
    row = found._asdict()
    del row["ended_us"], row["followed_by"]  # of those that have ended
    opened_at = utc_datetime(row.pop("opened_us")).isoformat(timespec="seconds")
    return {**row, "state": row.pop("phase"), "opened_at": opened_at}


def _schedules(found: Page) -> list[Json]:
    if not found.total:
        return []
    from rota.schedules.status import rows_of  # noqa: PLC0415 - a fleet without schedules does without

    return rows_of(found)
