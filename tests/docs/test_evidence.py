"""Each row of docs/features.md and docs/faults.md names its evidence. The tests and files that these pages name
exist.
"""

import re
from pathlib import Path

import pytest

from support.prose import ROOT

_TEST = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
_NAMED_TEST = re.compile(r"`(test_\w+)`")
_NAMED_FILE = re.compile(r"`((?:rota|rota_supervisor|deploy|grafana)/[\w./-]*)`")
_ROW = re.compile(r"^\| ([A-Z]?\d+) \|(.*)\|$", re.MULTILINE)
_PAGES = ("docs/features.md", "docs/faults.md")
_FOLDERS = {"rota": "workers", "rota_supervisor": "supervisor"}


def _page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _path(name: str) -> Path:
    return ROOT / _FOLDERS.get(name.partition("/")[0], ".") / name


@pytest.mark.parametrize("page", _PAGES)
def test_every_test_named_as_evidence_exists(page: str) -> None:
    known = {name for file in (ROOT / "tests").rglob("test_*.py") for name in _TEST.findall(file.read_text())}
    assert set(_NAMED_TEST.findall(_page(page))) - known == set()


@pytest.mark.parametrize("page", _PAGES)
def test_every_file_named_as_evidence_exists(page: str) -> None:
    assert [name for name in _NAMED_FILE.findall(_page(page)) if not _path(name).exists()] == []


@pytest.mark.parametrize("page", _PAGES)
def test_every_feature_and_fault_has_a_test_or_is_marked_not_yet(page: str) -> None:
    rows = _ROW.findall(_page(page))
    assert [number for number, text in rows if not re.search(r"`test_\w+`|not yet", text.rpartition("|")[2])] == []


def test_faults_are_numbered_without_gaps() -> None:
    numbers = [int(number) for number, _ in _ROW.findall(_page("docs/faults.md"))]
    assert numbers == list(range(1, 77))
