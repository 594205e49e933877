"""Files that others still write: a reader may see half a write, so only whole lines are read."""

import json
from pathlib import Path
from typing import Any


class GrowingFile:
    """Reads on from where it stopped. A file that is not there has no lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_lines(self) -> list[bytes]:
        """The lines that were finished since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        return whole.splitlines()


def whole_lines(path: Path) -> list[bytes]:
    """The finished lines of a file."""
    return GrowingFile(path).new_lines()


def logged(path: Path, event: str = "") -> list[dict[str, Any]]:
    """The lines of an event log, of one event or all. What tasks print between them is left out."""
    found = [json.loads(line) for line in whole_lines(path) if line.startswith(b'{"timestamp"')]
    return [line for line in found if event in ("", line["event"])]
