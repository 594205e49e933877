"""The interface of a contender: the processes of its fleet, and the process that enqueues its tasks."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from benchmarks.testbed import Testbed

ROOT = Path(__file__).resolve().parent.parent
OWN_PYTHON = Path(sys.executable)


class StartedFleet(Protocol):
    """The part of a running fleet that its contender uses."""

    @property
    def testbed(self) -> Testbed:
        """The server and the folder that the fleet uses."""

    def freeze(self) -> None:
        """Stop every process of the fleet."""

    def thaw(self) -> None:
        """Continue the stopped processes."""


class Contender(Protocol):
    """A system under test. Each has a module in `benchmarks.contenders`."""

    @property
    def name(self) -> str:
        """The name in tables and plots."""

    @property
    def package(self) -> str:
        """The package that must be installed."""

    @property
    def measures(self) -> frozenset[str]:
        """The measurements that the contender supports."""

    @property
    def settings(self) -> str:
        """The settings, as text for the report."""

    @property
    def at_least_once(self) -> bool:
        """Whether a task survives the death of the process that runs it."""

    def producer(self) -> list[str]:
        """Return the command that starts the producer process."""

    def versions(self) -> dict[str, str]:
        """Return the versions of the installed packages by name, or an empty dict if the contender is not installed."""

    def commands(self, testbed: Testbed, workers: int) -> list[list[str]]:
        """Return the commands of the processes to start for a fleet with this number of workers."""

    def environment(self, testbed: Testbed) -> dict[str, str]:
        """Return the environment variables that the processes need in addition to `Testbed.environment`."""

    def hold(self, running: StartedFleet) -> None:
        """Prevent the fleet from claiming, so that tasks accumulate."""

    def let_go(self, running: StartedFleet) -> None:
        """Let the fleet claim again."""

    def settled(self, testbed: Testbed) -> int | None:
        """Return how many tasks the contender has counted as done, or None if the contender has no such counter."""

    def ready_workers(self, running: StartedFleet) -> set[int] | None:
        """Return the pids of the ready workers, or None if only running tasks show which workers are ready."""


EVERYTHING = frozenset({"drain", "work", "enqueue", "lag", "burst", "wake", "idle", "memory", "crash", "start"})
UNSCHEDULED = EVERYTHING - {"lag", "burst"}
AT_ONCE = frozenset({"waits", "steady", "held"})  # measurements in which one process runs a hundred tasks at once
_INSTALLED = (
    "import json,sys,importlib.metadata as m;"
    "print(json.dumps({d.name.lower(): d.version for d in m.distributions() if d.name.lower() in sys.argv[1:]}))"
)


class OnPython:
    """A contender whose tasks and producer are in a Python module. The module is run by the interpreter in whose
    environment the contender is installed.
    """

    name: str
    python: Path
    app: str

    @property
    def package(self) -> str:
        """The name of the package: the contender's name without the suffixes for settings, such as `-c100`, `-ends` and
        `+log`."""
        return re.sub(r"-(c\d+|ends)$|\+.*", "", self.name)

    def producer(self) -> list[str]:
        """Return the command of a producer that enqueues through the module."""
        return [str(self.python), "-m", "benchmarks.drive", self.app]

    def versions(self) -> dict[str, str]:
        """Return the versions that the interpreter reports."""
        if not self.python.exists():
            return {}
        wanted = [self.package, "redis", "hiredis", "kombu", "taskiq-redis"]
        request = subprocess.run([self.python, "-c", _INSTALLED, *wanted], capture_output=True, text=True, check=True)
        found: dict[str, str] = json.loads(request.stdout)
        return found


@dataclass(frozen=True)
class Plain(OnPython):
    """A contender that needs no code of its own, but only values for the fields of this class."""

    name: str
    app: str
    argv: Sequence[Sequence[str]]
    settings: str
    at_least_once: bool = True
    measures: frozenset[str] = EVERYTHING
    python: Path = OWN_PYTHON
    # Whether to start a process for each worker. Otherwise, one parent process is started, which is given the number of
    # workers.
    copies: bool = False
    extra: dict[str, str] = field(default_factory=dict)

    def commands(self, testbed: Testbed, workers: int) -> list[list[str]]:  # noqa: ARG002 # the Protocol's signature
        """Return the commands, with `{workers}`, `{bin}` and `{python}` filled in. If `copies` is set, each command is
        listed once per worker.
        """
        words = {"workers": str(workers), "bin": str(self.python.parent), "python": str(self.python)}
        commands = [[word.format_map(words) for word in argv] for argv in self.argv]
        return commands * workers if self.copies else commands

    def environment(self, testbed: Testbed) -> dict[str, str]:  # noqa: ARG002 # the Protocol's signature
        """Return the environment variables that were set for this contender."""
        return self.extra

    def hold(self, running: StartedFleet) -> None:
        """Stop the processes of the fleet."""
        running.freeze()

    def let_go(self, running: StartedFleet) -> None:
        """Continue the stopped processes."""
        running.thaw()

    def settled(self, testbed: Testbed) -> int | None:  # noqa: ARG002 # the Protocol's signature
        """Return None, because the contender keeps no counter."""
        return None

    def ready_workers(self, running: StartedFleet) -> set[int] | None:  # noqa: ARG002 # the Protocol's signature
        """Return None, because only running tasks show which workers are ready."""
        return None
