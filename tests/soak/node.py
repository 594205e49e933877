"""One node of the fleet: a real `rota run` with its own folder, behind its own link or on its own host."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from soak.load import CAP, CAPPED, ORDER, RATE, RATED, TIERS, TOGETHER, WEIGHTS
from support.fleet_process import LOG_FILE, FleetProcess, toml
from support.hosts import Host

TESTS: Final = Path(__file__).parents[1]
NAMESPACE: Final = "soak"
LEASE_SECONDS: Final = 5.0
BEAT_SECONDS: Final = 3.0
DRAIN_SECONDS: Final = 6.0
WORKERS: Final = 3
CONCURRENCY: Final = 8
ORDER_NODE: Final = "a"  # the node whose extra worker serves the queue with the checked order
_STARTING: Final = b'"event":"fleet.starting"'
_READY: Final = b'"event":"fleet.ready"'


def settings_of(name: str, url: str, folder: Path) -> dict[str, Any]:
    """Return the settings for a node's `rota.toml`. The first node has one poller and the other nodes have several, so
    that both cases are tested.
    """
    in_order = name == ORDER_NODE
    pools = {
        "main": {"workers": WORKERS, "queues": [queue for tier in TIERS for queue in tier]},
        "together": {"workers": 1, "concurrency": CONCURRENCY, "queues": [TOGETHER]},
    }
    return {
        "namespace": NAMESPACE,
        "redis_url": url,
        "imports": ["soak.tasks"],
        "pollers": 1 if in_order else 2,
        "tiers": [*TIERS[:-1], *([[ORDER]] if in_order else []), [TOGETHER], TIERS[-1]],
        "pools": pools | ({"order": {"workers": 1, "queues": [ORDER]}} if in_order else {}),
        "queues": {
            **{queue: {"weight": weight} for queue, weight in WEIGHTS.items()},
            CAPPED: {"cap": CAP},
            RATED: {"rate": RATE},
        },
        "lease": {"seconds": LEASE_SECONDS, "renew_seconds": LEASE_SECONDS / 4},
        "limits": {"beat_seconds": BEAT_SECONDS, "drain_seconds": DRAIN_SECONDS, "time_limit_seconds": 30.0},
        "restarts": {"backoff_max_seconds": 2.0, "healthy_seconds": 10.0},
        "http": {"listen": "127.0.0.1:0"},
        "control": {"socket": str(folder / "control")},
        "log": {"format": "json"},
    }


class Node(FleetProcess):
    """A node whose folder is inside the folder of the run and is named after the node.

    The node runs on `host`, if given. If `earlier` has the source roots of an earlier version, the node starts with
    that version. A master that does not reply within `ask_seconds` counts as unreachable.
    """

    ask_seconds = 0.5

    def __init__(
        self, name: str, url: str, folder: Path, *, host: Host | None = None, earlier: Sequence[Path] = ()
    ) -> None:
        folder.mkdir()
        super().__init__(folder)
        self.name = name
        self.host = host
        self.prefix = host.prefix if host is not None else []
        self.earlier = earlier
        self.run_from(earlier)
        self.settings = settings_of(name, url, folder)
        self.is_wanted = True  # False while the keeper must not restart the node
        self.is_leaving = False  # True from the moment at which the node is sent SIGTERM until its master has ended
        self.is_stopped = False
        self.has_good_file = True
        self.may_have_read_bad_file = False  # whether the file was bad at any time since the last start
        self._log_offset = 0
        self.write(toml(self.settings))

    # Its configuration

    def write(self, text: str) -> None:
        """Replace the configuration file in one step, as an editor does."""
        beside = self.folder / "rota.toml.new"
        beside.write_text(text)
        beside.replace(self.folder / "rota.toml")

    def resize(self, workers: int) -> None:
        """Change the number of workers of the large pool in the configuration file."""
        self.settings["pools"]["main"]["workers"] = workers
        self.write(toml(self.settings))

    @property
    def configured(self) -> int:
        """The total number of workers in the configuration file."""
        return sum(pool["workers"] for pool in self.settings["pools"].values())

    @property
    def server_port(self) -> int:
        """The port through which the node reaches the server. It is the port of the node's link if the node has one."""
        return int(self.settings["redis_url"].rpartition(":")[2].partition("/")[0])

    @property
    def is_changed(self) -> bool:
        """Whether the node's next start runs a different version than its first start."""
        return self.roots != self.earlier

    # Its life

    def run_from(self, roots: Sequence[Path]) -> None:
        """Let the next master run from these source roots, or from the installed package if `roots` is empty."""
        self.roots = roots
        inherited = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        self.environment = {"PYTHONPATH": os.pathsep.join([*map(str, roots), str(TESTS), *inherited])}

    def start(self) -> None:
        """Start the node's master. The master also records its events for a replay."""
        self.may_have_read_bad_file = not self.has_good_file
        log = self.folder / LOG_FILE
        self._log_offset = log.stat().st_size if log.exists() else 0
        self.launch("--record", f"record-{self._log_offset}.jsonl")

    def ended_with(self) -> int | None:
        """Return the exit code of the node's master, or None while the master is alive."""
        assert self.process is not None
        return self.process.poll()

    def signal(self, number: int) -> None:
        """Send a signal to the master, unless the master has ended or has not yet reported that it is up."""
        if self._has_logged(_STARTING):
            super().signal(number)

    def has_been_ready(self) -> bool:
        """Whether the current master has ever been ready."""
        return self._has_logged(_READY)

    def _has_logged(self, event: bytes) -> bool:
        with (self.folder / LOG_FILE).open("rb") as log:
            log.seek(self._log_offset)
            return event in log.read()

    # Observation from outside

    def processes(self) -> list[psutil.Process]:
        """Return all processes that run in the node's folder: the master first, then its descendants, and finally
        orphans.
        """
        return sorted(super().processes(), key=lambda process: process.pid != self.pid)

    def request(self, verb: str, **fields: Any) -> dict[str, Any]:
        """Send a request to the master's control socket. Return the response, or an empty dict if there is none."""
        try:
            return super().request(verb, **fields)
        except OSError:  # the master is stopped or has ended
            return {}

    def children(self, role: str = "", state: str = "") -> list[dict[str, Any]]:
        """Return the rows of the children, ordered by slot. This works with each version of Rota that the master may
        run.
        """
        status = self.status()
        # Versions before the first release use the key `children`.
        rows = status.get("processes") or status.get("children", [])
        wanted = [row for row in rows if row["role"] != "master"]
        return [row for row in wanted if role in ("", row["role"]) and state in ("", row["state"])]

    def runs_for(self, seconds: float) -> bool:
        """Whether a worker of the large pool has been running a task for this number of seconds."""
        of_pool = [row for row in self.living("worker") if row["pool"] == "main"]
        return any(task.get("task_age_seconds", 0.0) >= seconds for row in of_pool for task in row["tasks"])

    def living(self, role: str) -> list[dict[str, Any]]:
        """Return the rows of the children with this role that have a process, ordered by slot."""
        return [child for child in self.children(role) if child["pid"]]

    def is_whole(self) -> bool:
        """Whether every configured child is ready and there are no other children."""
        children = self.children()
        ready = [child["role"] for child in children if child["state"] == "ready"]
        wanted = {"worker": self.configured, "poller": self.settings["pollers"], "zygote": 1, "exporter": 1}
        return len(children) == len(ready) and all(ready.count(role) == count for role, count in wanted.items())

    def left_after(self, seconds: float) -> list[psutil.Process]:
        """Wait up to this number of seconds for all processes in the folder to end. Return the processes that are still
        there.
        """
        deadline = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)  # a longer pause than usual, because each check scans all processes of the machine
        return left
