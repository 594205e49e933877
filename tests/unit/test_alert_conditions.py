"""The status page and `rota top` show each condition that raises an alert. `rota health` shows the conditions
of Redis.
"""

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from rota_supervisor.exporter import history
from rota_supervisor.exporter.headlines import CONDITIONS, NO_PAGE, SKEW_SECONDS, headlines
from rota_supervisor.exporter.queue_headlines import OVERDUE_SECONDS, STALLED_SECONDS
from rota_supervisor.master_snapshot import SLOW_SECONDS, redis_warnings
from rota_supervisor.top import fleet_view
from support.alert_cases import ALERTS
from support.fleet_status import HELD, NOW, POOL, Status, death, event, healthy, late_by, process, queue, task

NOT_TAKEN = {"started": [0] * 60, "done": [0] * 60, "p50": [None] * 60, "p99": [None] * 60}
REDIS_AWAY = {"ok": False, "checks": [{"name": "redis", "ok": False, "seen": "the master does not reach Redis"}]}
SILENT = {
    "ok": False,
    "checks": [{"name": "master_beats", "ok": False, "seen": "last heartbeat 61.0 s ago, limit 3 s"}],
}
REFUSED = {"result": "failure", "faults": ["workers: expected a number"], "at": NOW - 180}
SHORT = POOL | {"desired": 2, "workers": {"running": 1}, "short_seconds": 120.0}


def of_queue(**state: Any) -> Status:
    return {"queues": [queue(objective=300.0, **state) | {"history": NOT_TAKEN}]}


LATE: Status = {"queues": [queue() | late_by(94.0)]}
WAS_LATE: Status = {"queues": [queue() | late_by(94.0, seconds_ago=240.0)]}
# For each alert, a small fleet status for which the alert's expression is true.
WHEN: dict[str, Status] = {
    "RotaLagBurn1h": LATE,
    "RotaLagBurn6h": WAS_LATE,
    "RotaLagBurn1d": WAS_LATE,
    "RotaLagBurn3d": WAS_LATE,
    "RotaQueueStalled": of_queue(ready=1, oldest_ready_age_seconds=61.0),
    "RotaQueueStarved": of_queue(ready=1, inflight=4, oldest_ready_age_seconds=61.0),
    "RotaPollerBehind": of_queue(overdue=1, oldest_overdue_age_seconds=10.5),
    "RotaQueueUnserved": of_queue(served=False, ready=1),
    "RotaQueueForgotten": of_queue(closed_by="hours", closed_age_seconds=3601.0, ready=1),
    "RotaConditionFailed": of_queue(closed_by="hours", condition_error="no such variable"),
    "RotaAdoptFailed": {"adopt_errors": {"old": 1}},
    "RotaScheduleMissed": {"missed_occurrences": {"nightly": 1}},
    "RotaTaskHung": {"processes": [process(8, "worker", task(task_age_seconds=1801.0, usual_seconds=600.0))]},
    "RotaTaskFailing": {"queues": [queue() | {"attempts": {"done": 1, "failed": 9}}]},
    "RotaDeadLetters": of_queue(dead=1),
    "RotaQuietForgotten": {"quiet_seconds": 3601.0},
    "RotaWorkersMissing": {"pools": [SHORT]},
    "RotaWorkerCrashLoop": {"events": [death(seconds) for seconds in (590, 480, 370, 260, 150, 100)]},
    "RotaStartsHeld": {"held": [HELD]},
    "RotaConfigReloadFailed": {"last_reload": REFUSED},
    "RotaMasterSilent": {"ready": SILENT},
    "RotaRedisDown": {
        "ready": REDIS_AWAY,
        "queue_states_age_seconds": None,
        "events": [event("redis.lost", 60, refused=False)],
    },
    "RotaRedisSlow": {"redis_round_trip_seconds": SLOW_SECONDS},
    "RotaQueueStatesMissing": {"queue_states_age_seconds": None},
    "RotaRedisEvictsKeys": {"evicts_keys": True},
    "RotaNodeLost": {"nodes": [{"node": "b", "state": "lost", "seen_seconds_ago": 34.0}]},
    "RotaTasksMissing": {"missing_tasks": -1},
    "RotaTasksUnplaced": {"unplaced_tasks": 1},
    "RotaOrphans": {"orphans": 1},
    "RotaClockSkew": {"clock_offset_seconds": -1.1},
    "RotaSeriesDropped": {"series_dropped": 1},
    "RotaLogLinesDropped": {"log_lines_dropped": 1},
}
RULE_OF: dict[str, Callable[[Any], Any]] = {alert: each.rule for each in CONDITIONS for alert in each.alerts}


def test_each_alert_is_assigned_to_one_condition_or_marked_as_not_shown() -> None:
    named = Counter(alert for each in CONDITIONS for alert in each.alerts) + Counter(NO_PAGE)
    assert named == Counter(ALERTS.keys())
    assert WHEN.keys() == ALERTS.keys() - set(NO_PAGE)


@pytest.mark.parametrize("alert", WHEN)
def test_the_status_page_and_rota_top_warn_while_an_alert_fires(alert: str) -> None:
    status = healthy() | WHEN[alert]
    said = [headline.text for headline in RULE_OF[alert](status)]
    assert said, "the rule of the alert is silent"
    status["headlines"] = headlines(status)
    assert status["headlines"][0]["level"] in {"bad", "warn"}
    assert set(said) <= {row["text"] for row in status["headlines"]}
    shown = [cell.text for cell in fleet_view.headlines(status, 200, 20)]
    assert not any(text.startswith(fleet_view.MARKS["good"]) for text in shown)
    assert any(said[0] in text for text in shown)


def test_a_healthy_fleet_meets_no_alert_condition() -> None:
    assert [row["level"] for row in headlines(healthy())] == ["good"]


@pytest.mark.parametrize(
    ("alert", "bound"),
    [
        ("RotaRedisSlow", SLOW_SECONDS),
        ("RotaPollerBehind", OVERDUE_SECONDS),
        ("RotaClockSkew", SKEW_SECONDS),
        ("RotaQueueStalled", STALLED_SECONDS),
        ("RotaQueueStarved", STALLED_SECONDS),
    ],
)
def test_the_status_page_and_the_alert_use_the_same_threshold(alert: str, bound: float) -> None:
    assert f"{bound:g}" in re.findall(r">=? ([\d.]+)", ALERTS[alert]["expr"])


def test_the_exporter_remembers_counters_for_the_longest_alert_window() -> None:
    windows = {
        int(minutes)
        for alert in ("RotaAdoptFailed", "RotaScheduleMissed", "RotaSeriesDropped", "RotaLogLinesDropped")
        for minutes in re.findall(r"\[(\d+)m\]", ALERTS[alert]["expr"])
    }
    assert max(windows) * 60 <= history.REMEMBERED_SECONDS


def test_rota_health_and_the_status_page_warn_of_the_same_redis_problems() -> None:
    assert redis_warnings(0.0004, evicts_keys=False) == []
    slow, evicts = redis_warnings(SLOW_SECONDS, evicts_keys=True)
    found = headlines(healthy() | WHEN["RotaRedisSlow"] | WHEN["RotaRedisEvictsKeys"])
    assert [any(row["text"].startswith(text) for row in found) for text in (slow, evicts)] == [True, True]
