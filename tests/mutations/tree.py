"""A copy of the product, with one known bug in it or without."""

import os
import shutil
from pathlib import Path

from mutations.changes import ROOT, SOURCES, Change, changed


def make_copy(folder: Path, change: Change | None) -> None:
    """Copy the sources to `folder`, compiled files as well, and put the bug in. Raises Stale."""
    for name in SOURCES.values():
        shutil.copytree(ROOT / name, folder / name)
    if change is not None:
        (folder / change.path).write_text(changed(change))


def environment(folder: Path) -> dict[str, str]:
    """An environment in which Python finds the copy before what is installed."""
    path = os.pathsep.join(str(place) for place in (*(folder / name for name in SOURCES.values()), ROOT / "tests"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ROTA_", "PYTEST_"))}
    return kept | {"PYTHONPATH": path, "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis")}
