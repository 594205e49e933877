"""A copy of the product, with or without a known bug."""

import os
import shutil
from pathlib import Path

from mutations.changes import ROOT, SOURCES, Change, changed


def make_copy(folder: Path, change: Change | None) -> None:
    """Copy the sources and the compiled files of the product to `folder`, and insert the bug. Raises Stale."""
    for name in SOURCES.values():
        shutil.copytree(ROOT / name, folder / name)
    if change is not None:
        (folder / change.path).write_text(changed(change))


def environment(folder: Path) -> dict[str, str]:
    """Return an environment in which Python finds the copy before the installed packages."""
    path = os.pathsep.join(str(place) for place in (*(folder / name for name in SOURCES.values()), ROOT / "tests"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ROTA_", "PYTEST_"))}
    return kept | {"PYTHONPATH": path, "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis")}
