"""Tasks that were sent and have not ended, by the tasks' own journal. A producer paces itself by it, without the
server."""

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
        """Count these, unless they have ended already."""
        self._waited_for |= set(ids) - self._ended

    def forget(self, each: str) -> None:
        """Do not count this one any more."""
        self._waited_for.discard(each)

    def count(self) -> int:
        """Return how many there are now."""
        for line in self._journal.new_lines():
            if _END in line:
                ended = json.loads(line)["id"]
                self._ended.add(ended)
                self._waited_for.discard(ended)
        return len(self._waited_for)
