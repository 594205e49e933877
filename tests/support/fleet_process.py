"""A real `rota run` in a separate folder, which tests start, signal and inspect from outside, as a user would."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import psutil

from support.growing_files import logged
from support.processes import processes_in
from support.waiting import until

DEADLINE_SECONDS: Final = 60.0
LOG_FILE: Final = "fleet.log"
ROTA: Final = str(Path(sys.executable).with_name("rota"))


def toml(settings: Mapping[str, Any], path: str = "") -> str:
    """Return settings as TOML. Values are written as in JSON, and an inner mapping is a table."""
    plain = [f"{key} = {json.dumps(value)}" for key, value in settings.items() if not isinstance(value, Mapping)]
    tables = [
        f"[{path}{json.dumps(key)}]\n{toml(value, f'{path}{json.dumps(key)}.')}"
        for key, value in settings.items()
        if isinstance(value, Mapping)
    ]
    return "\n".join([*plain, *tables])


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return this process's environment without the variables of Rota, Redis and the terminal. Fleets put their control
    sockets in the folder.
    """
    of_others = ("ROTA_", "REDIS_", "COLUMNS", "LINES")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(of_others)}
    return inherited | {"XDG_RUNTIME_DIR": str(folder)} | more


def rota(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run `rota` in a folder until it exits, with empty standard input."""
    return subprocess.run(
        [ROTA, *arguments],
        cwd=folder,
        env=environment(folder, **more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


def ready_workers(pool: dict[str, Any]) -> int:
    """Return the number of ready workers according to a pool's status row."""
    return int(sum(pool["workers"].get(state, 0) for state in ("running", "quiet")))


class FleetProcess:
    """A master and its children. The folder has the configuration, the log, and the control socket `control`.

    These attributes apply to the next launch: `prefix` (words before the command), `command` (the words before `run`),
    `environment` (variables in addition to those of `environment()`), and `log_fd` (replaces the log file).
    """

    in_own_session = True
    ask_seconds = DEADLINE_SECONDS
    control_socket = "control"  # the path of the control socket, relative to the folder

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.prefix: list[str] = []
        self.command = [ROTA]
        self.environment: dict[str, str] = {}
        self.log_fd: int | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def write(self, text: str) -> None:
        """Write the configuration, valid or not."""
        (self.folder / "rota.toml").write_text(text)

    # Life cycle

    def launch(self, *arguments: str) -> Self:
        """Start the master without waiting."""
        assert self.has_ended(), "the master is already running"
        with (self.folder / LOG_FILE).open("ab") as file:
            log = file.fileno() if self.log_fd is None else self.log_fd
            self.process = subprocess.Popen(
                [*self.prefix, *self.command, "run", *arguments],
                cwd=self.folder,
                env=environment(self.folder, **self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=self.in_own_session,
            )
        return self

    @property
    def pid(self) -> int:
        """The pid of the master, or of the program in `prefix`."""
        assert self.process is not None
        return self.process.pid

    def signal(self, number: int) -> None:
        """Send a signal to the master."""
        assert self.process is not None
        self.process.send_signal(number)

    def hup(self) -> None:
        """Send HUP, so that the master reloads its configuration."""
        self.signal(signal.SIGHUP)

    def term(self) -> None:
        """Send TERM to the master."""
        self.signal(signal.SIGTERM)

    def has_ended(self) -> bool:
        """Whether the master has ended, or was never started."""
        return self.process is None or self.process.poll() is not None

    def exit_code(self) -> int:
        """Wait until the master has ended, and return its exit code."""
        assert self.process is not None
        return self.process.wait(DEADLINE_SECONDS)

    def processes(self) -> list[psutil.Process]:
        """Return all living processes that run in the folder: the master, its children, and any orphans."""
        return processes_in(self.folder)

    # Status, metrics and log of the fleet

    def request(self, verb: str, **fields: Any) -> dict[str, Any]:
        """Return the master's response on its control socket, or an empty dict while no master listens."""
        try:
            with socket.socket(socket.AF_UNIX) as asking:
                asking.settimeout(self.ask_seconds)
                asking.connect(str(self.folder / self.control_socket))
                asking.sendall(json.dumps({"verb": verb, **fields}).encode() + b"\n")
                with asking.makefile("rb") as answers:
                    line = answers.readline()
        except (FileNotFoundError, ConnectionError):
            return {}
        answer: dict[str, Any] = json.loads(line) if line.endswith(b"\n") else {}  # the master may die while it writes
        return answer

    def status(self) -> dict[str, Any]:
        """Return the whole status, or an empty dict while the master does not respond."""
        found: dict[str, Any] = self.request("status").get("status", {})
        return found

    def children(self, role: str = "", state: str = "") -> list[dict[str, Any]]:
        """Return the rows of the children with this role and state, ordered by slot."""
        rows = [row for row in self.status().get("processes", []) if row["role"] != "master"]
        return [row for row in rows if role in ("", row["role"]) and state in ("", row["state"])]

    def running(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return the status rows of each running task: the row of the child, and the row of the task."""
        return [(row, task) for row in self.children() for task in row["tasks"]]

    def pids(self, role: str = "", state: str = "") -> set[int]:
        """Return the pids of the children with this role and state."""
        return {row["pid"] for row in self.children(role, state)}

    def workers(self) -> set[int]:
        """Return the pids of the ready workers."""
        return self.pids("worker", "ready")

    def until_replaced(self, role: str, old: int) -> None:
        """Wait until a process of this role is ready whose pid is not `old`."""
        until(lambda: self.pids(role, "ready") - {old}, f"a new {role} is ready")

    def until_workers(self, count: int) -> set[int]:
        """Wait until exactly this number of workers are alive and all of them are ready. Return their pids."""

        def settled() -> set[int] | None:
            rows = self.children("worker")
            whole = len(rows) == count and all(row["state"] == "ready" for row in rows)
            return {row["pid"] for row in rows} if whole else None

        found = until(settled, f"{count} workers are ready")
        assert found is not None
        return found

    def target(self) -> str:
        """Return the host and port of the HTTP endpoints, in the form of a Prometheus target."""
        return str(self.status()["listen"])

    def get(self, path: str) -> tuple[int, str]:
        """Request an endpoint, and return its status and body."""
        try:
            with urllib.request.urlopen(f"http://{self.target()}{path}", timeout=DEADLINE_SECONDS) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read().decode()

    def log_text(self) -> str:
        """Return the whole log of the processes."""
        path = self.folder / LOG_FILE
        return path.read_text(errors="replace") if path.exists() else ""

    def log(self, event: str = "") -> list[dict[str, Any]]:
        """Return the complete lines of the log, or only those of `event`."""
        return logged(self.folder / LOG_FILE, event)

    def rota(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a `rota` command in the fleet's folder."""
        return rota(self.folder, *arguments, **more)

    def rota_json(self, *arguments: str) -> Any:
        """Run a command with --json and return its document."""
        done = self.rota(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
