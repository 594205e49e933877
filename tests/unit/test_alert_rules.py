"""The rules of deploy/prometheus are accepted, tested one by one, and each alert has its page in the runbook."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from dashboards import TOP, boards
from prometheus import promtool
from rota.telemetry.definition import HistogramDefinition
from rota.telemetry.metrics import BY_NAME

FOLDER = TOP / "deploy" / "prometheus"
RULE_FILES = ("recording.yml", "alerts.yml")
TEST_FILES = ("alerts_test.yml", "burn_test.yml")


def rules(name: str) -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / name).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


ALERTS = rules("alerts.yml")
EXPRESSIONS = [rule["expr"] for name in RULE_FILES for rule in rules(name)]


def test_promtool_accepts_the_rules_with_every_lint_on() -> None:
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", *(str(FOLDER / name) for name in RULE_FILES))
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("targets", ["deploy/prometheus/targets", "deploy/docker/targets"])
def test_promtool_accepts_the_scrape_configuration_with_its_targets(targets: str, tmp_path: Path) -> None:
    for name in ("prometheus.yml", *RULE_FILES):
        (tmp_path / name).write_text((FOLDER / name).read_text())
    (tmp_path / "targets").symlink_to(TOP / targets)
    checked = promtool("check", "config", str(tmp_path / "prometheus.yml"))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "WARNING" not in checked.stdout + checked.stderr


@pytest.mark.parametrize("name", TEST_FILES)
def test_the_unit_tests_of_the_alerts_pass(name: str) -> None:
    tested = promtool("test", "rules", str(FOLDER / name))
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_every_alert_is_tested_to_fire_and_to_keep_still() -> None:
    fires: set[str] = set()
    keeps_still: set[str] = set()
    for name in TEST_FILES:
        for test in yaml.safe_load((FOLDER / name).read_text())["tests"]:
            for case in test["alert_rule_test"]:
                (fires if case["exp_alerts"] else keeps_still).add(case["alertname"])
    names = {alert["alert"] for alert in ALERTS}
    assert fires == keeps_still == names


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_says_how_bad_it_is_what_it_is_and_where_to_look(alert: dict[str, Any]) -> None:
    assert re.fullmatch(r"Rota([A-Z][a-z]*|\d+[hd])+", alert["alert"])
    assert alert["labels"]["severity"] in {"critical", "warning"}
    notes = alert["annotations"]
    assert set(notes) == {"summary", "description", "runbook_url", "dashboard_url"}
    assert notes["runbook_url"].endswith(f"/runbook.md#{alert['alert'].lower()}")
    (uid,) = re.findall(r"/d/([\w-]+)", notes["dashboard_url"])
    assert uid in {board["uid"] for board in boards().values()}


def test_the_runbook_has_one_section_an_alert_in_their_order() -> None:
    sections = re.findall(r"^## (.+)$", (TOP / "docs" / "runbook.md").read_text(), re.MULTILINE)
    assert sections == [alert["alert"] for alert in ALERTS]


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_the_runbook_agrees_on_the_severity(alert: dict[str, Any]) -> None:
    text = (TOP / "docs" / "runbook.md").read_text()
    section = text.split(f"## {alert['alert']}\n")[1].lstrip()
    assert section.startswith(f"*{alert['labels']['severity'].capitalize()}.*")


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_rule_asks_for_metrics_that_exist_and_never_matches_a_bucket_bound(expression: str) -> None:
    promql_parser.parse(expression)
    assert not re.search(r"\ble\s*[=!]", expression)
    known = {rule["record"] for rule in rules("recording.yml")} | {"up"}
    for definition in BY_NAME.values():
        if isinstance(definition, HistogramDefinition):
            known |= {f"{definition.name}_{suffix}" for suffix in ("count", "sum", "bucket")}
        else:
            known.add(definition.name)
    names = set(re.findall(r"\b(?:job_queue:[\w:]+|rota_\w+)\b", re.sub(r'"[^"]*"', "", expression)))
    assert names <= known


def test_faster_burns_silence_slower_ones() -> None:
    rules_of_silence = yaml.safe_load((FOLDER / "alertmanager.yml").read_text())["inhibit_rules"]
    text = " ".join(matcher for rule in rules_of_silence for matcher in rule["source_matchers"])
    names = {alert["alert"] for alert in ALERTS}
    assert set(re.findall(r"Rota\w+", text)) <= names
    burns = [alert["alert"] for alert in ALERTS if "LagBurn" in alert["alert"]]
    for fast, slow in pairwise(burns):
        assert any(
            fast in rule["source_matchers"][0] and slow.removeprefix("RotaLagBurn") in rule["target_matchers"][0]
            for rule in rules_of_silence
        )
