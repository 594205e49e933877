"""The bill of materials of a release is complete, names no file of the build machine, and lists only permissive
licences.
"""

import json
import tomllib
from typing import Any, Final

import pytest
from packaging.requirements import Requirement

from support.prose import ROOT

PERMISSIVE: Final = frozenset(
    {
        "Apache-2.0",
        "Apache-2.0 AND BSD-2-Clause",
        "BSD-3-Clause",
        "License :: OSI Approved :: BSD License",
        "MIT",
        "MIT OR Apache-2.0",
    }
)


@pytest.fixture(scope="module")
def bill() -> dict[str, Any]:
    [file] = (ROOT / "dist").glob("*.cdx.json")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def licences(component: dict[str, Any]) -> set[str]:
    """Return the licences of a component, either as SPDX expressions or in the words of its author."""
    found = component.get("licenses", [])
    return {each.get("expression") or each["license"].get("id") or each["license"]["name"] for each in found}


def test_the_bill_lists_every_dependency(bill: dict[str, Any]) -> None:
    listed = {component["name"].replace("_", "-") for component in bill["components"]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"rota", *(Requirement(each).name for each in project["dependencies"])} <= listed


def test_every_licence_is_permissive(bill: dict[str, Any]) -> None:
    found = {component["name"]: licences(component) for component in bill["components"]}
    assert {name: names for name, names in found.items() if not names or not names <= PERMISSIVE} == {}


def test_the_bill_names_no_file_of_this_machine(bill: dict[str, Any]) -> None:
    assert str(ROOT) not in json.dumps(bill)
