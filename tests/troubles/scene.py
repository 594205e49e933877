"""The scene of a trouble: a server and a fleet of its own with shortened times, and a task that runs every second."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from rota import Call
from support.fleets import RunningFleet
from support.servers import Server, server_binaries
from support.waiting import repeating, until

# The factor by which all times, including the windows of the rules, are shorter than by default. Heartbeats and leases
# are shortened less, because their tolerance is needed on a loaded machine.
SHORTENED: Final = 20
BEGIN_SECONDS: Final = 90.0
STEADY_QUEUE: Final = "steady"
WORK_QUEUE: Final = "work"
_APPLICATION: Final = Path(__file__).with_name("application.py")
RESTARTS: Final = {"backoff_max_seconds": 1.5}
_SETTINGS: Final[Mapping[str, Any]] = {
    "imports": ["tasks", _APPLICATION.stem],
    "pollers": 2,
    "tiers": [[STEADY_QUEUE, WORK_QUEUE], ["default"]],
    "metrics": {"lag_objective_seconds": 1.5},
    "alerts": {"forgotten_seconds": 5},
    "lease": {"seconds": 5, "renew_seconds": 1},
    "restarts": RESTARTS,
    "schedules": {"steady": {"task": "note", "queue": STEADY_QUEUE, "every": 1}},
}


@dataclass
class Scene:
    """The nodes of one fleet, and their server. The fleet's namespace is the name of the scene. `prepared` is the
    result of the trouble's `prepare`, and `closing` stops everything.
    """

    name: str
    folder: Path
    nodes: list[RunningFleet] = field(default_factory=list)
    closing: ExitStack = field(default_factory=ExitStack)
    prepared: Any = None

    def __post_init__(self) -> None:
        self.folder.mkdir()
        (self.folder / "server").mkdir()
        self.server = Server(server_binaries()["valkey"], self.folder / "server", appendonly="yes").start()
        self.closing.callback(self.server.stop)

    @property
    def fleet(self) -> RunningFleet:
        """The observed node, which exists until the end."""
        return self.nodes[0]

    def add_node(self, **settings: Any) -> RunningFleet:
        """Return another node of the fleet, which has not been started yet."""
        folder = self.folder / f"node{len(self.nodes) + 1}"
        folder.mkdir()
        node = RunningFleet(self.server.url, self.name, folder, **{**_SETTINGS, **settings})
        shutil.copyfile(_APPLICATION, folder / _APPLICATION.name)
        self.nodes.append(node)
        self.closing.callback(node.close)
        return node

    def start(self) -> Self:
        """Start all nodes and wait until they are ready."""
        for node in self.nodes:
            node.start()
        return self

    def targets(self) -> list[str]:
        """Return the host and port of each node, in the form of Prometheus targets."""
        return [node.target() for node in self.nodes]


def begun(condition: Callable[[], object], what: str) -> None:
    """Wait until the trouble is visible. The wait is long enough for a loaded machine."""
    until(condition, what, BEGIN_SECONDS, pause_seconds=0.5)


def coming(scene: Scene, call: Call, *, per_second: float) -> AbstractContextManager[None]:
    """Enqueue calls at this rate during the block."""
    return repeating(lambda: scene.fleet.client.enqueue_many([call]), 1 / per_second)


Happening = Callable[[Scene], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Trouble:
    """A problem of a fleet. `happens` returns a context manager that begins the trouble when it is entered, and waits
    until the trouble is visible. When it is left, it undoes as much of the trouble as it can. `prepare` is called
    before the fleet starts. `settings` override the settings that all scenes share.
    """

    name: str
    happens: Happening
    nodes: int
    prepare: Callable[[Scene], Any] | None
    settings: Mapping[str, Any]

    @property
    def summary(self) -> str:
        """The problem in one sentence."""
        return (self.happens.__doc__ or "").partition("\n")[0]

    def scene(self, folder: Path) -> Scene:
        """Return the trouble's scene. Its server is started, but its nodes are only prepared."""
        scene = Scene(self.name, folder)
        for _ in range(self.nodes):
            scene.add_node(**self.settings)
        if self.prepare is not None:
            scene.prepared = self.prepare(scene)
        return scene


def trouble(
    nodes: int = 1, prepare: Callable[[Scene], Any] | None = None, **settings: Any
) -> Callable[[Callable[[Scene], Iterator[None]]], Trouble]:
    """Return a decorator that makes a trouble. The decorated function begins the trouble, waits until it has begun,
    yields, and ends it.
    """

    def made(happens: Callable[[Scene], Iterator[None]]) -> Trouble:
        return Trouble(happens.__name__, contextmanager(happens), nodes, prepare, settings)

    return made
