"""What was sent and has not ended, by the tasks' own journal: how a producer paces itself without asking the server."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from soak.evidence import RunEvent
from support.growing_files import GrowingFile

_END: Final = f'"what":"{RunEvent.END.value}"'.encode()


class Outstanding:
    """Ids that were accepted and for which no end stands in the journal at `path`."""

    def __init__(self, path: Path) -> None:
        self._journal = GrowingFile(path)
        self._waited_for: set[str] = set()
        self._ended: set[str] = set()

    def add(self, ids: Iterable[str]) -> None:
        """Count these, unless they were quick to end."""
        self._waited_for |= set(ids) - self._ended

    def forget(self, each: str) -> None:
        """Do not count this one any more."""
        self._waited_for.discard(each)

    def count(self) -> int:
        """How many there are now."""
        for line in self._journal.new_lines():
            if _END in line:
                ended = json.loads(line)["id"]
                self._ended.add(ended)
                self._waited_for.discard(ended)
        return len(self._waited_for)
