"""What the runner knows of a contender: which processes make up its fleet, and which one enqueues for it."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from benchmarks.place import Place

ROOT = Path(__file__).resolve().parent.parent
OWN_PYTHON = Path(sys.executable)


class StartedFleet(Protocol):
    """What a contender needs of its fleet once that runs."""

    @property
    def place(self) -> Place:
        """Where it runs."""

    def freeze(self) -> None:
        """Stop every process of the fleet."""

    def thaw(self) -> None:
        """Let them go on."""


class Contender(Protocol):
    """One system under test. A file of `benchmarks.contenders` each."""

    @property
    def name(self) -> str:
        """What it is called in tables and plots."""

    @property
    def package(self) -> str:
        """The package that has to be installed for it."""

    @property
    def measures(self) -> frozenset[str]:
        """What it can be measured in."""

    @property
    def settings(self) -> str:
        """How it is set up, in words, for the report."""

    @property
    def at_least_once(self) -> bool:
        """Whether a task survives the death of the process that runs it."""

    def producer(self) -> list[str]:
        """The process that enqueues."""

    def versions(self) -> dict[str, str]:
        """What is installed of it, by package; nothing when it is not there."""

    def commands(self, place: Place, workers: int) -> list[list[str]]:
        """The processes to start for a fleet of so many workers."""

    def environment(self, place: Place) -> dict[str, str]:
        """What they need in their environment beyond `Place.environment`."""

    def hold(self, running: StartedFleet) -> None:
        """Keep the fleet from claiming, so that tasks can pile up before it."""

    def let_go(self, running: StartedFleet) -> None:
        """Have it begin."""

    def settled(self, place: Place) -> int | None:
        """How many tasks it has put in its books as done; None where it keeps none to look at."""

    def ready_workers(self, running: StartedFleet) -> set[int] | None:
        """The pids of its workers that are ready; None where only the tasks tell."""


EVERYTHING = frozenset({"drain", "work", "enqueue", "lag", "burst", "wake", "idle", "memory", "crash", "start"})
UNSCHEDULED = EVERYTHING - {"lag", "burst"}
AT_ONCE = frozenset({"waits", "steady", "held"})  # of those that run a hundred tasks at once in a process
_INSTALLED = (
    "import json,sys,importlib.metadata as m;"
    "print(json.dumps({d.name.lower(): d.version for d in m.distributions() if d.name.lower() in sys.argv[1:]}))"
)


class OnPython:
    """A contender with a module that has its tasks and its producer, in an interpreter that has it."""

    name: str
    python: Path
    app: str

    @property
    def package(self) -> str:
        """The package of its name: -c and a number, -ends and +log say how it is set up."""
        return re.sub(r"-(c\d+|ends)$|\+.*", "", self.name)

    def producer(self) -> list[str]:
        """Drives the module."""
        return [str(self.python), "-m", "benchmarks.drive", self.app]

    def versions(self) -> dict[str, str]:
        """What its interpreter tells."""
        if not self.python.exists():
            return {}
        wanted = [self.package, "redis", "hiredis", "kombu", "taskiq-redis"]
        asked = subprocess.run([self.python, "-c", _INSTALLED, *wanted], capture_output=True, text=True, check=True)
        found: dict[str, str] = json.loads(asked.stdout)
        return found


@dataclass(frozen=True)
class Plain(OnPython):
    """A contender without anything special to it."""

    name: str
    app: str
    argv: Sequence[Sequence[str]]
    settings: str
    at_least_once: bool = True
    measures: frozenset[str] = EVERYTHING
    python: Path = OWN_PYTHON
    copies: bool = False  # one process a worker, instead of a parent that is told how many
    extra: dict[str, str] = field(default_factory=dict)

    def commands(self, place: Place, workers: int) -> list[list[str]]:  # noqa: ARG002 # the Protocol's signature
        """Each command with `{workers}` and `{bin}` filled in, once or once a worker."""
        words = {"workers": str(workers), "bin": str(self.python.parent), "python": str(self.python)}
        commands = [[word.format_map(words) for word in argv] for argv in self.argv]
        return commands * workers if self.copies else commands

    def environment(self, place: Place) -> dict[str, str]:  # noqa: ARG002 # the Protocol's signature
        """What it was made with."""
        return self.extra

    def hold(self, running: StartedFleet) -> None:
        """Stop its processes."""
        running.freeze()

    def let_go(self, running: StartedFleet) -> None:
        """Let them go on."""
        running.thaw()

    def settled(self, place: Place) -> int | None:  # noqa: ARG002 # the Protocol's signature
        """It keeps no books to look at."""
        return None

    def ready_workers(self, running: StartedFleet) -> set[int] | None:  # noqa: ARG002 # the Protocol's signature
        """Its tasks tell."""
        return None
