"""`make coverage` counts every module that must do no I/O according to the import contracts in PURE."""

import tomllib

from support.prose import ROOT

PURE = (
    "The protocol and schedules do no I/O",
    "The doctor: its rules follow from records alone",
    "What the master decides waits for nothing, reaches nobody, and reads no clock",
)


def test_every_pure_module_is_in_the_coverage_list() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    pure = {each["name"]: each["source_modules"] for each in tools["importlinter"]["contracts"] if each["name"] in PURE}
    assert set(pure) == set(PURE)
    counted = tuple(f"{package}." for package in tools["coverage"]["run"]["source_pkgs"])
    assert [module for modules in pure.values() for module in modules if not f"{module}.".startswith(counted)] == []
