"""A copy of the product with one known bug in it."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = ("workers", "supervisor")


class Stale(Exception):
    """The text that a mutation replaces is not there exactly once: the product has changed, and the mutation has
    not."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """In the file at `path`, below the root, `old` stands exactly once; the bug is to have `new` there."""

    path: str
    old: str
    new: str

    def applied_to(self, text: str) -> str:
        """The text with the bug. Raises Stale."""
        found = text.count(self.old)
        if found != 1 or self.new == self.old:
            raise Stale(f"{self.path}: this stands there {found} times, not once: {self.old!r}")
        return text.replace(self.old, self.new)


def make_copy(folder: Path, replacements: tuple[Replacement, ...]) -> None:
    """Copy the sources to `folder`, compiled files as well, and replace. Raises Stale."""
    for name in SOURCES:
        shutil.copytree(ROOT / name, folder / name)
    for each in replacements:
        place = folder / each.path
        place.write_text(each.applied_to(place.read_text()))


def environment(folder: Path) -> dict[str, str]:
    """An environment in which Python finds the copy before what is installed."""
    path = os.pathsep.join(str(place) for place in (*(folder / name for name in SOURCES), ROOT / "tests"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ROTA_", "PYTEST_"))}
    return kept | {"PYTHONPATH": path, "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis")}
