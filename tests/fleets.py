"""A whole fleet under test: the real `rota run` in a folder of its own, driven as a user drives it."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import psutil

from bench import until
from fleet_readings import Line, Scrape
from rota import Client

DEADLINE_SECONDS: Final = 60.0
_ROTA: Final = str(Path(sys.executable).with_name("rota"))
_TASKS: Final = Path(__file__).with_name("fleet_tasks.py")

Measure = Callable[[str, float], None]


def toml(settings: Mapping[str, Any], path: str = "") -> str:
    """Settings as a file. A value of TOML is written as in JSON, an inner mapping is a table."""
    plain = [f"{key} = {json.dumps(value)}" for key, value in settings.items() if not isinstance(value, Mapping)]
    tables = [
        f"[{path}{key}]\n{toml(value, f'{path}{key}.')}"
        for key, value in settings.items()
        if isinstance(value, Mapping)
    ]
    return "\n".join([*plain, *tables])


def environment(folder: Path, **more: str) -> dict[str, str]:
    """This process's environment without settings of Rota, its control sockets in the folder."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("ROTA_", "REDIS_"))}
    return inherited | {"XDG_RUNTIME_DIR": str(folder)} | more


def rota(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run `rota` in a folder to its end, with nothing on its standard input."""
    return subprocess.run(
        [_ROTA, *arguments],
        cwd=folder,
        env=environment(folder, **more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


class RunningFleet:
    """A folder with `rota.toml` and `tasks.py`, and the fleet that runs there.

    `settings` are keys of the file, above those that every fleet under test has. `shared`: where its tasks keep
    their journal, if not in the folder. `prefix` (words before the
    command), `environment` and `log_fd` (in place of its log file) are for the next launch.
    """

    def __init__(self, url: str, namespace: str, folder: Path, *, shared: Path | None = None, **settings: Any) -> None:
        self.url = url
        self.namespace = namespace
        self.folder = folder
        self.shared = shared or folder
        self.prefix: list[str] = []
        self.environment: dict[str, str] = {}
        self.log_fd: int | None = None
        self.settings: dict[str, Any] = {
            "namespace": namespace,
            "redis_url": url,
            "imports": ["tasks"],
            "workers": 2,
            "http": {"listen": "127.0.0.1:0"},
            "control": {"socket": str(folder / "control")},
            **settings,
        }
        self.client = Client(url, namespace)
        self.process: subprocess.Popen[bytes] | None = None
        self._journal: list[Line] = []
        self._read_bytes = 0
        shutil.copyfile(_TASKS, folder / "tasks.py")
        self.edit()

    # The configuration

    def edit(self, **settings: Any) -> None:
        """Write the file with these settings changed."""
        self.settings |= settings
        self.write(toml(self.settings))

    def write(self, text: str) -> None:
        """Write the file as it is given, right or wrong."""
        (self.folder / "rota.toml").write_text(text)

    # Its life

    def start(self) -> "RunningFleet":
        """Start it and wait until it is ready with all its workers. Fails with its log when it ends before."""
        self.launch()
        until(lambda: self._has_ended() or self.is_whole(), "a fleet that is ready")
        assert not self._has_ended(), self.log_text()
        return self

    def launch(self) -> "subprocess.Popen[bytes]":
        """Start it, and wait for nothing."""
        assert self._has_ended(), "it runs already"
        told = {"FLEET_SERVER": urlsplit(self.url).netloc, "FLEET_FOLDER": str(self.shared)}
        env = environment(self.folder, **told, **self.environment)
        command = [*self.prefix, _ROTA, "run"]
        with (self.folder / "fleet.log").open("ab") as file:
            log = file.fileno() if self.log_fd is None else self.log_fd
            self.process = subprocess.Popen(
                command, cwd=self.folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        return self.process

    def signal(self, number: int) -> None:
        """Send a signal to the master."""
        assert self.process is not None
        self.process.send_signal(number)

    def hup(self) -> None:
        """Have it load its configuration again."""
        self.signal(signal.SIGHUP)

    def term(self) -> None:
        """Ask it to leave."""
        self.signal(signal.SIGTERM)

    def exit_code(self) -> int:
        """Wait for its end."""
        assert self.process is not None
        return self.process.wait(DEADLINE_SECONDS)

    def freeze(self) -> None:
        """Stop all its processes, as when a machine is paused."""
        until(lambda: not any(map(_stop, self.processes())), "every process is stopped")

    def thaw(self) -> None:
        """Let all its processes go on."""
        for process in self.processes():
            process.resume()

    def kill_all(self) -> None:
        """SIGKILL all its processes at once, as when a machine is lost."""
        self.freeze()  # so that nobody starts another meanwhile
        for process in self.processes():
            process.kill()
        until(lambda: not self.processes(), "the end of every process")
        self.exit_code()

    def close(self) -> None:
        """End it, however it is. Fails when it leaves processes behind."""
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

    def _has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    # Looking at it from outside

    def processes(self) -> list[psutil.Process]:
        """Everything that lives in the folder: master, children, and what would be orphans."""
        return [process for process in psutil.process_iter() if _works_in(process, self.folder)]

    def status(self) -> dict[str, Any]:
        """What the master answers at its control socket; nothing while it does not."""
        try:
            with socket.socket(socket.AF_UNIX) as asking:
                asking.settimeout(DEADLINE_SECONDS)
                asking.connect(str(self.folder / "control"))
                asking.sendall(b'{"verb": "status"}\n')
                line = asking.makefile("rb").readline()
        except (FileNotFoundError, ConnectionError):
            return {}
        answered: dict[str, Any] = json.loads(line)["status"] if line else {}
        return answered

    def children(self, role: str, state: str = "ready") -> dict[int, int]:
        """The pids of the children of this role in this state, by slot."""
        found = self.status().get("children", [])
        return {child["slot"]: child["pid"] for child in found if (child["role"], child["state"]) == (role, state)}

    def workers(self) -> set[int]:
        """The pids of the workers that are ready."""
        return set(self.children("worker").values())

    def is_whole(self) -> bool:
        """Whether it is ready and has all its workers."""
        status = self.status()
        pools = status.get("pools", [])
        whole = bool(pools) and all(pool["desired"] == pool["ready"] for pool in pools)
        return whole and len(self.workers()) == sum(pool["desired"] for pool in pools) and self._answers_ready()

    def is_whole_without(self, pid: int) -> bool:
        """Whether it has all its workers, and that one is not among them."""
        return self.is_whole() and pid not in self.workers()

    def kill_child(self, role: str) -> None:
        """SIGKILL the only child of this role, and wait for the next one."""
        [killed] = self.children(role).values()
        os.kill(killed, signal.SIGKILL)
        until(lambda: set(self.children(role).values()) - {killed}, f"a new {role}")

    def wait_for_workers(self, count: int) -> set[int]:
        """Wait until exactly so many workers live, all ready; answers their pids."""

        def settled() -> set[int] | None:
            workers = [child for child in self.status().get("children", []) if child["role"] == "worker"]
            all_ready = all(child["state"] == "ready" for child in workers)
            return {child["pid"] for child in workers} if all_ready and len(workers) == count else None

        found = until(settled, f"{count} workers")
        assert found is not None
        return found

    def target(self) -> str:
        """Host and port of its endpoints, as Prometheus names a target."""
        return str(self.status()["listen"])

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of an endpoint."""
        try:
            with urllib.request.urlopen(f"http://{self.target()}{path}", timeout=DEADLINE_SECONDS) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read().decode()

    def _answers_ready(self) -> bool:
        try:
            return self.get("/readyz")[0] == 200
        except (KeyError, OSError):
            return False

    def metrics(self) -> Scrape:
        """Scrape it."""
        code, body = self.get("/metrics")
        assert code == 200, body
        return Scrape(body)

    def log_text(self) -> str:
        """All that its processes logged."""
        path = self.folder / "fleet.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def log(self, event: str) -> list[dict[str, Any]]:
        """The logged lines of one event, as far as they are whole: a reader may see half a write."""
        whole = self.log_text().rpartition("\n")[0]
        lines = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def rota(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command beside it."""
        return rota(self.folder, *arguments)

    def asked(self, *arguments: str) -> Any:
        """What a command answers as JSON."""
        done = self.rota(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    # Its tasks

    def journal(self, event: str = "", **fields: object) -> list[Line]:
        """The journal's lines of this event that have these fields, in the order they were written."""
        self._read_journal()
        return [
            line
            for line in self._journal
            if event in ("", line.event) and all(getattr(line, key) == value for key, value in fields.items())
        ]

    def _read_journal(self) -> None:
        """Read on from where it was read to, as far as there are whole lines: a reader may see half a write."""
        path = self.shared / "journal"
        if path.exists():
            with path.open("rb") as journal:
                journal.seek(self._read_bytes)
                text = journal.read()
            text = text[: text.rfind(b"\n") + 1]
            self._read_bytes += len(text)
            self._journal += [Line(**json.loads(line)) for line in text.splitlines()]

    def wait_for(self, event: str, count: int = 1, **fields: object) -> list[Line]:
        """Wait until the journal has so many such lines."""

        def found() -> list[Line] | None:
            lines = self.journal(event, **fields)
            return lines if len(lines) >= count else None

        lines = until(found, f"{count} x {event} {fields}")
        assert lines is not None
        return lines

    def hold(self, label: str, queue: str = "default") -> Line:
        """Have a worker run a task until it is released; answers its start."""
        self.client.enqueue("hold", args=[label], queue=queue)
        return self.wait_for("start", label=label)[0]

    def release(self, label: str) -> None:
        """Let the task of this label end."""
        (self.shared / f"release-{label}").touch()

    def wait_until_nothing_waits(self, seconds: float) -> None:
        """Wait until no accepted task waits or runs."""
        until(lambda: not self.asked("audit")["live"], "the end of every task", seconds)

    def books_balance(self) -> bool:
        """Whether every accepted task is accounted for."""
        return self.rota("audit").returncode == 0


class Fleets:
    """Makes the fleets of one test, all in its folder and namespace."""

    def __init__(self, url: str, namespace: str, folder: Path) -> None:
        self.made: list[RunningFleet] = []
        self._url = url
        self._namespace = namespace
        self._folder = folder

    def make(self, **settings: Any) -> RunningFleet:
        """A fleet that is not started yet. A second one is another master of the same fleet."""
        fleet = RunningFleet(self._url, self._namespace, self._folder, **settings)
        self.made.append(fleet)
        return fleet

    def node(self, name: str, **settings: Any) -> RunningFleet:
        """A fleet on a node of its own, not started yet: another master of the same fleet, with its own folder, file,
        control socket and log. The journal is that of all nodes."""
        folder = self._folder / name
        folder.mkdir()
        fleet = RunningFleet(self._url, self._namespace, folder, shared=self._folder, **settings)
        self.made.append(fleet)
        return fleet

    def start(self, **settings: Any) -> RunningFleet:
        """A fleet that is ready."""
        return self.make(**settings).start()


@contextmanager
def running_fleet(url: str, namespace: str, folder: Path, **settings: Any) -> Iterator[RunningFleet]:
    """A fleet for a block of code."""
    fleet = RunningFleet(url, namespace, folder, **settings)
    try:
        yield fleet.start()
    finally:
        fleet.close()


def seconds_until(condition: Callable[[], object], what: str = "") -> float:
    """How long it takes until the condition is true, as far as asking again and again can tell."""
    began = time.monotonic()
    until(condition, what)
    return time.monotonic() - began


def _works_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return process.cwd() == str(folder)
    except (psutil.Error, OSError):  # gone, a zombie, or not ours
        return False


def _stop(process: psutil.Process) -> bool:
    """Stop it; answers whether it was still running."""
    try:
        running = process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
        if running:
            process.suspend()
    except psutil.NoSuchProcess:
        return False
    return running
