"""The state of the fleet as one plain dictionary: what `/status.json` answers and the status page shows."""

from dataclasses import asdict

from rota.protocol.entry import MICROSECONDS
from rota.protocol.views import QueueState
from rota.telemetry import metrics as m
from rota_supervisor.exporter.fleet import Member
from rota_supervisor.exporter.health import HealthVerdict
from rota_supervisor.exporter.observer import Observation
from rota_supervisor.exporter.samples import Samples
from rota_supervisor.exporter.settings import ExporterSettings, QueueSettings
from rota_supervisor.layout import Role
from rota_supervisor.notice import Json


def status(settings: ExporterSettings, seen: Observation) -> Json:
    """All that people ask first. `redis` is false and each queue's `state` null while Redis is away."""
    states = {} if seen.reading is None else {state.queue: state for state in seen.reading.overview.queues}
    configured = {queue.name: queue for queue in settings.queues}
    names = [*configured, *sorted(states.keys() - configured.keys())]
    return {
        "fleet": settings.server.namespace,
        "ready": verdict(seen.ready),
        "redis": seen.reading is not None,
        "started_at": seen.samples.value(m.START_TIME),
        "missing_tasks": None if seen.reading is None else seen.reading.missing_tasks,
        "pools": _pools(seen),
        "held": list(seen.held),
        "processes": [_process(member) for member in seen.fleet],
        "queues": [_queue(name, configured.get(name), states.get(name), seen) for name in names],
        "restarts": _restarts(seen.samples),
    }


def verdict(of: HealthVerdict) -> Json:
    """A verdict and its checks."""
    checks = [{"name": check.name, "ok": check.ok, "seen": check.seen} for check in of.checks]
    return {"ok": of.ok, "checks": checks}


def _pools(seen: Observation) -> list[Json]:
    desired = {labels[0]: int(numbers[0]) for labels, numbers in seen.samples.series(m.WORKERS_DESIRED)}
    states = {row["pool"]: row["state"] for row in seen.held if row["role"] == Role.WORKER}
    return [
        {
            "name": pool,
            "desired": desired[pool],
            "state": states.get(pool, "running"),
            "workers": _states(seen.samples, pool),
        }
        for pool in sorted(desired)
    ]


def _states(samples: Samples, pool: str) -> dict[str, int]:
    series = samples.series(m.WORKERS)
    return {state: int(numbers[0]) for (of, state), numbers in series if of == pool and numbers[0]}


def _process(member: Member) -> Json:
    task = member.task
    return {
        "slot": member.slot,
        "role": str(member.role),
        "pid": member.pid,
        "phase": member.phase.name.lower(),
        "beat_age_seconds": member.beat_age_seconds,
        "task": None if task is None else {"id": task.id, "name": task.name, "queue": task.queue},
        "task_age_seconds": None if task is None else member.task_age_seconds,
    }


def _queue(name: str, settings: QueueSettings | None, state: QueueState | None, seen: Observation) -> Json:
    lag = seen.lags.get(name)
    return {
        "name": name,
        "configured": settings is not None,
        "lag_objective_seconds": None if settings is None else settings.lag_objective_seconds,
        "state": None if state is None else _state(state),
        "lag": None if lag is None else asdict(lag),
        "processed": _processed(seen.samples, name),
    }


def _state(state: QueueState) -> Json:
    return {
        "ready": state.ready,
        "scheduled": state.scheduled,
        "overdue": state.overdue,
        "inflight": state.inflight,
        "dead": state.dead,
        "accepted": state.accepted,
        "oldest_ready_age_seconds": state.oldest_ready_age_us / MICROSECONDS,
        "oldest_overdue_age_seconds": state.oldest_overdue_age_us / MICROSECONDS,
        "paused": state.paused,
        "served": state.served,
    }


def _processed(samples: Samples, queue: str) -> dict[str, int]:
    totals: dict[str, int] = {}
    for (of, _, outcome), numbers in samples.series(m.TASKS_PROCESSED):
        if of == queue:
            totals[outcome] = totals.get(outcome, 0) + int(numbers[0])
    return totals


def _restarts(samples: Samples) -> list[Json]:
    series = sorted(samples.series(m.PROCESS_RESTARTS))
    return [{"role": role, "reason": reason, "count": int(n[0])} for (role, reason), n in series if n[0]]
