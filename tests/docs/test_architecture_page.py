"""The code map of ARCHITECTURE.md names exactly the existing modules, and its diagram shows exactly the imports between
packages.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import grimp
import pytest

from support.prose import ROOT

_SECTION = re.compile(r"^### `(?P<folder>[\w/]+)`\n(?P<text>.*?)(?=^##)", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"`(\w+/?)`")
_ARROW = re.compile(r"^  ([\w/]+) --> ([\w/]+)$", re.MULTILINE)
_PLACE = re.compile(r"`((?:rota|config|cli|control|master|exporter)/[\w/]+\.(?:py|lua)|server_check\.py)`")

Arrows = set[tuple[str, str]]


def _page() -> str:
    return (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def _mapped() -> dict[str, set[str]]:
    rows = {found["folder"]: found["text"] for found in _SECTION.finditer(_page())}
    return {
        folder: {
            name for line in text.splitlines() for name in _NAME.findall(line.split("|")[1] if "|" in line else "")
        }
        for folder, text in rows.items()
    }


def _modules(folder: Path) -> set[str]:
    files = {path.stem for path in folder.glob("*.py")}
    folders = {f"{path.name}/" for path in folder.iterdir() if path.is_dir() and path.name != "__pycache__"}
    return files | folders


_TABLES = (
    "workers/rota",
    "workers/rota/client",
    "workers/rota/tasks",
    "workers/rota/testing",
    "workers/rota/contrib/django",
    "supervisor/rota_supervisor",
    "supervisor/rota_supervisor/master",
)


@pytest.mark.parametrize("folder", _TABLES)
def test_code_map_names_exactly_the_modules(folder: str) -> None:
    assert _mapped()[folder] - {"lua/shared/"} == _modules(ROOT / folder) - {"__init__"}


def _reached_from(box: str, arrows: Arrows) -> set[str]:
    reached, waiting = set[str](), [box]
    while waiting:
        found = {to for at, to in arrows if at == waiting[-1]} - reached
        waiting.pop()
        reached |= found
        waiting += found
    return reached


def _package_of(box: str) -> str:
    inside = (ROOT / "workers/rota" / box).is_dir()
    return f"{'rota' if inside else 'rota_supervisor'}.{box.replace('/', '.')}"


def _imports_between(boxes: Iterable[str]) -> Arrows:
    graph = grimp.build_graph("rota", "rota_supervisor", exclude_type_checking_imports=True)
    inside = {box: {_package_of(box), *graph.find_descendants(_package_of(box))} for box in boxes}
    imported = {
        box: {each for module in modules for each in graph.find_modules_directly_imported_by(module)}
        for box, modules in inside.items()
    }
    return {(at, to) for at in inside for to in inside if at != to and imported[at] & inside[to]}


def _folders() -> set[str]:
    master = ROOT / "supervisor/rota_supervisor/master"
    inside = {f"master/{each.parent.name}" for each in master.glob("*/__init__.py")}
    return inside | {
        each.parent.name for root in ("workers", "supervisor") for each in (ROOT / root).glob("*/*/__init__.py")
    } - {"master"}


def test_diagram_matches_the_imports() -> None:
    drawn = set(_ARROW.findall(_page()))
    assert {box for arrow in drawn for box in arrow} == _folders()
    imports = _imports_between({box for arrow in drawn for box in arrow})
    assert drawn - imports == set(), "arrows without an import"
    assert {(at, to) for at, to in imports if to not in _reached_from(at, drawn)} == set(), "imports without a way"


def test_every_file_that_the_architecture_page_names_exists() -> None:
    section = _page().partition("## Where do I change ...")[2].partition("\n## ")[0]
    places = _PLACE.findall(section)
    assert len(places) > 25
    roots = ("workers", "supervisor/rota_supervisor", ".")
    assert [place for place in places if not any((ROOT / root / place).is_file() for root in roots)] == []
