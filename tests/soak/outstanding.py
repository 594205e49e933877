"""The tasks that a producer has sent and that have not ended, according to the tasks' journal. If there are too many of
them, the producer pauses. Counting them needs no reply from the server.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from soak.evidence import RunEvent
from support.growing_files import GrowingFile

_END: Final = f'"what":"{RunEvent.END.value}"'.encode()


class Outstanding:
    """The ids of accepted tasks whose end is not yet recorded in the tasks' journal at `path`."""

    def __init__(self, path: Path) -> None:
        self._journal = GrowingFile(path)
        self._waited_for: set[str] = set()
        self._ended: set[str] = set()

    def add(self, ids: Iterable[str]) -> None:
        """Add accepted tasks. Tasks that have already ended do not count."""
        self._waited_for |= set(ids) - self._ended

    def forget(self, each: str) -> None:
        """Stop counting a task."""
        self._waited_for.discard(each)

    def count(self) -> int:
        """Read the new lines of the journal, and return the current number of outstanding tasks."""
        for line in self._journal.new_lines():
            if _END in line:
                ended = json.loads(line)["id"]
                self._ended.add(ended)
                self._waited_for.discard(ended)
        return len(self._waited_for)
