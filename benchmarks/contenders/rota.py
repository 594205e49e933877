"""A Rota fleet with all metrics, started with `rota run` as a user would start it."""

import functools
import json
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rota
from benchmarks.contender import AT_ONCE, EVERYTHING, OWN_PYTHON, Contender, OnPython, StartedFleet
from benchmarks.testbed import Testbed
from rota.protocol.tiers import DEFAULT_ENDED_KEEP

NAMESPACE = "bench"
REPLY_SECONDS = 10.0


@dataclass(frozen=True)
class Rota(OnPython):
    """A fleet with default settings, except for the logging of tasks."""

    name: str
    settings: str
    log_tasks: str
    log_level: str
    measures: frozenset[str] = EVERYTHING | {"waits", "load"}
    app: str = "benchmarks.apps.rota_app"
    python: Path = OWN_PYTHON
    at_least_once: bool = True
    queues: int = 1
    ended_keep: int = DEFAULT_ENDED_KEEP
    concurrency: int = 1

    def commands(self, testbed: Testbed, workers: int) -> list[list[str]]:  # noqa: ARG002 # the Protocol's signature
        """Return the command that starts a master with this number of workers."""
        run = [str(self.python.with_name("rota")), "run", self.app]
        if self.concurrency == 1:
            return [[*run, "-w", str(workers)]]
        pool = {"workers": workers, "queues": self._queue_names(), "concurrency": self.concurrency}
        return [["env", f"ROTA_POOLS={json.dumps({'waiting': pool})}", *run]]

    def environment(self, testbed: Testbed) -> dict[str, str]:
        """Return the configuration of the fleet as environment variables."""
        return {
            "ROTA_NAMESPACE": NAMESPACE,
            "ROTA_REDIS_URL": testbed.url,
            "ROTA_TIERS": json.dumps([self._queue_names()]),
            "BENCH_QUEUES": " ".join(self._queue_names()),
            "BENCH_TASKS": "benchmarks.probe" if self.concurrency == 1 else "benchmarks.probe_async",
            "ROTA_HTTP__LISTEN": "127.0.0.1:0",
            "ROTA_LOG__TASKS": self.log_tasks,
            "ROTA_LOG__LEVEL": self.log_level,
            "ROTA_LOG__FORMAT": "json",
            "ROTA_ENDED__KEEP": str(self.ended_keep),
            "ROTA_CONTROL__SOCKET": str(testbed.folder / "control"),
        }

    def _queue_names(self) -> list[str]:
        return [f"bench-{number}" for number in range(self.queues)]

    def hold(self, running: StartedFleet) -> None:
        """Pause the queues."""
        for queue in self._queue_names():
            _client(running.testbed.url).pause(queue)

    def let_go(self, running: StartedFleet) -> None:
        """Resume the queues."""
        for queue in self._queue_names():
            _client(running.testbed.url).resume(queue)

    def settled(self, testbed: Testbed) -> int:
        """Return how many tasks are done, according to the counters of the namespace."""
        return int(testbed.client.hget(f"{{{NAMESPACE}}}:totals", "done") or 0)

    def ready_workers(self, running: StartedFleet) -> set[int]:
        """Return the pids of the workers that the master reports as ready."""
        processes = _status(running.testbed.folder / "control")["processes"]
        return {each["pid"] for each in processes if (each["role"], each["state"]) == ("worker", "ready")}


@functools.cache
def _client(url: str) -> rota.Client:
    """Return a client that stays connected, so that no measurement includes the time to connect."""
    return rota.Client(url, NAMESPACE)


def _status(path: Path) -> dict[str, Any]:
    """Return the data of `rota status`. This function reads the control socket directly, because the command takes half
    a second to start.
    """
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(REPLY_SECONDS)
        asking.connect(str(path))
        asking.sendall(b'{"verb": "status"}\n')
        status: dict[str, Any] = json.loads(asking.makefile("rb").readline())["status"]
        return status


ROTA: Contender = Rota(
    name="rota",
    settings='the defaults and all metrics, with `log.tasks = "failures"` and `log.level = "warning"`',
    log_tasks="failures",
    log_level="warning",
)
ROTA_LOGGING: Contender = Rota(
    name="rota+log",
    settings='as rota, with `log.tasks = "all"`: a line of JSON for each task',
    log_tasks="all",
    log_level="info",
    measures=frozenset({"drain"}),
)
ROTA_FORGETTING: Contender = Rota(
    name="rota-ends",
    settings="as rota, with `ended.keep = 0`: the outcomes of ended tasks are not kept",
    log_tasks="failures",
    log_level="warning",
    measures=frozenset({"drain"}),
    ended_keep=0,
)
ROTA_AT_ONCE: Contender = Rota(
    name="rota-c100",
    settings="as rota, with `concurrency = 100`: one worker that runs 100 coroutines at once",
    log_tasks="failures",
    log_level="warning",
    measures=AT_ONCE,
    concurrency=100,
)
