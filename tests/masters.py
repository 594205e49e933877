"""A real master for tests: `rota run` in a folder of its own, with its log, its control socket and its processes."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from bench import until
from rota.protocol.keys import Keys
from servers import Server

# What is claimed does not depend on which server it is; the rest of the suite runs on each.
ON_ONE_SERVER = pytest.mark.parametrize("server", ["valkey"], indirect=True)
TASKS = """
import os, signal, subprocess, sys, time
from pathlib import Path
import rota

HERE = Path(__file__).parent

def say(line):
    with open(HERE / "ran.txt", "a") as file:
        file.write(line + "\\n")

@rota.task
def note(text):
    say(text)

@rota.task
def hold(text):
    say(f"start {text} {os.getpid()}")
    while not (HERE / "release").exists():
        time.sleep(0.01)
    say(f"end {text}")

@rota.task
def die(text):
    say(f"die {text}")
    os.kill(os.getpid(), signal.SIGKILL)

@rota.task
def leave(text):
    say(f"leave {text}")
    os._exit(0)

@rota.task(time_limit=1)
def overrun(text):
    say(f"overrun {text}")
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while True:
        time.sleep(1)

def _sleeper(**options):
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], **options).pid

@rota.task
def leave_behind(text):
    same_group = _sleeper()
    own_group = _sleeper(process_group=0)
    own_session = _sleeper(start_new_session=True)
    say(f"behind {same_group} {own_group} {own_session}")
    while True:
        time.sleep(1)
"""


class Mastered:
    """One `rota run`. `settings` are lines of TOML that follow the address, the namespace and the imports.

    `prefix` (words before the command) and `environment` (added to that of this process) are for the next start.
    """

    def __init__(self, server: Server, namespace: str, folder: Path, settings: str = "workers = 2") -> None:
        self.server = server
        self.namespace = namespace
        self.folder = folder
        self.keys = Keys(namespace)
        self.redis: redis.Redis = redis.Redis.from_url(server.url, socket_timeout=30)
        self._sockets = tempfile.mkdtemp(prefix="rota")  # a socket's path may have no more than 107 characters
        self._process: subprocess.Popen[bytes] | None = None
        self.prefix: list[str] = []
        self.environment: dict[str, str] = {}
        (folder / "tasks.py").write_text(TASKS)
        self.configure(settings)

    # What stands in the folder

    def configure(self, settings: str) -> None:
        """Write the configuration; the settings may bring tables, so they come after the plain keys."""
        head = [
            f'redis_url = "{self.server.url}"',
            f'namespace = "{self.namespace}"',
            *([] if "imports" in settings else ['imports = ["tasks"]']),
        ]
        tables = f'[control]\nsocket = "{self._sockets}/s"\n'
        tables += "" if "[http]" in settings else '[http]\nlisten = "127.0.0.1:0"\n'
        (self.folder / "rota.toml").write_text("\n".join([*head, settings, tables]))

    def ran(self) -> list[str]:
        """What the tasks said."""
        path = self.folder / "ran.txt"
        return path.read_text().splitlines() if path.exists() else []

    def starts(self, text: str) -> list[int]:
        """The processes that started `hold` with that text, in order."""
        return [int(line.split()[2]) for line in self.ran() if line.startswith(f"start {text} ")]

    def release(self) -> None:
        """Let `hold` go on."""
        (self.folder / "release").touch()

    def log(self, event: str = "") -> list[dict[str, Any]]:
        """The lines of the log, of one event or all; what is no JSON is left out."""
        lines = (line for line in self.text().splitlines() if line.startswith("{") and line.endswith("}"))
        found: list[dict[str, Any]] = [json.loads(line) for line in lines]
        return [fields for fields in found if event in ("", fields["event"])]

    def text(self) -> str:
        """The whole log as it is."""
        return (self.folder / "fleet.log").read_text()

    # The process

    def start(self, *arguments: str, ready: bool = True) -> "Mastered":
        """Start it, and wait until it runs unless told not to."""
        command = [*self.prefix, sys.executable, "-P", "-m", "rota_supervisor", "run", *arguments]
        env = os.environ | self.environment
        with (self.folder / "fleet.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if ready:
            until(lambda: self.log("fleet.ready") or self.has_ended(), "the fleet is ready")
            assert not self.has_ended(), self.text()
        return self

    def has_ended(self) -> bool:
        """Whether the master has left."""
        assert self._process is not None
        return self._process.poll() is not None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send the master a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def exit_code(self) -> int:
        """Wait for the master's end."""
        assert self._process is not None
        return self._process.wait(60)

    def close(self) -> None:
        """End it, however it is."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self.redis.close()
        shutil.rmtree(self._sockets)

    # What the master says

    def ask(self, verb: str, **fields: Any) -> dict[str, Any]:
        """One request to the control socket."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(60)
            asking.connect(f"{self._sockets}/s")
            asking.sendall(json.dumps({"verb": verb, **fields}).encode() + b"\n")
            with asking.makefile("rb") as answers:
                answer: dict[str, Any] = json.loads(answers.readline())
        return answer

    def is_up(self) -> bool:
        """Whether it answers, and its fleet runs."""
        try:
            return str(self.status()["state"]) == "running"
        except OSError:
            return False

    def status(self) -> dict[str, Any]:
        """The whole status."""
        found: dict[str, Any] = self.ask("status")["status"]
        return found

    def reload(self) -> dict[str, Any]:
        """Have it read its configuration again; answers what became of it."""
        answer: dict[str, Any] = self.ask("reload")["reload"]
        return answer

    def children(self, role: str = "", state: str = "") -> list[dict[str, Any]]:
        """Its children, by slot."""
        return [row for row in self.status()["children"] if role in ("", row["role"]) and state in ("", row["state"])]

    def pids(self, role: str = "", state: str = "") -> set[int]:
        """Their processes."""
        return {row["pid"] for row in self.children(role, state)}

    def until_replaced(self, role: str, old: int) -> None:
        """Wait until another process of that role is ready."""
        until(lambda: self.pids(role, "ready") - {old}, f"a new {role} is ready")

    def until_workers(self, count: int) -> set[int]:
        """Wait until exactly so many workers are there, all ready; answers their pids."""

        def settled() -> set[int]:
            rows = self.children("worker")
            whole = len(rows) == count and all(row["state"] == "ready" for row in rows)
            return {row["pid"] for row in rows} if whole else set()

        return until(settled, f"{count} workers are ready")

    # What is in Redis

    def push(self, name: str, text: str, queue: str = "default") -> str:
        """Push a task as other languages do; its id is its text."""
        self.redis.rpush(self.keys.ready_lane(queue), json.dumps([text, queue, name, [text]]))
        return text

    def lane(self, queue: str = "default") -> list[bytes]:
        """The ready lane as it stands."""
        found = self.redis.lrange(self.keys.ready_lane(queue), 0, -1)
        assert isinstance(found, list)
        return [entry for entry in found if isinstance(entry, bytes)]

    def inflight(self) -> list[str]:
        """The in-flight lists there are."""
        return [key.decode() for key in self.redis.scan_iter(self.keys.inflight("*"))]

    def epitaph(self, task_id: str) -> dict[str, Any]:
        """Why a task is dead; {} when it is not."""
        if self.redis.zscore(self.keys.dead, task_id) is None:
            return {}  # of a living one the account of its last crash is kept there
        raw = self.redis.hget(self.keys.epitaphs, task_id)
        found: dict[str, Any] = json.loads(raw) if isinstance(raw, bytes) else {}
        return found


def is_alive(pid: int) -> bool:
    """Whether a process runs: a zombie does not."""
    fields = _stat_of(pid)
    return fields is not None and fields[0] != "Z"


def _stat_of(pid: int) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def descendants(pid: int) -> set[int]:
    """All processes below one, zombies among them."""
    below: dict[int, list[int]] = {}
    for other in psutil.pids():
        fields = _stat_of(other)
        if fields is not None:
            below.setdefault(int(fields[1]), []).append(other)
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        children = below.get(waiting.pop(), [])
        found.update(children)
        waiting += children
    return found
