"""Fleets of 50 to 1,000 queues. If a value is computed from several numbers, all of these numbers must cover the same
queues.
"""

import json
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from rota.telemetry.metrics import OTHER
from rota_supervisor.exporter.http_connection import json_response
from rota_supervisor.exporter.series import queues_with_room
from rota_supervisor.top.fleet_view import plain
from support.alert_cases import RECORDING
from support.many_queues import TARGET, TASKS, ManyQueues, by_queue
from support.prometheus import promtool

SIZES = (50, 95, 200, 1000)
MOST_IN_A_SLOT = 200  # so few that the records of all queues fit into a worker's slot
MOST_CALLS_FOR_A_QUEUE = 200
OF_A_QUEUE = (
    "rota_task_starts_total", "rota_task_lag_objective_misses_total", "rota_task_lag_seconds_count",
    "rota_queue_wait_seconds_count", "rota_tasks_processed_total", "rota_task_runtime_seconds_count",
    "rota_claims_total", "rota_queue_ready_tasks", "rota_queue_lag_target_ratio", "rota_tasks_enqueued_total",
    "rota_task_lag_worst_seconds",
)  # fmt: skip


@pytest.fixture(scope="module", params=SIZES)
def fleet(request: pytest.FixtureRequest) -> ManyQueues:
    """Return a fleet in which every start was late, one third of all attempts failed, and one third was cancelled."""
    made = ManyQueues(request.param)
    made.scrape()
    made.run(3, "done", "retry", "cancelled")
    return made


def test_either_all_series_of_a_queue_are_exported_or_none(fleet: ManyQueues) -> None:
    lines = fleet.scrape()
    shown = [set(by_queue(lines, name)) for name in OF_A_QUEUE]
    assert all(each == shown[0] for each in shown)
    folded = set(fleet.names) - shown[0]
    assert (OTHER in shown[0]) == bool(folded)
    assert folded == set(fleet.names[len(fleet.names) - len(folded) :]), "those of the lowest tiers"


def test_with_many_queues_no_task_start_is_lost_from_the_metrics(fleet: ManyQueues) -> None:
    lines = fleet.scrape()
    starts, misses = (by_queue(lines, name) for name in OF_A_QUEUE[:2])
    assert starts == misses
    assert sum(starts.values()) == sum(by_queue(lines, "rota_tasks_processed_total").values())
    assert sum(starts.values()) == len(fleet.names) * fleet.runs
    for outcome in ("done", "retry", "cancelled"):
        ended = by_queue(lines, "rota_tasks_processed_total", outcome=outcome)
        assert ended == {queue: number / 3 for queue, number in starts.items()}


def test_queues_are_summed_as_other_only_near_the_series_limit(fleet: ManyQueues) -> None:
    lines, bound = fleet.scrape(), fleet.settings.max_series
    assert len(lines) <= bound
    folded = next(line.value for line in lines if line.name == "rota_metrics_queues_folded")
    shown = next(line.value for line in lines if line.name == "rota_metrics_queues_shown")
    assert shown + folded == len(fleet.names)
    if folded:
        assert len(lines) > 0.9 * bound
        assert shown == pytest.approx(queues_with_room(bound, 2), rel=0.1), "the estimate of `rota check`"
    else:
        assert {line.labels.get("task") for line in lines} >= {f"t{task}" for task in range(TASKS)}


def test_the_status_counts_each_queue_separately_and_no_cancelled_task_as_failed(fleet: ManyQueues) -> None:
    status, of_each = fleet.status(), fleet.runs // 3
    for row in status["queues"]:
        assert row["attempts"]["done"] == row["attempts"]["failed"]
        assert row["processed"].get("done") == row["processed"].get("retry") == row["processed"].get("cancelled")
    if len(fleet.names) <= MOST_IN_A_SLOT:
        assert {row["attempts"]["done"] for row in status["queues"]} == {of_each}
        assert {row["lag"]["starts"] for row in status["queues"]} == {fleet.runs}
    assert sum(row["attempts"]["done"] for row in status["queues"]) == of_each * len(fleet.names)
    assert sum(row["lag"]["starts"] for row in status["queues"]) == fleet.runs * len(fleet.names)
    said = [each["text"] for each in status["headlines"] if "failed" in each["text"]]
    assert said[0].startswith(f"queue q0000: {of_each} of {2 * of_each} attempts failed")
    assert said[0][:60] in " ".join(plain(status, 200).split())


def test_no_counter_decreases_when_more_queues_are_summed_as_other() -> None:
    fleet = ManyQueues(200)
    seen = [fleet.scrape()]
    for outcome in ("done", "retry", "dead", "cancelled"):
        fleet.run(1, outcome)
        seen.append(fleet.scrape())
    for before, after in pairwise(seen):
        starts = [by_queue(lines, OF_A_QUEUE[0]) for lines in (before, after)]
        assert set(starts[1]) - set(starts[0]) <= {OTHER}
        assert all(starts[0][queue] <= starts[1][queue] for queue in starts[1])
        assert len(after) <= fleet.settings.max_series
    healthy = [each for each in fleet.status()["queues"] if each["attempts"]["failed"] != 2 * TASKS]
    assert healthy == []


def test_the_work_for_a_status_page_grows_linearly_with_the_queues() -> None:
    one, two = (calls_of_a_page(ManyQueues(size)) for size in (250, 500))
    assert two < 2.2 * one
    assert two < 500 * MOST_CALLS_FOR_A_QUEUE


def calls_of_a_page(fleet: ManyQueues) -> int:
    """Return the number of function calls that computing and encoding a page takes. The calls for the first page, which
    has to read all records, are not counted.
    """
    fleet.run(1, "done")
    fleet.status()
    return calls_of(lambda: json_response(fleet.status()))


def calls_of(work: Callable[[], object]) -> int:
    """Return the number of function calls that an action makes."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def test_a_fleet_without_failures_has_no_headline_about_failures() -> None:
    for size in SIZES[:3]:
        fleet = ManyQueues(size)
        fleet.run(0, "done", "done", "done", "done")
        assert not any("failed" in each["text"] for each in fleet.status()["headlines"])


def test_the_burn_rate_is_at_its_maximum_if_all_starts_are_late(fleet: ManyQueues, tmp_path: Path) -> None:
    series = [
        {"series": f"{line.name}{{{labels_of(line.labels)}}}", "values": values_of(line.name, line.value)}
        for line in fleet.scrape()
        if line.name in (*OF_A_QUEUE[:2], "rota_queue_lag_target_ratio")
        and line.labels.get("kind") in (None, "immediate")
    ]
    queues = len({each["series"] for each in series if each["series"].startswith(OF_A_QUEUE[0])})
    burn, most = "job_queue:rota_lag_burn:rate5m", 1 / (1 - TARGET)
    expected = {
        f"count({burn})": queues,
        f"count({burn} > {most + 0.001}) or vector(0)": 0,
        f"count({burn} < {most - 0.001}) or vector(0)": 0,
        "count(job_queue:rota_lag_burn:rate1h > 14.4)": queues,
    }
    tests = {
        "rule_files": [str(RECORDING)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": series,
                "promql_expr_test": [
                    {"expr": expr, "eval_time": "20m", "exp_samples": [{"labels": "{}", "value": value}]}
                    for expr, value in expected.items()
                ],
            }
        ],
    }
    (tmp_path / "tests.yml").write_text(json.dumps(tests))
    tested = promtool("test", "rules", str(tmp_path / "tests.yml"))
    assert tested.returncode == 0, tested.stdout + tested.stderr


def labels_of(labels: dict[str, str]) -> str:
    known = {"job": "rota", "instance": "a:9477"} | labels
    return ",".join(f'{name}="{value}"' for name, value in known.items())


def values_of(name: str, value: float) -> str:
    """Return a series in promtool's notation. A ratio stays constant, and a counter grows by `value` each minute."""
    return f"{value}x20" if name.endswith("ratio") else f"0+{value}x20"
