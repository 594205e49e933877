"""The rules in deploy/prometheus are valid, each rule is tested, and each alert has a section in the runbook."""

import json
import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest

from rota.telemetry.metrics import BY_NAME, HistogramDefinition
from support.alert_cases import ALERTING, ALERTS, CASES, RECORDING, RULES, cases, for_promtool, groups
from support.dashboards import TOP
from support.prometheus import promtool

RECORDS = {rule["record"]: rule["expr"] for group in groups(RECORDING) for rule in group["rules"]}
RUNBOOK = TOP / "docs" / "runbook.md"
BOARDS = {"rota-lag", "rota-queues", "rota-tasks", "rota-fleet"}
MINUTES = {"5m": 5, "30m": 30, "1h": 60, "2h": 120, "6h": 360, "1d": 1440, "3d": 4320}
RECORDED = "job_queue:rota_lag_misses:increase5m", "job_queue:rota_task_starts:increase5m"


def test_promtool_accepts_the_rules_with_all_lints_enabled() -> None:
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", str(RECORDING), str(ALERTING))
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("targets", ["deploy/prometheus/targets", "deploy/docker/targets"])
def test_promtool_accepts_the_scrape_configuration_with_its_targets(targets: str, tmp_path: Path) -> None:
    for file in (RULES / "prometheus.yml", RECORDING, ALERTING):
        (tmp_path / file.name).write_text(file.read_text())
    (tmp_path / "targets").symlink_to(TOP / targets)
    checked = promtool("check", "config", str(tmp_path / "prometheus.yml"))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "WARNING" not in checked.stdout + checked.stderr


@pytest.mark.parametrize("name", ["burns", "queues", "tasks", "fleet"])
def test_promtool_confirms_that_each_case_fires_exactly_the_expected_alerts(name: str, tmp_path: Path) -> None:
    run(for_promtool(CASES / f"{name}.yml", [RECORDING, ALERTING]), tmp_path)


def test_a_burn_rate_that_lasts_for_days_fires_the_alert_for_its_window(tmp_path: Path) -> None:
    recorded = groups(RECORDING)
    for group in recorded:
        group["rules"] = [rule for rule in group["rules"] if rule["record"] not in RECORDED]
    (tmp_path / RECORDING.name).write_text(json.dumps({"groups": recorded}))
    run(for_promtool(CASES / "days.yml", [tmp_path / RECORDING.name, ALERTING], "30m"), tmp_path)


def run(tests: dict[str, Any], folder: Path) -> None:
    """Run these tests with promtool. They are written as JSON, which is valid YAML, so no YAML library is needed."""
    (folder / "tests.yml").write_text(json.dumps(tests))
    tested = promtool("test", "rules", str(folder / "tests.yml"))
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_every_alert_is_tested_both_firing_and_silent() -> None:
    known = [case for file in CASES.iterdir() for case in cases(file)]
    names = set(ALERTS)
    assert {name for case in known for name in case.fires()} == names
    assert {name for case in known for name in case.says} == names
    assert {case.alert for case in known if case.keeps_still()} >= names


@pytest.mark.parametrize("alert", ALERTS.values(), ids=ALERTS)
def test_every_alert_has_a_severity_a_text_and_links(alert: dict[str, Any]) -> None:
    assert re.fullmatch(r"Rota([A-Z][a-z]*|\d+[hd])+", alert["alert"])
    assert alert["labels"]["severity"] in {"critical", "warning"}
    notes = alert["annotations"]
    assert set(notes) == {"summary", "description", "runbook_url", "dashboard_url"}
    assert notes["runbook_url"].endswith(f"/runbook.md#{alert['alert'].lower()}")
    (uid,) = re.findall(r"/d/([\w-]+)", notes["dashboard_url"])
    assert uid in BOARDS


def test_the_runbook_has_one_section_per_alert_in_order() -> None:
    assert re.findall(r"^## (.+)$", RUNBOOK.read_text(), re.MULTILINE) == list(ALERTS)


@pytest.mark.parametrize("alert", ALERTS.values(), ids=ALERTS)
def test_the_runbook_states_the_severity_of_each_alert(alert: dict[str, Any]) -> None:
    section = RUNBOOK.read_text().split(f"## {alert['alert']}\n")[1].lstrip()
    assert section.startswith(f"*{alert['labels']['severity'].capitalize()}.*")


@pytest.mark.parametrize("expression", [*RECORDS.values(), *(alert["expr"] for alert in ALERTS.values())])
def test_rules_query_existing_metrics_and_never_match_on_the_le_label(expression: str) -> None:
    promql_parser.parse(expression)
    assert not re.search(r"\ble\s*[=!]", expression)
    known = set(RECORDS)
    for definition in BY_NAME.values():
        if isinstance(definition, HistogramDefinition):
            known |= {f"{definition.name}_{suffix}" for suffix in ("count", "sum", "bucket")}
        else:
            known.add(definition.name)
    names = set(re.findall(r"\b(?:job_queue:[\w:]+|rota_\w+)\b", re.sub(r'"[^"]*"', "", expression)))
    assert names <= known


@pytest.mark.parametrize("expression", [*RECORDS.values(), *(alert["expr"] for alert in ALERTS.values())])
def test_rules_aggregate_and_join_series_by_job_and_fleet(expression: str) -> None:
    groupings = re.findall(r"\b(?:by|on) \(([^)]*)\)", expression)
    assert all(grouping.startswith("job, fleet") for grouping in groupings if grouping != "job, instance")


@pytest.mark.parametrize("window", MINUTES)
def test_burn_rates_of_all_windows_use_the_same_formula(window: str) -> None:
    burn = RECORDS[f"job_queue:rota_lag_burn:rate{window}"]
    starts = "job_queue:rota_task_starts:increase5m"
    if window != "5m":
        starts = f"{MINUTES[window] // 5} * avg_over_time({starts}[{window}])"
        misses = RECORDS[f"job_queue:rota_lag_misses:increase{window}"]
        assert misses == f"sum_over_time(job_queue:rota_lag_misses:increase5m[{window}]) / 5"
    assert burn.split() == (
        f"clamp_max(job_queue:rota_lag_misses:increase{window} / ({starts} > 0), 1)"
        " / job_queue:rota_lag_budget:ratio".split()
    )
