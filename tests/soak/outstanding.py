"""Tasks that were sent but have not ended according to the tasks' journal. A producer limits its pace by their number,
without the server.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from soak.evidence import RunEvent
from support.growing_files import GrowingFile

_END: Final = f'"what":"{RunEvent.END.value}"'.encode()


class Outstanding:
    """Accepted ids without an end in the journal at `path`."""

    def __init__(self, path: Path) -> None:
        self._journal = GrowingFile(path)
        self._waited_for: set[str] = set()
        self._ended: set[str] = set()

    def add(self, ids: Iterable[str]) -> None:
        """Add tasks that have not ended yet."""
        self._waited_for |= set(ids) - self._ended

    def forget(self, each: str) -> None:
        """Remove a task."""
        self._waited_for.discard(each)

    def count(self) -> int:
        """Return the current number of outstanding tasks."""
        for line in self._journal.new_lines():
            if _END in line:
                ended = json.loads(line)["id"]
                self._ended.add(ended)
                self._waited_for.discard(ended)
        return len(self._waited_for)
