"""Where a contender is measured: the server, and the folder in which its tasks write down what they did."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from benchmarks.probe import WORDS, words
from support.servers import Server

LOOK_SECONDS = 0.002


class Failed(Exception):
    """A contender did not do what was asked of it; it is reported, and the others go on."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the journal. Both times are microseconds of this machine's clock."""

    event: str
    label: int
    at: float
    pid: int

    @property
    def late_ms(self) -> float:
        """How long after the moment in its label it was written."""
        return (self.at - self.label) / 1000


def parse_journal(text: str) -> list[Line]:
    """The whole lines of a journal; what is still being written is left out."""
    whole = text[: text.rfind("\n") + 1]
    rows = (line.split() for line in whole.splitlines())
    return [Line(event, int(label), int(at_ns) / 1000, int(pid)) for event, label, at_ns, pid in rows]


def wait_until(done: Callable[[], bool], what: str, seconds: float, look_seconds: float = LOOK_SECONDS) -> None:
    """Look every 2 ms until it is done. Raises Failed when it is not in time."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise Failed(f"not within {seconds:g} s: {what}")
        time.sleep(look_seconds)


class Place:
    """A server and a folder, emptied for each contender."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.url = server.url
        self.folder = folder
        self.server_pid = server.pid
        self.client: Any = redis.Redis.from_url(server.url, socket_timeout=None)

    def clear(self) -> None:
        """Forget everything: what the server holds, what tasks wrote, what the runner told them."""
        self.client.flushall()
        for name in ("journal", "places"):
            (self.folder / name).write_bytes(b"")
        (self.folder / "counts").write_bytes(bytes(WORDS * 8))
        for name in ("met", "let-go"):
            (self.folder / name).unlink(missing_ok=True)

    def tell(self, word: str) -> None:
        """Tell waiting tasks to go on: `met` or `let-go`."""
        (self.folder / word).touch()

    def environment(self) -> dict[str, str]:
        """This process's environment without settings of Rota, and what the tasks need to know. Python keeps what it
        compiles, as it does where packages are installed."""
        left_out = ("ROTA_", "REDIS_", "PYTHONDONTWRITEBYTECODE")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        return inherited | {"BENCH_URL": self.url, "BENCH_FOLDER": str(self.folder)}

    def counted(self) -> int:
        """How many calls were counted since `clear`, by all processes."""
        return sum(words(self.folder)[0::2])

    def busy_seconds(self) -> float:
        """How long those calls that tell their length took together."""
        return sum(words(self.folder)[1::2]) / 1_000_000

    def journal(self, event: str) -> list[Line]:
        """The lines of this event since `clear`."""
        return [line for line in parse_journal((self.folder / "journal").read_text()) if line.event == event]

    def forget_journal(self) -> None:
        """Begin the journal anew; writers append, so nothing is torn."""
        os.truncate(self.folder / "journal", 0)

    def wait_for_lines(self, event: str, count: int, seconds: float) -> list[Line]:
        """Wait until the journal has so many lines of this event. Raises Failed when it has not in time."""
        wait_until(lambda: self._told(event) >= count, f"{count} x {event}", seconds, look_seconds=0.05)
        return self.journal(event)

    def _told(self, event: str) -> int:
        """How many whole lines of this event there are. Parsing them would slow down what is waited for."""
        text = b"\n" + (self.folder / "journal").read_bytes()
        return text[: text.rfind(b"\n")].count(b"\n" + event.encode() + b" ")
