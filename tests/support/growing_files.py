"""Files that other processes are still writing. A reader may see only part of a write, so only complete lines are
returned.
"""

import json
from pathlib import Path
from typing import Any


class GrowingFile:
    """A file that is read in steps: each read starts where the previous one stopped. A missing file counts as empty."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_lines(self) -> list[bytes]:
        """Return the lines that were completed since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        return whole.splitlines()


def whole_lines(path: Path) -> list[bytes]:
    """Return the complete lines of a file."""
    return GrowingFile(path).new_lines()


def logged(path: Path, event: str = "") -> list[dict[str, Any]]:
    """Return the lines of an event log, or only those of `event`. The output of tasks is left out."""
    found = [json.loads(line) for line in whole_lines(path) if line.startswith(b'{"timestamp"')]
    return [line for line in found if event in ("", line["event"])]
