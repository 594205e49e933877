"""helm accepts and renders the chart, and Kubernetes accepts each object."""

import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from chart.kube import CHART, FOLDER, HELMS, Object, only, render, rendered_text, run
from chart.situations import EVERYTHING, SITUATIONS
from chart.validation import VERSIONS, faults
from rota import __version__

KINDS = {
    "ConfigMap", "Deployment", "NetworkPolicy", "Pod", "PodDisruptionBudget", "PodMonitor", "PrometheusRule",
    "ScaledObject", "Secret", "ServiceAccount",
}  # fmt: skip
LINT = "{extends: default, rules: {document-start: disable, line-length: disable, braces: disable, comments: disable}}"


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_helm_lints_the_chart_without_a_warning(helm: str, situation: str) -> None:
    values = yaml.safe_dump(SITUATIONS[situation])
    linted = run(helm, "lint", "--strict", str(CHART), "--values", "-", text=values)
    assert linted.returncode == 0, linted.stdout + linted.stderr
    assert "[WARNING]" not in linted.stdout


@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_object_fits_the_schema_of_its_kind(situation: str) -> None:
    objects = render(SITUATIONS[situation])
    assert [fault for each in objects for fault in faults(each)] == []
    assert len({(each["kind"], each["metadata"]["name"]) for each in objects}) == len(objects)


def test_the_chart_with_everything_turned_on_renders_every_kind() -> None:
    assert {each["kind"] for each in render(EVERYTHING)} == KINDS


def test_the_schema_check_finds_misspelt_keys_in_objects_of_every_kind() -> None:
    for each in render(EVERYTHING):
        table = each.get("spec", each)
        assert faults({**each, **({"spec": {**table, "unknwn": 1}} if "spec" in each else {"unknwn": 1})}), each["kind"]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_both_helm_versions_render_identical_objects(situation: str) -> None:
    new, old = (render(SITUATIONS[situation], helm=helm) for helm in HELMS)
    assert new == old


@pytest.mark.parametrize("situation", SITUATIONS)
def test_yamllint_accepts_the_rendered_yaml(situation: str, tmp_path: Path) -> None:
    (tmp_path / "rendered.yaml").write_text(re.sub(r"\n{2,}---", "\n---", rendered_text(SITUATIONS[situation])))
    files = [tmp_path / "rendered.yaml", CHART / "values.yaml", CHART / "Chart.yaml"]
    program = "from yamllint.cli import run; run()"
    linted = subprocess.run(
        [sys.executable, "-c", program, "-d", LINT, *map(str, files)],
        env={"PYTHONPATH": str(FOLDER / "lib")},
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in linted.stdout.splitlines() if "indentation" not in line]
    assert not any("[error]" in line for line in errors), linted.stdout


def test_a_chart_package_has_rules_and_dashboards_as_files_and_not_links(tmp_path: Path) -> None:
    packed = run("helm", "package", str(CHART), "--destination", str(tmp_path))
    assert packed.returncode == 0, packed.stderr
    (archive,) = tmp_path.glob("*.tgz")
    with tarfile.open(archive) as package:
        members = {member.name.removeprefix("rota/"): member for member in package.getmembers()}
    for path in ("files/recording.yml", "files/alerts.yml", "files/dashboards/fleet.json"):
        assert members[path].isfile()
        assert members[path].size == (CHART / path).stat().st_size
    shown = run("helm", "template", "rota", str(archive))
    assert list(yaml.safe_load_all(shown.stdout)) == list(yaml.safe_load_all(rendered_text()))


def test_the_chart_names_this_version_and_the_oldest_kubernetes_that_is_checked() -> None:
    about: Object = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert about["appVersion"] == __version__
    assert about["kubeVersion"] == f">={VERSIONS[0]}.0-0"
    older = run("helm", "template", "rota", str(CHART), "--kube-version", "1.26.0")
    assert older.returncode != 0
    assert "incompatible with Kubernetes v1.26.0" in older.stderr


def test_notes_name_the_secret_that_is_missing() -> None:
    notes = run("helm", "install", "rota", str(CHART), "--dry-run=client", "--namespace", "shop").stdout
    assert "kubectl create secret generic rota-redis --namespace shop" in notes
    given = run("helm", "install", "rota", str(CHART), "--dry-run=client", "--set", "redis.url=redis://r").stdout
    assert "kubectl create secret" not in given


def test_kubernetes_objects_have_the_requested_names() -> None:
    assert only(render({"fullnameOverride": "shop"}), "Deployment")["metadata"]["name"] == "shop"
    assert only(render({"nameOverride": "fleet"}), "Deployment")["metadata"]["name"] == "rota-fleet"
