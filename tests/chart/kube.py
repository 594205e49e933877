"""helm and kubectl, which `make chart` installs in the virtual environment, and functions that render the chart with
them.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

TOP: Final = Path(__file__).resolve().parents[2]
CHART: Final = TOP / "deploy" / "helm" / "rota"
BASE: Final = TOP / "deploy" / "kustomize" / "base"
FOLDER: Final = Path(sys.prefix) / "kube"
RELEASE: Final = "rota"
HELMS: Final = ("helm", "helm3")
TIMEOUT_SECONDS: Final = 60

Object = dict[str, Any]  # a Kubernetes object, or the values of the chart


class HelmError(Exception):
    """Raised if helm fails. The message is the text that helm reported."""


def run(program: str, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run helm, helm3 or kubectl without any settings of this machine. The exit code is not checked."""
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "HELM_CACHE_HOME": "/nonexistent"}
    command = [str(FOLDER / "bin" / program), *arguments]
    return subprocess.run(
        command, input=text, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )


def render(values: Mapping[str, Any] | None = None, *flags: str, helm: str = "helm") -> list[Object]:
    """Return the objects that the chart renders with these values. Raises HelmError if helm refuses them."""
    return parsed(rendered_text(values, *flags, helm=helm))


def parsed(text: str) -> list[Object]:
    """Return the objects in a YAML text."""
    return [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]


def rendered_text(values: Mapping[str, Any] | None = None, *flags: str, helm: str = "helm") -> str:
    """Return the output of `helm template` with these values. Raises HelmError if helm refuses them."""
    return _rendered(json.dumps(values or {}), helm, flags)


@cache
def _rendered(values: str, helm: str, flags: tuple[str, ...]) -> str:
    done = run(helm, "template", RELEASE, str(CHART), "--values", "-", *flags, text=values)
    if done.returncode:
        raise HelmError(done.stderr)
    return done.stdout


def only(objects: list[Object], kind: str, name: str = "") -> Object:
    """Return the only object of this kind, or the object of this kind with this name."""
    (found,) = (each for each in objects if each["kind"] == kind and name in ("", each["metadata"]["name"]))
    return found


def default_values() -> Object:
    """Return the content of values.yaml."""
    values: Object = yaml.safe_load((CHART / "values.yaml").read_text())
    return values


def with_changes(values: Mapping[str, Any], changes: Mapping[str, Any]) -> Object:
    """Return the values with changes merged in the way that helm does: tables are merged, and everything else is
    replaced.
    """
    merged = dict(values)
    for key, value in changes.items():
        below = merged.get(key)
        is_table = isinstance(value, Mapping) and isinstance(below, Mapping)
        merged[key] = with_changes(below, value) if is_table and below is not None else value
    return merged


def at_path(path: tuple[str, ...], value: Any) -> Object:
    """Return nested tables with this value at this path."""
    for key in reversed(path):
        value = {key: value}
    nested: Object = value
    return nested
