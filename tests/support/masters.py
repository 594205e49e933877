"""A real master for tests, with a short configuration and tasks that record their runs. Tests can read the fleet's data
in Redis.
"""

import json
from pathlib import Path
from typing import Any, Self

import pytest
import redis

from rota.protocol.keys import Keys
from support.fleet_process import FleetProcess
from support.growing_files import whole_lines
from support.servers import Server
from support.waiting import until

# One kind of server is enough here, because the results of these tests do not depend on the server. The rest of the
# suite runs on each kind.
ON_ONE_SERVER = pytest.mark.parametrize("server", ["valkey"], indirect=True)
TASKS = """
import os, signal, subprocess, sys, time
from pathlib import Path
import rota

HERE = Path(__file__).parent

def record(line):
    with open(HERE / "ran.txt", "a") as file:
        file.write(line + "\\n")

@rota.task
def note(text):
    record(text)

@rota.task
def hold(text):
    record(f"start {text} {os.getpid()}")
    while not (HERE / "release").exists():
        time.sleep(0.01)
    record(f"end {text}")

@rota.task
def die(text):
    record(f"die {text}")
    os.kill(os.getpid(), signal.SIGKILL)

@rota.task
def leave(text):
    record(f"leave {text}")
    os._exit(0)

@rota.task(time_limit=1)
def overrun(text):
    record(f"overrun {text}")
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
    record(f"behind {same_group} {own_group} {own_session}")
    while True:
        time.sleep(1)
"""


class Mastered(FleetProcess):
    """A real `rota run` with a short configuration. `settings` are lines of TOML that follow the address, the namespace
    and the imports.
    """

    def __init__(self, server: Server, namespace: str, folder: Path, settings: str = "workers = 2") -> None:
        super().__init__(folder)
        self.server = server
        self.namespace = namespace
        self.keys = Keys(namespace)
        self.redis: redis.Redis = redis.Redis.from_url(server.url, socket_timeout=30)
        (folder / "tasks.py").write_text(TASKS)
        self.configure(settings)

    # The folder

    def configure(self, settings: str) -> None:
        """Write the configuration. The settings may contain tables, so they follow the plain keys."""
        head = [
            f'redis_url = "{self.server.url}"',
            f'namespace = "{self.namespace}"',
            *([] if "imports" in settings else ['imports = ["tasks"]']),
        ]
        tables = f'[control]\nsocket = "{self.folder}/control"\n'
        tables += "" if "[http]" in settings else '[http]\nlisten = "127.0.0.1:0"\n'
        self.write("\n".join([*head, settings, tables]))

    def add_tasks(self, text: str) -> None:
        """Append more tasks to `TASKS`."""
        with (self.folder / "tasks.py").open("a") as file:
            file.write(text)

    def ran(self) -> list[str]:
        """Return the lines that the tasks wrote."""
        return [line.decode() for line in whole_lines(self.folder / "ran.txt")]

    def starts(self, text: str) -> list[int]:
        """Return the pids of the processes that started `hold` with this text, in order."""
        return [int(line.split()[2]) for line in self.ran() if line.startswith(f"start {text} ")]

    def release(self) -> None:
        """Release `hold`."""
        (self.folder / "release").touch()

    # The process

    def start(self, *arguments: str) -> Self:
        """Start the master, and wait until its fleet runs."""
        self.launch(*arguments)
        until(lambda: self.log("fleet.ready") or self.has_ended(), "the fleet is ready")
        assert not self.has_ended(), self.log_text()
        return self

    def close(self) -> None:
        """Kill the master, whatever its state."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.redis.close()

    def is_up(self) -> bool:
        """Whether the master responds, and its fleet runs."""
        try:
            return self.status().get("state") == "running"
        except TimeoutError:
            return False

    def reload(self) -> dict[str, Any]:
        """Request a reload, and return its result."""
        answer: dict[str, Any] = self.request("reload")["reload"]
        return answer

    # Redis

    def push(self, name: str, text: str, queue: str = "default") -> str:
        """Push a task as programs in other languages do. `text` is both its argument and its id."""
        self.redis.rpush(self.keys.ready_lane(queue), json.dumps([text, queue, name, [text]]))
        return text

    def lane(self, queue: str = "default") -> list[bytes]:
        """Return the entries of both lanes of a queue. Both are read, because a dead worker's task is in the delayed
        lane.
        """
        lanes = (self.keys.delayed_lane(queue), self.keys.ready_lane(queue))
        found = [entry for lane in lanes for entry in self.redis.lrange(lane, 0, -1)]
        return [entry for entry in found if isinstance(entry, bytes)]

    def inflight(self) -> list[str]:
        """Return the keys of the in-flight lists that exist."""
        return [key.decode() for key in self.redis.scan_iter(self.keys.inflight("*"))]

    def death_record(self, task_id: str) -> dict[str, Any]:
        """Return the death record of a task, or {} if the task is not dead."""
        if self.redis.zscore(self.keys.dead, task_id) is None:
            return {}  # for a live task, `epitaphs` has the record of its last crash
        raw = self.redis.hget(self.keys.epitaphs, task_id)
        found: dict[str, Any] = json.loads(raw.splitlines()[-1]) if isinstance(raw, bytes) else {}
        return found
