"""The exporter's memory of recent troubles: the queues whose counters grew, and the worst lags."""

import time

import pytest

from rota.telemetry import metrics as m
from rota_supervisor.exporter import history
from rota_supervisor.exporter.history import LateStarts, ProblemWatch
from rota_supervisor.exporter.series import Samples


def samples(*, started_ago: float = 60.0, misses: float = 0, worst: float = 0.0, **counted: float) -> Samples:
    made = Samples()
    made.put(m.START_TIME, (), time.time() - started_ago)
    made.put(m.LOG_LINES_DROPPED, (), counted.get("lines", 0))
    made.put(m.ADOPT_ERRORS, ("old",), counted.get("adopt", 0))
    made.put(m.SCHEDULE_OCCURRENCES, ("nightly", "missed"), counted.get("missed", 0))
    made.put(m.SCHEDULE_OCCURRENCES, ("nightly", "enqueued"), counted.get("enqueued", 0))
    made.put(m.TASK_LAG_OBJECTIVE_MISSES, ("mail", "immediate"), misses)
    made.put(m.TASK_LAG_OBJECTIVE_MISSES, ("mail", "throttled"), counted.get("throttled", 0))
    made.put(m.TASK_LAG_WORST, ("mail",), worst)
    return made


def test_recent_counts_of_a_new_fleet_include_those_before_the_first_reading() -> None:
    watch = ProblemWatch()
    watch.note(samples(lines=7, adopt=1))
    recent = watch.recent()
    assert (recent.total(m.LOG_LINES_DROPPED), recent.of(m.ADOPT_ERRORS)) == (7, {"old": 1})


def test_counts_from_before_the_exporter_restarted_are_not_recent() -> None:
    watch = ProblemWatch()
    watch.note(samples(started_ago=86_400.0, lines=7))
    assert watch.recent().total(m.LOG_LINES_DROPPED) == 0
    watch.note(samples(started_ago=86_400.0, lines=9))
    assert watch.recent().total(m.LOG_LINES_DROPPED) == 2


def test_only_missed_schedule_occurrences_count_as_problems() -> None:
    watch = ProblemWatch()
    watch.note(samples(enqueued=100, missed=2))
    assert watch.recent().of(m.SCHEDULE_OCCURRENCES) == {"nightly": 2}


def test_the_worst_recent_lag_is_exact_and_remembered_after_its_peak() -> None:
    watch = ProblemWatch()
    watch.note(samples(misses=3, worst=61.25))
    seen_by = time.time()
    watch.note(samples(misses=3, worst=0.0))
    late = watch.recent().late["mail"]
    assert (late.number, late.worst_seconds) == (3, 61.25)
    assert late.until is not None
    assert late.until <= seen_by


def test_a_throttled_task_start_never_counts_as_late() -> None:
    watch = ProblemWatch()
    watch.note(samples(throttled=50))
    assert watch.recent().late.get("mail", LateStarts()).number == 0


def test_the_exporter_forgets_old_problem_counts_and_lags(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = ProblemWatch()
    watch.note(samples(misses=3, worst=61.0, lines=7))
    monkeypatch.setattr(history, "LATE_SECONDS", 0.0)
    assert watch.recent().late == {}
    assert watch.recent().total(m.LOG_LINES_DROPPED) == 7
    monkeypatch.setattr(history, "REMEMBERED_SECONDS", 0.0)
    assert watch.recent().total(m.LOG_LINES_DROPPED) == 0


def test_a_pool_counts_as_short_until_all_its_workers_exist() -> None:
    watch, made = ProblemWatch(), samples()
    made.put(m.WORKERS_DESIRED, ("default",), 2)
    made.put(m.WORKERS, ("default", "running"), 1)
    watch.note(made)
    assert watch.recent().short_seconds.keys() == {"default"}
    made.put(m.WORKERS, ("default", "quiet"), 1)
    watch.note(made)
    assert watch.recent().short_seconds == {}
