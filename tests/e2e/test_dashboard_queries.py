"""Every query of every dashboard. The queries run in a real Prometheus, which watches a busy fleet and several fleets
with troubles. The fleets with troubles fill the panels that stay empty for a healthy fleet. test_troubles.py checks the
panels of each trouble.
"""

from collections.abc import Iterator
from typing import Final

import pytest

from support.dashboards import PanelQuery, all_queries, run_query
from support.eventful import beside
from support.waiting import until
from troubles.bench import Bench

pytestmark = [pytest.mark.timeout(240), pytest.mark.filterwarnings("ignore:no running fleet serves:UserWarning")]

QUERIES: Final = all_queries()
TROUBLES: Final = ("failing_hook", "forgotten_queue", "log_blocked", "unserved_queue")
DEADLINE_SECONDS: Final = 60.0
# The panels and legends that stay empty for all these fleets, with the reasons. test_dashboard_promql.py checks the
# last two entries with made-up series.
EMPTY: Final = {
    "early starts of {{queue}}": "it would be a fault of Rota",
    "not written on {{instance}}": "it takes a log that cannot be written, as in test_process_log_sink.py",
    "Doorbells rung by the sweep": "it takes a death between two commands",
    "Deploys": "there is one version",
    "Label sets counted as _other": "it takes twenty thousand series",
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with beside(tmp_path_factory.mktemp("boards"), TROUBLES) as made:
        yield made


@pytest.mark.parametrize("query", [pytest.param(query, id=f"{query.board}: {query.panel}") for query in QUERIES])
def test_every_dashboard_panel_shows_data_of_a_running_fleet(bench: Bench, query: PanelQuery) -> None:
    if query.panel not in EMPTY and not any(query.legend.startswith(legend) for legend in EMPTY):
        until(lambda: run_query(bench.prometheus, query).result, query.expr, DEADLINE_SECONDS)
    assert run_query(bench.prometheus, query).warnings == []


def test_promotion_lag_and_queue_wait_add_up_to_the_task_lag(bench: Bench) -> None:
    # No rate delays the tasks of this fleet, so the lag consists only of promotion lag and queue wait.
    job = '{job="unserved_queue"}'
    names = ("rota_promotion_lag_seconds_sum", "rota_queue_wait_seconds_sum", "rota_task_lag_seconds_sum")
    promotion, wait, lag = (bench.prometheus.query(f"sum({name}{job})").value() for name in names)
    assert promotion + wait == pytest.approx(lag, rel=0.01, abs=0.005)


def test_every_prometheus_rule_can_be_evaluated_over_running_fleets(bench: Bench) -> None:
    bench.prometheus.wait_for("job_queue:rota_lag_burn:rate5m")
    assert {(rule["name"], rule["health"], rule.get("lastError", "")) for rule in bench.prometheus.rules()} == {
        (rule["name"], "ok", "") for rule in bench.prometheus.rules()
    }
