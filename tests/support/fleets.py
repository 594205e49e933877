"""A whole fleet under test: the real `rota run`, with tasks that write a journal."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import psutil

from rota import Client
from rota_supervisor.acl_roles import AclRole
from support.acl_users import as_user
from support.fleet_process import DEADLINE_SECONDS, FleetProcess, ready_workers, toml
from support.fleet_readings import Line, Scrape
from support.growing_files import GrowingFile
from support.processes import stop
from support.servers import FLEET_URLS
from support.waiting import until

_TASKS: Final = Path(__file__).with_name("fleet_tasks.py")

UNSIGNED: Final[dict[str, Any]] = {}
"""The setting `signing` of a fleet that runs unsigned tasks."""

Measure = Callable[[str, float], None]


class RunningFleet(FleetProcess):
    """A folder with `rota.toml` and `tasks.py`, and the fleet that runs there.

    `settings` are keys of the file, which override the defaults of fleets under test. Without `redis_url` and
    `redis_credentials`, the fleet and its client connect as the users of `support.acl_users`. In end-to-end tests, a
    fleet requires signatures, and its client signs all tasks. There are two exceptions: fleets that adopt items, and
    fleets with `signing=UNSIGNED`, for tests that write entries without a client. The tasks' journal is in the folder
    `shared`, or in the fleet's own folder if `shared` is None.
    """

    in_own_session = False
    is_signed = False  # the default of `signing`, which the end-to-end tests change

    def __init__(self, url: str, namespace: str, folder: Path, *, shared: Path | None = None, **settings: Any) -> None:
        super().__init__(folder)
        self.environment = {"FLEET_SERVER": urlsplit(url).netloc, "FLEET_FOLDER": str(shared or folder)}
        url = FLEET_URLS.get(url, url)
        self.url = url
        self.namespace = namespace
        self.shared = shared or folder
        is_default = not settings.keys() & {"redis_url", "redis_credentials"}
        self.settings: dict[str, Any] = {
            "namespace": namespace,
            "redis_url": as_user(url, AclRole.FLEET) if is_default else url,
            "imports": ["tasks"],
            "signing": self._signing() if self.is_signed and "adopt" not in settings else UNSIGNED,
            **({} if "pools" in settings else {"workers": 2}),
            "http": {"listen": "127.0.0.1:0"},
            "control": {"socket": str(folder / "control")},
            **settings,
        }
        self.client = Client(as_user(url, AclRole.OPERATOR) if is_default else url, namespace, **self.signing_options)
        self._journal: list[Line] = []
        self._journal_file = GrowingFile(self.shared / "journal")
        shutil.copyfile(_TASKS, folder / "tasks.py")
        self.edit()

    def _signing(self) -> dict[str, Any]:
        key = self.folder / "signing.key"
        key.write_text(f"the signing key of all nodes of {self.namespace}")
        return {"keys": {"first": f"file:{key}"}, "sign_with": "first", "required": True}

    @property
    def signing_options(self) -> dict[str, Any]:
        """The options with which other clients sign tasks for this fleet."""
        signing = self.settings["signing"]
        return {"signing_keys": signing["keys"], "sign_with": signing["sign_with"]} if signing else {}

    def edit(self, **settings: Any) -> None:
        """Write the file with these changed settings."""
        self.settings |= settings
        self.write(toml(self.settings))

    # Life cycle

    def start(self) -> "RunningFleet":
        """Start the fleet and wait until all its workers are ready. Fails, and shows the fleet's log, if the fleet ends
        before that.
        """
        self.launch()
        until(lambda: self.has_ended() or self.is_whole(), "a fleet that is ready", DEADLINE_SECONDS)
        assert not self.has_ended(), self.log_text()
        return self

    def freeze(self) -> None:
        """Stop all processes of the fleet, as if its machine were paused."""
        until(lambda: not any(map(stop, self.processes())), "every process is stopped")

    def thaw(self) -> None:
        """Let all stopped processes of the fleet continue."""
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):  # the process has just ended
                process.resume()

    def kill_all(self) -> None:
        """Send SIGKILL to all processes of the fleet at once, as if its machine were lost."""
        self.freeze()  # prevents new processes in the meantime
        for process in self.processes():
            process.kill()
        until(lambda: not self.processes(), "the end of every process")
        self.exit_code()

    def kill_child(self, role: str) -> None:
        """Send SIGKILL to the only child of this role, and wait for the next one."""
        [killed] = self.pids(role, "ready")
        os.kill(killed, signal.SIGKILL)
        self.until_replaced(role, killed)

    def close(self) -> None:
        """Kill the fleet, whatever its state. Fails if it leaves processes behind."""
        self.client.close()
        self.thaw()
        if self.process is not None and self.process.poll() is None:
            self.signal(signal.SIGQUIT)
            try:
                self.process.wait(DEADLINE_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        left = self.processes()
        for process in left:
            process.kill()
        assert not left, f"left behind: {left}\n{self.log_text()}"

    # Inspection from outside

    def is_whole(self) -> bool:
        """Whether the fleet is ready and has all its workers."""
        status = self.status()
        pools = status.get("pools", [])
        whole = bool(pools) and all(pool["desired"] == ready_workers(pool) for pool in pools)
        return whole and len(self.workers()) == sum(pool["desired"] for pool in pools) and self._is_ready()

    def is_whole_without(self, pid: int) -> bool:
        """Whether the fleet has all its workers and this process is not one of them."""
        return self.is_whole() and pid not in self.workers()

    def _is_ready(self) -> bool:
        try:
            return self.get("/readyz")[0] == 200
        except (KeyError, OSError):
            return False

    def metrics(self) -> Scrape:
        """Scrape the metrics."""
        code, body = self.get("/metrics")
        assert code == 200, body
        return Scrape(body)

    # Tasks

    def journal(self, event: str = "", **fields: object) -> list[Line]:
        """Return the journal's lines that have this event and these fields, in order."""
        self._journal += [Line(**json.loads(line)) for line in self._journal_file.new_lines()]
        return [
            line
            for line in self._journal
            if event in ("", line.event) and all(getattr(line, key) == value for key, value in fields.items())
        ]

    def wait_for(self, event: str, count: int = 1, **fields: object) -> list[Line]:
        """Wait until the journal has `count` lines with this event and these fields, and return them."""

        def found() -> list[Line] | None:
            lines = self.journal(event, **fields)
            return lines if len(lines) >= count else None

        lines = until(found, f"{count} x {event} {fields}")
        assert lines is not None
        return lines

    def hold(self, label: str, queue: str = "default") -> Line:
        """Let a worker run a task until it is released, and return the line of its start."""
        self.client.enqueue("hold", args=[label], queue=queue)
        return self.wait_for("start", label=label)[0]

    def release(self, label: str) -> None:
        """Let the task with this label end."""
        (self.shared / f"release-{label}").touch()

    def wait_until_nothing_waits(self, seconds: float) -> None:
        """Wait until no accepted task is waiting or running."""
        until(lambda: not self.rota_json("audit")["live"], "the end of every task", seconds)

    def books_balance(self) -> bool:
        """Whether the audit accounts for every accepted task."""
        return self.rota("audit").returncode == 0


class Fleets:
    """The fleets of one test, which share its folder and its namespace."""

    def __init__(self, url: str, namespace: str, folder: Path) -> None:
        self.made: list[RunningFleet] = []
        self._url = url
        self._namespace = namespace
        self._folder = folder

    def make(self, **settings: Any) -> RunningFleet:
        """Create a fleet without starting it. A second call creates another master of this fleet."""
        fleet = RunningFleet(self._url, self._namespace, self._folder, **settings)
        self.made.append(fleet)
        return fleet

    def node(self, name: str, **settings: Any) -> RunningFleet:
        """Create a node without starting it. A node is another master of the fleet, with its own folder,
        configuration file, control socket and log. All nodes share the journal.
        """
        folder = self._folder / name
        folder.mkdir()
        fleet = RunningFleet(self._url, self._namespace, folder, shared=self._folder, **settings)
        self.made.append(fleet)
        return fleet

    def start(self, **settings: Any) -> RunningFleet:
        """Start a fleet and wait until it is ready."""
        return self.make(**settings).start()


@contextmanager
def running_fleet(url: str, namespace: str, folder: Path, **settings: Any) -> Iterator[RunningFleet]:
    """Run a fleet for a block of code."""
    fleet = RunningFleet(url, namespace, folder, **settings)
    try:
        yield fleet.start()
    finally:
        fleet.close()
