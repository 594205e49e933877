"""The committed derived files match the chart and the product, and Kustomize can use the base."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft7Validator

from chart.derived_files import BY_HAND, SCHEMA, derived_files
from chart.kube import BASE, CHART, TOP, Object, only, run
from chart.validation import faults

COMMITTED = (SCHEMA, *sorted(BASE.iterdir()))
MARKS = ("helm.sh/", "managed-by")

OVERLAY = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: shop
resources: [base]
images: [{name: rota, newName: registry.example/shop, newTag: 1.2.3}]
replicas: [{name: rota, count: 5}]
"""


@pytest.fixture(scope="module")
def derived() -> dict[Path, str]:
    """Return the derived files as the current code generates them."""
    return derived_files()


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: str(path.relative_to(TOP)))
def test_each_derived_file_is_up_to_date(path: Path, derived: dict[Path, str]) -> None:
    assert path.read_text() == derived[path], "run `make chart-files`, and commit what it wrote"


def test_no_derived_file_is_missing(derived: dict[Path, str]) -> None:
    assert set(derived) == set(COMMITTED)


def test_the_values_schema_is_valid_and_uses_all_of_its_definitions() -> None:
    schema = json.loads(SCHEMA.read_text())
    Draft7Validator.check_schema(schema)
    text = SCHEMA.read_text()
    unused = [name for name in schema["definitions"] if f'"#/definitions/{name}"' not in text]
    assert unused == []
    assert set(BY_HAND) < set(schema["definitions"])


def test_rules_and_dashboards_of_the_chart_match_the_repository() -> None:
    links = {path: path.resolve() for path in (CHART / "files").iterdir()}
    assert links == {
        CHART / "files/recording.yml": TOP / "deploy/prometheus/recording.yml",
        CHART / "files/alerts.yml": TOP / "deploy/prometheus/alerts.yml",
        CHART / "files/dashboards": TOP / "grafana/dashboards",
    }


def built(folder: Path) -> list[Object]:
    """Return the objects that `kubectl kustomize` builds from a folder."""
    done = run("kubectl", "kustomize", str(folder))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return list(yaml.safe_load_all(done.stdout))


def test_kubectl_builds_valid_objects_without_helm_labels() -> None:
    objects = built(BASE)
    assert [fault for each in objects for fault in faults(each)] == []
    assert {each["kind"] for each in objects} == {
        "ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "ServiceAccount",
    }  # fmt: skip
    assert not any(mark in yaml.safe_dump(objects) for mark in MARKS)


def test_an_overlay_sets_image_namespace_and_number_of_pods(tmp_path: Path) -> None:
    subprocess.run(["cp", "-r", str(BASE), str(tmp_path / "base")], check=True)
    (tmp_path / "kustomization.yaml").write_text(OVERLAY)
    objects = built(tmp_path)
    assert [fault for each in objects for fault in faults(each)] == []
    assert {each["metadata"]["namespace"] for each in objects} == {"shop"}
    spec = only(objects, "Deployment")["spec"]
    assert spec["replicas"] == 5
    assert spec["template"]["spec"]["containers"][0]["image"] == "registry.example/shop:1.2.3"
