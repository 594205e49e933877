"""docs/tasks.md matches the options in the code."""

import re
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

import rota
from rota.client.preparation import prepare
from rota.tasks.call import CallOptions
from rota.tasks.options import TaskArguments, TaskOptions
from rota.tasks.registry import Registry
from support.prose import ROOT

PAGE = (ROOT / "docs/tasks.md").read_text(encoding="utf-8")
_ROW = re.compile(
    r"^\| `(?P<option>\w+)` \| (?P<default>[^|]*) \| `(?P<example>[^|]+)` \| (?P<meaning>[^|]+) \|$", re.MULTILINE
)
_KNOWN = {"rota": rota, "timedelta": timedelta, "datetime": datetime, "UTC": UTC}


class Row(NamedTuple):
    """A row of the page that describes an option."""

    option: str
    default: str
    example: str
    meaning: str

    def given(self) -> dict[str, Any]:
        """Return the arguments in the row's example."""
        found: dict[str, Any] = eval(f"dict({self.example})", _KNOWN)
        assert self.option in found
        return found


def _rows(heading: str) -> list[Row]:
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [Row(*found) for found in _ROW.findall(section)]


DECLARED, CALLED = _rows("Options of `@rota.task`"), _rows("Options of one call")


def test_the_tasks_page_has_a_row_for_every_option() -> None:
    assert sorted(row.option for row in DECLARED) == sorted(["name", *TaskArguments.__annotations__])
    assert sorted(row.option for row in CALLED) == sorted(CallOptions.__annotations__)


def test_the_tasks_page_lists_every_default() -> None:
    said = {row.option: eval(row.default.strip("`"), _KNOWN) for row in DECLARED if row.default.startswith("`")}
    said["retry_on"] = (said["retry_on"],)
    assert said == {field.name: field.default for field in fields(TaskOptions)}


@pytest.mark.parametrize("row", DECLARED, ids=lambda row: row.option)
def test_option_examples_are_valid_and_change_something(row: Row) -> None:
    made = rota.task(**row.given())
    assert (made._name, made._options, made._periodic) != (None, TaskOptions(), ())


@pytest.mark.parametrize("row", CALLED, ids=lambda row: row.option)
def test_call_option_examples_are_valid_and_change_something(row: Row) -> None:
    plain: dict[str, Any] = {"queue": "default", "id": "7"}
    made, unchanged = (prepare(rota.Call("resize", **given), Registry(), 512) for given in (plain | row.given(), plain))
    assert made != unchanged
