"""The journals of the demo: what the producer was promised and what the tasks did, one JSON line each.

A line is one `os.write` to a file opened for appending, so several processes share it without tearing, and
what a process wrote stays when it is killed. Times are Unix seconds of this machine's clock, which is also
that of the embedded server.
"""

import dataclasses
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

ACCEPTED_FILE: Final = "accepted.jsonl"
RUNS_FILE: Final = "runs.jsonl"


class What(StrEnum):
    """What a task writes down: when an attempt starts, and how it ended unless its worker was killed."""

    START = "start"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Accepted:
    """A task that the server has taken: enqueued at `sent_at`, to run `delay_seconds` later."""

    task_id: str
    task: str
    queue: str
    sent_at: float
    delay_seconds: float

    @property
    def not_before(self) -> float:
        """The earliest time at which it may start. The server took it later than it was sent."""
        return self.sent_at + self.delay_seconds


@dataclass(frozen=True, slots=True)
class Mark:
    """One line that a task wrote about an attempt."""

    what: What
    task_id: str
    task: str
    attempt: int
    pid: int
    at: float
    due_at: float


def append(path: Path, records: Iterable[Accepted | Mark]) -> None:
    """Add records to a journal, each as a line in a write of its own. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        for record in records:
            os.write(fd, json.dumps(dataclasses.asdict(record)).encode() + b"\n")
    finally:
        os.close(fd)


def read_accepted(path: Path) -> list[Accepted]:
    """All of the producer's journal; empty when there is none."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [Accepted(**json.loads(line)) for line in lines]


class JournalRuns:
    """What the tasks have written so far: read on with `read_on`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.marks: list[Mark] = []
        self.done: set[str] = set()

    def read_on(self) -> None:
        """Take in the lines that were added. A line without its end is left for the next time."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        for line in whole.splitlines():
            fields = json.loads(line)
            mark = Mark(**fields | {"what": What(fields["what"])})
            self.marks.append(mark)
            if mark.what is What.DONE:
                self.done.add(mark.task_id)

    def starts(self, task_id: str) -> list[Mark]:
        """The starts of one task, in order."""
        return [mark for mark in self.marks if mark.task_id == task_id and mark.what is What.START]
