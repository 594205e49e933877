"""The results of dashboard queries over made-up series, computed by a real Prometheus."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from support.dashboards import all_queries
from support.prometheus import promtool

OF: Final = 'job="rota", fleet="shop", instance="a:9477"'
BUILD: Final = f'rota_build_info{{{OF}, version="1.0", protocol="1"}}'
RESTARTS: Final = f'rota_process_restarts_total{{{OF}, role="worker", reason="signal"}}'
RESTARTED: Final = '{job="rota", fleet="shop", role="worker", reason="signal"}'
DEAD: Final = f'rota_tasks_dead_total{{{OF}, queue="work", task="send", reason="failed"}}'
DIED: Final = '{job="rota", fleet="shop", queue="work", task="send", reason="failed"}'


def of_queue(metric: str, labels: str = "") -> str:
    return f'{metric}{{{OF}, queue="work"{labels}}}'


# All workers hang. Until they hung, tasks started on time. Since then, all tasks have been waiting.
HANGING: Final = {
    BUILD: "1x40",
    of_queue("rota_task_lag_worst_seconds"): "0.005x7 0x32",
    of_queue("rota_task_lag_seconds_bucket", ', kind="immediate", le="0.005"'): "0+10x7 80x32",
    of_queue("rota_task_lag_seconds_bucket", ', kind="immediate", le="+Inf"'): "0+10x7 80x32",
    of_queue("rota_queue_oldest_ready_age_seconds"): "0x7 15+15x32",
    of_queue("rota_queue_oldest_overdue_age_seconds"): "0x40",
    of_queue("rota_queue_closed_age_seconds"): "0x40",
    of_queue("rota_claims_total"): "0+10x7 80x32",
}


@dataclass(frozen=True, slots=True)
class Case:
    """A test case for a panel: series that are scraped four times a minute, and the values that the panel must show at
    each whole minute, starting at minute 1.
    """

    board: str
    panel: str
    series: Mapping[str, str]
    shows: Sequence[Mapping[str, float]]


CASES: Final = {
    "four kills are four, each in one bar": Case(
        "fleet", "Restarts", {BUILD: "1x40", RESTARTS: "0x6 1 1 2 3 4x20"}, [{}, {RESTARTED: 1}, {RESTARTED: 3}, {}, {}]
    ),
    "a series that is born at its first event counts it": Case(
        "tasks", "Deaths by reason", {BUILD: "1x40", DEAD: "_x6 1x20"}, [{}, {DIED: 1}, {}, {}]
    ),
    "what Prometheus meets late was not now": Case(
        "fleet", "Restarts", {BUILD: "_x6 1x20", RESTARTS: "_x6 300x20"}, [{}, {}, {}]
    ),
    "a master that begins anew takes nothing back": Case(
        "fleet", "Restarts", {BUILD: "1x40", RESTARTS: "7x7 0x5 1x20"}, [{}, {}, {}, {RESTARTED: 1}]
    ),
    "another version is a deploy": Case(
        "fleet",
        "Deploys",
        {BUILD: "1x5 _x20", BUILD.replace("1.0", "1.1"): "_x6 1x20"},
        [{}, {'{job="rota", fleet="shop", instance="a:9477", version="1.1"}': 1}, {}],
    ),
    "a queue is latest by what waits while nothing starts": Case(
        "lag",
        "Latest queue",
        HANGING,
        [
            {'{job="rota", fleet="shop", queue="work", what="started late"}': 0.005},
            {'{job="rota", fleet="shop", queue="work", what="waits to start"}': 15},
            {'{job="rota", fleet="shop", queue="work", what="waits to start"}': 75},
        ],
    ),
    "nothing is claimed": Case("lag", "No claims", HANGING, [{}, {}, {'{job="rota", fleet="shop", queue="work"}': 75}]),
}


@pytest.mark.parametrize("name", CASES)
def test_dashboard_queries_return_the_expected_values_for_sample_series(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    query = next(each for each in all_queries() if (each.board, each.panel) == (f"{case.board}.json", case.panel))
    asked = [
        {
            "expr": query.filled_in(window="1m", time_range="1h", step="1m"),
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": labels, "value": value} for labels, value in shown.items()],
        }
        for minute, shown in enumerate(case.shows, start=1)
    ]
    given = [{"series": series, "values": values} for series, values in case.series.items()]
    test = {"interval": "15s", "input_series": given, "promql_expr_test": asked}
    (tmp_path / "test.yml").write_text(json.dumps({"tests": [test]}))
    ran = promtool("test", "rules", str(tmp_path / "test.yml"))
    assert ran.returncode == 0, ran.stderr
