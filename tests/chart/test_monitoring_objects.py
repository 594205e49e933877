"""The chart's objects for Prometheus, Grafana and KEDA, compared with the product's metrics and the files in
deploy/.
"""

import json
import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from chart.kube import TOP, Object, only, render
from rota.telemetry.metrics import BY_NAME, OTHER
from support.prometheus import promtool

PROMETHEUS = TOP / "deploy/prometheus"
SCRAPES = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["global"]
LINK = re.compile(r"\{\{ \$externalLabels\.rota_(docs|grafana)_url \}\}")


def rule(**values: Any) -> Object:
    """Return the PrometheusRule with these values."""
    return only(render({"prometheusRule": {"enabled": True, **values}}), "PrometheusRule")


def groups(name: str) -> list[Any]:
    """Return the groups in a file of Prometheus rules."""
    found: list[Any] = yaml.safe_load((PROMETHEUS / name).read_text())["groups"]
    return found


def test_the_rules_of_the_prometheusrule_match_the_repository() -> None:
    assert rule()["spec"]["groups"] == groups("recording.yml") + groups("alerts.yml")


def test_promtool_accepts_the_rules_of_the_object(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rule()["spec"]))
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", str(tmp_path / "rules.yml"))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_links_in_alerts_and_dashboards_begin_with_the_configured_addresses() -> None:
    links = {"docs": "https://docs.example/", "grafana": "https://grafana.example"}
    assert LINK.search(yaml.safe_dump(rule()))
    linked = render({"prometheusRule": {"enabled": True}, "dashboards": {"enabled": True}, "links": links})
    text = yaml.safe_dump(linked)
    assert not LINK.search(text)
    assert "docs.example.com" not in text
    assert "https://docs.example/runbook.md#" in text
    assert "https://grafana.example/d/" in text


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

POOLS: dict[str, Any] = {"pools": {"mail": {"workers": "1..8"}, "web": {"workers": 1}}}


def triggers(**values: Any) -> dict[str, Object]:
    """Return the triggers of the ScaledObject, by name."""
    scaled = only(render({"keda": {"enabled": True}, **values}), "ScaledObject")
    return {each["name"]: each for each in scaled["spec"]["triggers"]}


def test_for_pools_with_a_range_keda_uses_the_workers_that_the_fleet_wants() -> None:
    (trigger,) = triggers(keda={"enabled": True, "workersPerPod": 8}, pools=["mail"], config=POOLS).values()
    assert trigger["metadata"]["threshold"] == "8"
    query = trigger["metadata"]["query"]
    assert query == 'sum(max by (pool) (rota_fleet_workers_wanted{fleet="rota",pool=~"mail"}))'
    promql_parser.parse(query)
    assert set(re.findall(r"\brota_\w+", query)) <= BY_NAME.keys()


def test_keda_queries_use_only_metrics_that_rota_has() -> None:
    for trigger in triggers().values():
        query = trigger["metadata"]["query"]
        promql_parser.parse(query)
        used = set(re.findall(r"\brota_\w+", query))
        assert used
        assert used <= BY_NAME.keys()


def test_the_number_of_pods_does_not_fall_if_metrics_are_missing() -> None:
    spec = only(render({"keda": {"enabled": True}}), "ScaledObject")["spec"]
    assert spec["fallback"]["behavior"] == "currentReplicasIfHigher"
    assert spec["minReplicaCount"] >= 1
    assert {each["metricType"] for each in spec["triggers"]} == {"AverageValue"}, "a fallback requires it"
    assert {each["metadata"]["ignoreNullValues"] for each in spec["triggers"]} == {"false"}


GAUGES = {
    "ready": "rota_queue_ready_tasks",
    "running": "rota_queue_inflight_tasks",
    "closed": "rota_queue_closed_age_seconds",
    "age": "rota_queue_oldest_ready_age_seconds",
    "objective": "rota_queue_lag_objective_seconds",
}
# Two nodes export the same gauges. `mail` is late, `slow` runs tasks, and `closed` permits no claims. `tenant-1` and
# `_other` belong to the pattern `tenant-*`, which has a paused queue.
QUEUES: dict[str, dict[str, float]] = {
    "mail": {"ready": 90, "running": 6, "closed": 0, "age": 45, "objective": 30},
    "slow": {"ready": 0, "running": 4, "closed": 0, "age": 0, "objective": 60},
    "closed": {"ready": 5000, "running": 0, "closed": 3600, "age": 7200, "objective": 30},
    "tenant-1": {"ready": 20, "running": 1, "closed": 0, "age": 8},
    OTHER: {"ready": 30, "running": 2, "closed": 900, "age": 900},
    "tenant-*": {"age": 10, "objective": 10},
}
NODES = ("rota-6d5f9c8b7-x2x4z", "rota-6d5f9c8b7-abcde")


def series(queues: dict[str, dict[str, float]]) -> list[dict[str, str]]:
    """Return the series of a fleet with these queues, and one series of another fleet, in promtool's format."""
    found = {f'rota_start_time_seconds{{fleet="rota",pod="{pod}"}}': 1000.0 for pod in NODES}
    found['rota_queue_ready_tasks{fleet="other",queue="mail"}'] = 700
    for queue, gauges in queues.items():
        for gauge, number in gauges.items():
            found |= {f'{GAUGES[gauge]}{{fleet="rota",queue="{queue}",pod="{pod}"}}': number for pod in NODES}
    return [{"series": name, "values": f"{number}x5"} for name, number in found.items()]


NOTHING_FROM_REDIS = {queue: {"objective": 30.0} for queue in QUEUES}
ALL_CLOSED = {queue: {**gauges, "closed": 60.0} for queue, gauges in QUEUES.items() if queue in ("mail", "closed")}


@pytest.mark.parametrize(
    ("name", "of", "queues", "expected"),
    [
        ("tasks", [], QUEUES, 90 + 0 + 20 + 30 + 6 + 4 + 1 + 2),
        ("lateness", [], QUEUES, 2 * 45 / 30),
        ("tasks", ["slow"], QUEUES, 4),
        ("lateness", ["slow"], QUEUES, 0),
        ("tasks", [], {**QUEUES, "mail": {}}, 57),
        ("lateness", [], {**QUEUES, "mail": {}}, 2 * 10 / 10),
        ("tasks", [], ALL_CLOSED, 6),
        ("lateness", [], ALL_CLOSED, 0),
        # Redis is unavailable. The result must not be 0, because that would remove pods.
        ("tasks", [], NOTHING_FROM_REDIS, None),
        ("lateness", [], NOTHING_FROM_REDIS, None),
    ],
)
def test_prometheus_returns_the_number_of_pods_to_run(
    name: str, of: list[str], queues: dict[str, dict[str, float]], expected: float | None, tmp_path: Path
) -> None:
    query = triggers(keda={"enabled": True, "queues": of})[name]["metadata"]["query"]
    case = {
        "interval": "1m",
        "input_series": series(queues),
        "promql_expr_test": [
            {
                "expr": query,
                "eval_time": "5m",
                "exp_samples": [] if expected is None else [{"labels": "{}", "value": expected}],
            }
        ],
    }
    (tmp_path / "case.yml").write_text(json.dumps({"tests": [case]}))
    tested = promtool("test", "rules", str(tmp_path / "case.yml"))
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_keda_counts_the_pods_of_a_release_by_their_name() -> None:
    values = {"pools": ["mail"], "config": {"pools": {"mail": {"workers": 2}}}}
    query = triggers(**values)["lateness"]["metadata"]["query"]
    assert 'rota_start_time_seconds{fleet="rota",pod=~"rota-[a-z0-9]+-[a-z0-9]+"}' in query
