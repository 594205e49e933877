"""The environment of a measurement: the server, and a folder that contains the journal in which tasks record their
starts.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from benchmarks.probe import WORDS, words
from support.servers import Server

POLL_SECONDS = 0.002


class Failed(Exception):
    """Raised if a contender fails. The failure is reported, and the other contenders are still measured."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the journal. `label` and `at` are usually times, in microseconds of this machine's clock."""

    event: str
    label: int
    at: float
    pid: int

    @property
    def late_ms(self) -> float:
        """The milliseconds from the time in `label` to the time of the event."""
        return (self.at - self.label) / 1000


def parse_journal(text: str) -> list[Line]:
    """Return the complete lines of a journal. An incomplete last line is left out."""
    whole = text[: text.rfind("\n") + 1]
    rows = (line.split() for line in whole.splitlines())
    return [Line(event, int(label), int(at_ns) / 1000, int(pid)) for event, label, at_ns, pid in rows]


def wait_until(done: Callable[[], bool], what: str, seconds: float, poll_seconds: float = POLL_SECONDS) -> None:
    """Call `done` every 2 ms until it returns True. Raises Failed if it has not done so within `seconds`. `what`
    describes the condition for the error message.
    """
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise Failed(f"not within {seconds:g} s: {what}")
        time.sleep(poll_seconds)


class Testbed:
    """A server and a folder. Both are emptied for each contender."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.url = server.url
        self.folder = folder
        self.server_pid = server.pid
        self.client: Any = redis.Redis.from_url(server.url, socket_timeout=None)

    def clear(self) -> None:
        """Delete the data of the server, the journal, the call counts of the tasks, and the files that signal tasks to
        continue.
        """
        self.client.flushall()
        for name in ("journal", "places"):
            (self.folder / name).write_bytes(b"")
        (self.folder / "counts").write_bytes(bytes(WORDS * 8))
        for name in ("met", "let-go"):
            (self.folder / name).unlink(missing_ok=True)

    def tell(self, word: str) -> None:
        """Signal waiting tasks to continue. `word`: `met` for tasks of `probe.meet`, or `let-go` for tasks of
        `probe.hold`."""
        (self.folder / word).touch()

    def environment(self) -> dict[str, str]:
        """Return the environment variables for the processes of a contender: the variables of this process without the
        settings of Rota, and the variables that the tasks need. Python may write bytecode files, as in an
        installation.
        """
        left_out = ("ROTA_", "REDIS_", "PYTHONDONTWRITEBYTECODE")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        return inherited | {"BENCH_URL": self.url, "BENCH_FOLDER": str(self.folder)}

    def counted(self) -> int:
        """Return how many tasks have been called since `clear`, in all processes."""
        return sum(words(self.folder)[0::2])

    def busy_seconds(self) -> float:
        """Return the sum of the durations that tasks have recorded, in seconds."""
        return sum(words(self.folder)[1::2]) / 1_000_000

    def journal(self, event: str) -> list[Line]:
        """Return the lines of this event that were written since `clear` or `forget_journal`."""
        return [line for line in parse_journal((self.folder / "journal").read_text()) if line.event == event]

    def forget_journal(self) -> None:
        """Empty the journal. This is safe while tasks write, because each line is appended by one write."""
        os.truncate(self.folder / "journal", 0)

    def wait_for_lines(self, event: str, count: int, seconds: float) -> list[Line]:
        """Wait until the journal has `count` lines of this event, and return them. Raises Failed if this takes longer
        than `seconds`.
        """
        wait_until(lambda: self._told(event) >= count, f"{count} x {event}", seconds, poll_seconds=0.05)
        return self.journal(event)

    def _told(self, event: str) -> int:
        """Return how many complete lines of this event the journal has. The lines are not parsed, because this would
        slow the tasks down.
        """
        text = b"\n" + (self.folder / "journal").read_bytes()
        return text[: text.rfind(b"\n")].count(b"\n" + event.encode() + b" ")
