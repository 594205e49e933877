"""docs/kubernetes.md agrees with the values of the chart and with the rendered objects."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from chart.configuration import loaded
from chart.kube import BASE, HelmError, Object, default_values, only, render, run, with_changes
from chart.validation import VERSIONS, faults
from chart.values_tree import values
from rota_supervisor.exits import ExitCode
from support.prose import ROOT, blocks

PATH = ROOT / "docs/kubernetes.md"
PAGE = PATH.read_text(encoding="utf-8")
WORDS = " ".join(PAGE.split())
YAML = {block.text.partition("\n")[0].strip("# "): block.text for block in blocks(PATH) if block.language == "yaml"}
INSTALLED: Object = yaml.safe_load(YAML["values.yaml"])
ROW = re.compile(r"^\| (`[a-zA-Z.`, ]+`) \| (?:`(.+?)`)? ?\| (.+) \|$", re.MULTILINE)


def table() -> dict[str, str]:
    """Return the default of each value in the page's table, by the path of the value."""
    rows = ROW.findall(PAGE.rpartition("## Values")[2])
    return {name: default for names, default, _ in rows for name in re.findall(r"`([^`]+)`", names)}


def test_rota_accepts_the_fleet_with_the_values_on_the_kubernetes_page(tmp_path: Path) -> None:
    objects = render(INSTALLED)
    assert [fault for each in objects for fault in faults(each)] == []
    config = loaded_of_release("shop", INSTALLED, tmp_path)
    assert (config["namespace"], config["workers"]) == ("shop", 8)


def loaded_of_release(release: str, given: Object, folder: Path) -> Object:
    """Return the configuration of a release with this name."""
    objects = render(with_changes(given, {"fullnameOverride": "rota", "labels": {"release": release}}))
    read = loaded(objects, folder).config
    return {"namespace": read.namespace, "workers": read.workers}


def test_commands_on_the_page_name_the_objects_of_the_release() -> None:
    chart = str(ROOT / "deploy/helm/rota")
    shown = run("helm", "template", "shop", chart, "--values", "-", text=YAML["values.yaml"])
    objects = [each for each in yaml.safe_load_all(shown.stdout) if each]
    (name,) = {found for found in re.findall(r"deploy/([\w-]+) ", PAGE) if found != "helm"}
    deployment = only(objects, "Deployment", name)
    (secret,) = re.findall(r"create secret generic ([\w-]+)", PAGE)
    assert f"name: {secret}" in yaml.safe_dump(deployment)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (port,) = container["ports"]
    assert f"port-forward deploy/{name} {port['containerPort']} " in PAGE


def test_error_messages_on_the_page_match_helm() -> None:
    wrong: Object = {
        "config": {"limits": {"drain_secnds": 1}, "queues": {"sold-email": {"weight": "3"}}},
        "resources": {"limits": {"memory": "2 GB"}},
    }
    with pytest.raises(HelmError) as refused:
        render(wrong)
    (said,) = (block.text for block in blocks(PATH) if block.language == "text")
    for line in said.splitlines():
        assert line.removesuffix("...").strip("- ") in str(refused.value)


@pytest.mark.parametrize("name", [name for name in YAML if name.startswith(("networkPolicy", "keda"))])
def test_the_example_values_on_the_kubernetes_page_are_valid(name: str) -> None:
    objects = render(yaml.safe_load(YAML[name]))
    assert objects != render()
    assert [fault for each in objects for fault in faults(each)] == []


def test_the_overlay_on_the_page_can_be_built(tmp_path: Path) -> None:
    shutil.copytree(BASE, tmp_path / "base")
    (tmp_path / "kustomization.yaml").write_text(YAML["kustomization.yaml"])
    built = run("kubectl", "kustomize", str(tmp_path))
    assert built.returncode == 0, built.stderr
    objects = list(yaml.safe_load_all(built.stdout))
    assert [fault for each in objects for fault in faults(each)] == []
    spec = only(objects, "Deployment")["spec"]["template"]["spec"]
    config = loaded(objects, tmp_path).config
    assert (
        config.limits.drain_seconds + default_values()["terminationMarginSeconds"]
        == spec["terminationGracePeriodSeconds"]
    )
    assert (config.namespace, config.workers) == ("shop", 8)


def test_every_chart_value_is_in_the_table_of_the_page() -> None:
    rows = table()
    missing = [str(value) for value in values() if not any(f"{value}.".startswith(f"{row}.") for row in rows)]
    assert missing == []


def test_defaults_in_the_table_match_the_chart() -> None:
    for path, shown in table().items():
        default: Any = default_values()
        for key in path.split("."):
            default = default[key]
        if isinstance(default, dict | list):
            assert shown == "", path
        else:
            assert shown == (default if isinstance(default, str) else json.dumps(default)), path


def test_numbers_on_the_page_match_the_chart_and_the_product() -> None:
    given = default_values()
    assert f"`terminationMarginSeconds` ({given['terminationMarginSeconds']})" in WORDS
    assert f"the user {given['podSecurityContext']['runAsUser']}" in WORDS
    assert f"the chart's default is {given['config']['workers']}." in WORDS
    assert f"exit with {int(ExitCode.UNREACHABLE)}" in WORDS
    assert WORDS.count(f"Kubernetes {VERSIONS[0]} and {VERSIONS[1]}") == 1
    assert f"Kubernetes {VERSIONS[0]} or later" in WORDS
