"""The code map of ARCHITECTURE.md names every module, and nothing that is gone."""

import re
from pathlib import Path

import pytest

from prose import ROOT

_SECTION = re.compile(r"^### `(?P<folder>[\w/]+)`\n(?P<text>.*?)(?=^##)", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"`(\w+/?)`")


def _mapped() -> dict[str, set[str]]:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = {found["folder"]: found["text"] for found in _SECTION.finditer(page)}
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


@pytest.mark.parametrize("folder", ["workers/rota", "supervisor/rota_supervisor", "supervisor/rota_supervisor/master"])
def test_the_code_map_names_every_module_and_no_other(folder: str) -> None:
    assert _mapped()[folder] - {"lua/shared/"} == _modules(ROOT / folder) - {"__init__"}
