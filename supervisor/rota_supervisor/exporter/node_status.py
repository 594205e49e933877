"""What `/status.json` answers: the state of this node and the fleet as one plain dictionary.

`docs/status.md` explains each key. This node is shown by its slots, others by their last heartbeat. A node that falls
silent is shown as lost for some minutes, unless it was leaving, or had not begun to serve.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from rota.child.slots import Phase
from rota.durations import utc_datetime
from rota.protocol.groups import GroupState
from rota.protocol.nodes import Node, NodeReport
from rota.protocol.schedule_store import Page
from rota.protocol.store import Store
from rota.telemetry import metrics as m
from rota.telemetry.metrics import CounterDefinition
from rota_supervisor.exporter.exporter_settings import ExporterSettings
from rota_supervisor.exporter.headlines import headlines
from rota_supervisor.exporter.history import STEP_SECONDS
from rota_supervisor.exporter.observer import Observation, pace_of
from rota_supervisor.exporter.redis_thread import FreshAnswer, RedisThread
from rota_supervisor.exporter.status_rows import add_to_tasks, queue_rows, tiers_of
from rota_supervisor.exporter.troubles import RecentTroubles
from rota_supervisor.fleet_snapshot import LOST, WorkerLoad, node_report, snapshot, state_of
from rota_supervisor.layout import Role
from rota_supervisor.notice import FLEET_STATES, Json


def node_status(
    settings: ExporterSettings, seen: Observation, found: Iterable[Node] | None = None, events_after: int = 0
) -> Json:
    """Return all that people ask first. `found`: the nodes, None when they are not known. `events_after`: the number of
    the last event that is left out."""
    seen_here = snapshot(seen.fleet, seen.notice, seen.at, settings.patience)
    answer = {
        **seen_here.to_json(),
        "actions": settings.actions,
        "forgotten_after_seconds": settings.forgotten_seconds,
        **_redis(settings, seen),
        **_counted(seen),
        **_troubles(seen.troubles),
        **_recent(seen),
        "nodes": node_rows(seen, found),
        "tiers": [
            {"number": number, "queues": [queue.name for queue in tier]} for number, tier in tiers_of(settings).items()
        ],
        "queues": queue_rows(settings, seen),
    }
    add_to_tasks(answer["processes"], seen_here.processes, settings, seen)
    for pool in answer["pools"]:
        pool["short_seconds"] = round(seen.troubles.short_seconds.get(pool["name"], 0.0), 1)
    # Headlines are judged by all that happened, whatever of it is asked for.
    events = [event for event in answer["events"] if event["n"] > events_after]
    return {"headlines": headlines(answer), **answer, "events": events}


def _redis(settings: ExporterSettings, seen: Observation) -> Json:
    """Return what Redis alone knows: None for what it has not answered."""
    reading = seen.reading
    return {
        "redis_asked": settings.ask_redis,
        "queue_states_age_seconds": None if reading is None else seen.samples.value(m.QUEUE_STATES_AGE),
        "clock_offset_seconds": None if reading is None else reading.clock_offset_seconds,
        "missing_tasks": None if reading is None else reading.missing_tasks,
        "schedules": None if reading is None else _schedules(reading.schedules),
        "groups": None if reading is None else list(map(_group, reading.groups.page)),
    }


def _counted(seen: Observation) -> Json:
    """Return what this node's processes counted, and what its pollers found in Redis."""
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
    """The last minutes of this node, over all queues."""
    recent = seen.recent
    done, started = recent.rates
    ends_at = round(seen.at.wall - (recent.now - recent.noted_at), 3)
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


def _group(found: GroupState) -> Json:
    row = found._asdict()
    del row["ended_us"], row["followed_by"]  # of those that have ended
    opened_at = utc_datetime(row.pop("opened_us")).isoformat(timespec="seconds")
    return {**row, "state": row.pop("phase"), "opened_at": opened_at}


def _schedules(found: Page) -> list[Json]:
    if not found.total:
        return []
    from rota.schedules.schedule_status import rows_of  # noqa: PLC0415 - a fleet without schedules does without

    return rows_of(found)


_MAY_GO: Final = (FLEET_STATES[Phase.BOOTING], FLEET_STATES[Phase.DRAINING])


def nodes_reader(settings: ExporterSettings, redis: RedisThread | None) -> Callable[[], list[Node] | None]:
    """Return what asks for the nodes; None is returned without an answer, and where Redis is not to be asked."""
    if redis is None:
        return lambda: None
    look = Store(settings.server.namespace).nodes()
    return FreshAnswer(redis, lambda run: run(look)).read


def node_rows(seen: Observation, nodes: Iterable[Node] | None) -> list[Json]:
    """Return a row a node, this one first, if it is one."""
    this = seen.notice.node
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
    """Return how this node is."""
    workers = [member for member in seen.fleet if member.role is Role.WORKER]
    loads = [WorkerLoad(len(each.tasks), each.places, each.phase is Phase.QUIET) for each in workers]
    report = node_report(seen.notice, state_of(seen.fleet), loads)
    return pace_of(seen.recent, seen.at.now).added_to(report)
