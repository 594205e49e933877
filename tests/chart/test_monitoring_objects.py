"""What the chart gives to Prometheus, Grafana and KEDA, compared with the product's metrics and the files of deploy."""

import json
import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from chart.kube import TOP, Object, only, render
from rota.telemetry.metrics import BY_NAME
from support.prometheus import promtool

PROMETHEUS = TOP / "deploy/prometheus"
SCRAPES = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["global"]
LINK = re.compile(r"\{\{ \$externalLabels\.rota_(docs|grafana)_url \}\}")


def rule(**values: Any) -> Object:
    """Return the PrometheusRule with these values."""
    return only(render({"prometheusRule": {"enabled": True, **values}}), "PrometheusRule")


def groups(name: str) -> list[Any]:
    """Return the groups of a file of rules."""
    found: list[Any] = yaml.safe_load((PROMETHEUS / name).read_text())["groups"]
    return found


def test_the_rules_are_those_of_the_repository() -> None:
    assert rule()["spec"]["groups"] == groups("recording.yml") + groups("alerts.yml")


def test_promtool_accepts_the_rules_of_the_object(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rule()["spec"]))
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", str(tmp_path / "rules.yml"))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_links_of_alerts_begin_with_the_given_addresses() -> None:
    given = rule(docsUrl="https://docs.example/", grafanaUrl="https://grafana.example")
    plain, linked = yaml.safe_dump(rule()), yaml.safe_dump(given)
    assert LINK.search(plain)
    assert not LINK.search(linked)
    assert "https://docs.example/runbook.md#" in linked
    assert "https://grafana.example/d/" in linked


def test_each_dashboard_is_a_configmap_for_the_sidecar() -> None:
    found = [
        each
        for each in render({"dashboards": {"enabled": True}})
        if each["kind"] == "ConfigMap" and "grafana_dashboard" in each["metadata"]["labels"]
    ]
    boards = {path.name: json.loads(path.read_text()) for path in (TOP / "grafana/dashboards").glob("*.json")}
    shown = {name.removeprefix("rota-"): json.loads(text) for each in found for name, text in each["data"].items()}
    assert shown == boards
    assert all(len(json.dumps(each)) < 1 << 20 for each in found), "the limit on a ConfigMap"


def test_scrapes_are_as_frequent_as_the_rules_expect() -> None:
    (endpoint,) = only(render({"podMonitor": {"enabled": True}}), "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert (endpoint["interval"], endpoint["scrapeTimeout"]) == (SCRAPES["scrape_interval"], SCRAPES["scrape_timeout"])


# KEDA


def triggers(**values: Any) -> dict[str, Object]:
    """Return the triggers of the ScaledObject, by name."""
    scaled = only(render({"keda": {"enabled": True}, **values}), "ScaledObject")
    return {each["name"]: each for each in scaled["spec"]["triggers"]}


def test_queries_use_metrics_that_the_product_has() -> None:
    for trigger in triggers().values():
        query = trigger["metadata"]["query"]
        promql_parser.parse(query)
        used = set(re.findall(r"\brota_\w+", query))
        assert used
        assert used <= BY_NAME.keys()


def test_the_number_of_pods_falls_back_to_no_less_than_there_are() -> None:
    spec = only(render({"keda": {"enabled": True}}), "ScaledObject")["spec"]
    assert spec["fallback"]["behavior"] == "currentReplicasIfHigher"
    assert spec["minReplicaCount"] >= 1
    assert {each["metricType"] for each in spec["triggers"]} == {"AverageValue"}, "a fallback requires it"
    assert {each["metadata"]["ignoreNullValues"] for each in spec["triggers"]} == {"false"}


OWN = 'fleet="rota"'
SERIES = {
    # `mail` is late, `slow` runs tasks, nobody may claim from `closed`.
    f'rota_queue_ready_tasks{{{OWN},queue="mail",instance="a"}}': "90",
    f'rota_queue_ready_tasks{{{OWN},queue="mail",instance="b"}}': "90",
    f'rota_queue_ready_tasks{{{OWN},queue="slow",instance="a"}}': "0",
    f'rota_queue_ready_tasks{{{OWN},queue="closed",instance="a"}}': "5000",
    f'rota_queue_inflight_tasks{{{OWN},queue="mail",instance="a"}}': "6",
    f'rota_queue_inflight_tasks{{{OWN},queue="slow",instance="a"}}': "4",
    f'rota_queue_inflight_tasks{{{OWN},queue="closed",instance="a"}}': "0",
    f'rota_queue_closed_age_seconds{{{OWN},queue="mail",instance="a"}}': "0",
    f'rota_queue_closed_age_seconds{{{OWN},queue="slow",instance="a"}}': "0",
    f'rota_queue_closed_age_seconds{{{OWN},queue="closed",instance="a"}}': "3600",
    f'rota_queue_oldest_ready_age_seconds{{{OWN},queue="mail",instance="a"}}': "45",
    f'rota_queue_oldest_ready_age_seconds{{{OWN},queue="slow",instance="a"}}': "0",
    f'rota_queue_oldest_ready_age_seconds{{{OWN},queue="closed",instance="a"}}': "7200",
    f'rota_queue_lag_objective_seconds{{{OWN},queue="mail",instance="a"}}': "30",
    f'rota_queue_lag_objective_seconds{{{OWN},queue="slow",instance="a"}}': "60",
    f'rota_queue_lag_objective_seconds{{{OWN},queue="closed",instance="a"}}': "30",
    f'rota_start_time_seconds{{{OWN},pod="rota-6d5f9c8b7-x2x4z",instance="a"}}': "1000",
    f'rota_start_time_seconds{{{OWN},pod="rota-6d5f9c8b7-abcde",instance="b"}}': "1000",
    'rota_queue_ready_tasks{fleet="other",queue="mail",instance="c"}': "700",
    'rota_queue_closed_age_seconds{fleet="other",queue="mail",instance="c"}': "0",
}


@pytest.mark.parametrize(
    ("name", "values", "series", "expected"),
    [
        # 90 ready and 10 that run; what is closed does not count.
        ("tasks", {}, SERIES, 100),
        # Two pods, and the oldest task waits one and a half times as long as it may.
        ("lateness", {}, SERIES, 3),
        ("tasks", {"keda": {"enabled": True, "queues": ["slow"]}}, SERIES, 4),
        ("lateness", {"keda": {"enabled": True, "queues": ["slow"]}}, SERIES, 0),
        # Nothing, and not 0, while Redis is away: the gauges are absent then.
        ("tasks", {}, {key: each for key, each in SERIES.items() if "queue" not in key}, None),
        ("lateness", {}, {key: each for key, each in SERIES.items() if "queue" not in key}, None),
    ],
)
def test_prometheus_answers_the_number_that_is_scaled_by(
    name: str, values: Object, series: dict[str, str], expected: float | None, tmp_path: Path
) -> None:
    query = triggers(**values)[name]["metadata"]["query"]
    samples = [] if expected is None else [{"labels": "{}", "value": expected}]
    case = {
        "interval": "1m",
        "input_series": [{"series": key, "values": f"{each}x5"} for key, each in series.items()],
        "promql_expr_test": [{"expr": query, "eval_time": "5m", "exp_samples": samples}],
    }
    (tmp_path / "case.yml").write_text(json.dumps({"tests": [case]}))
    tested = promtool("test", "rules", str(tmp_path / "case.yml"))
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_pods_of_one_pool_are_counted_by_their_name() -> None:
    values = {"pools": ["mail"], "config": {"pools": {"mail": {"workers": 2}}}}
    query = triggers(**values)["lateness"]["metadata"]["query"]
    assert 'rota_start_time_seconds{fleet="rota",pod=~"rota-[a-z0-9]+-[a-z0-9]+"}' in query
