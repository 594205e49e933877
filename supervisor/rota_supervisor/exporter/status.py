"""The state of the fleet as one plain dictionary: what `/status.json` answers. `docs/status.md` explains each key."""

from collections.abc import Iterable

from rota import __version__
from rota.durations import utc_datetime
from rota.protocol.groups import GroupState
from rota.protocol.nodes import Node
from rota.protocol.schedules import Page
from rota.telemetry import metrics as m
from rota.telemetry.definition import CounterDefinition
from rota_supervisor.exporter import nodes
from rota_supervisor.exporter.fleet import held_at
from rota_supervisor.exporter.headlines import headlines
from rota_supervisor.exporter.history import STEP_SECONDS
from rota_supervisor.exporter.observer import Observation
from rota_supervisor.exporter.process_rows import process_rows
from rota_supervisor.exporter.queue_rows import queue_rows, tiers_of
from rota_supervisor.exporter.settings import ExporterSettings
from rota_supervisor.exporter.troubles import RecentTroubles
from rota_supervisor.notice import Json, dated, states_of_pools


def status(
    settings: ExporterSettings, seen: Observation, found: Iterable[Node] | None = None, events_after: int = 0
) -> Json:
    """Return all that people ask first. `found`: the nodes, None when they are not known. `events_after`: the number of
    the last event that is left out."""
    held, reading = held_at(seen.now, seen.notice), seen.reading
    answer = {
        "at": round(seen.at, 3),
        "version": __version__,
        "fleet": settings.server.namespace,
        "node": seen.notice.node,
        "actions": settings.actions,
        "ready": seen.ready.row(),
        "redis": reading is not None,
        "redis_asked": settings.ask_redis,
        "redis_round_trip_seconds": seen.samples.value(m.REDIS_ROUND_TRIP),
        "evicts_keys": seen.samples.value(m.REDIS_EVICTS_KEYS) == 1,
        "queue_states_age_seconds": None if reading is None else seen.samples.value(m.QUEUE_STATES_AGE),
        "clock_offset_seconds": None if reading is None else reading.clock_offset_seconds,
        "started_at": seen.samples.value(m.START_TIME),
        "missing_tasks": None if reading is None else reading.missing_tasks,
        "unplaced_tasks": int(seen.samples.value(m.AUDIT_UNPLACED) or 0),
        "orphans": int(seen.samples.value(m.INFLIGHT_ORPHANS) or 0),
        "stray_lists": list(seen.stray_lists),
        "forgotten_after_seconds": settings.forgotten_seconds,
        **_troubles(seen.troubles),
        "nodes": nodes.rows(seen, found),
        **_told_by_master(seen),
        **_recent(seen),
        "pools": _pools(seen, held),
        "held": list(held),
        "processes": process_rows(settings, seen),
        "tiers": [
            {"number": number, "queues": [queue.name for queue in tier]} for number, tier in tiers_of(settings).items()
        ],
        "queues": queue_rows(settings, seen),
        "schedules": None if reading is None else _schedules(reading.schedules),
        "groups": None if reading is None else list(map(_group, reading.groups.page)),
        "restarts": [
            {"role": role, "reason": reason, "count": int(n)}
            for (role, reason), (n,) in sorted(seen.samples.series(m.PROCESS_RESTARTS))
            if n
        ],
        "recovered": _total(seen, m.TASKS_RECOVERED),
        "early_starts": _total(seen, m.TASK_EARLY_STARTS),
    }
    # Headlines are judged by all that happened, whatever of it is asked for.
    events = [event for event in answer["events"] if event["n"] > events_after]
    return {"headlines": headlines(answer), **answer, "events": events}


def _told_by_master(seen: Observation) -> Json:
    notice, now = seen.notice, seen.now
    return {
        "quiet_seconds": 0.0 if notice.quiet_since is None else round(now - notice.quiet_since, 1),
        "closed": [each.row(now) for each in notice.closed],
        "last_reload": dated(notice.last_reload, now, seen.at),
        "last_death": dated(notice.last_death, now, seen.at),
        "events": [dated(each._asdict(), now, seen.at) for each in notice.events],
    }


def _recent(seen: Observation) -> Json:
    """The last minutes of this node, over all queues."""
    recent = seen.recent
    done, started = recent.rates
    ends_at = round(seen.at - (recent.now - recent.noted_at), 3)
    return {
        "history": {"step_seconds": STEP_SECONDS, "ends_at": ends_at, "length": len(recent.steps)},
        "overall": recent.row(),
        "lag": {**recent.lag(recent.overall).row(), "late": recent.overall.share_late},
        "rate": {"done_per_second": round(done, 3), "started_per_second": round(started, 3)},
    }


def _troubles(recent: RecentTroubles) -> Json:
    """What went wrong in the last quarter of an hour."""
    return {
        "adopt_errors": recent.of(m.ADOPT_ERRORS),
        "missed_occurrences": recent.of(m.SCHEDULE_OCCURRENCES),
        "series_dropped": recent.total(m.SERIES_DROPPED),
        "log_lines_dropped": recent.total(m.LOG_LINES_DROPPED),
        "log_lines_failed": recent.total(m.LOG_LINES_FAILED),
    }


def _total(seen: Observation, counter: CounterDefinition) -> int:
    return int(sum(count for _, (count,) in seen.samples.series(counter)))


def _pools(seen: Observation, held: Iterable[Json]) -> list[Json]:
    desired = {pool: int(count) for (pool,), (count,) in seen.samples.series(m.WORKERS_DESIRED)}
    workers: dict[str, dict[str, int]] = {pool: {} for pool in desired}
    for (pool, state), (count,) in seen.samples.series(m.WORKERS):
        if pool in workers and count:
            workers[pool][state] = int(count)
    states = states_of_pools(held)
    return [
        {
            "name": pool,
            "desired": desired[pool],
            "state": states[pool],
            "workers": workers[pool],
            "short_seconds": round(seen.troubles.short_seconds.get(pool, 0.0), 1),
        }
        for pool in sorted(desired)
    ]


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
