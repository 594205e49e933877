"""Single worker and poller processes that tests run without a master. The harness provides their slots and owners."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any, Final, TypeVar

from rota.child.child_settings import ServerSettings, WorkerSettings
from rota.child.slot_memory import SlotMemory
from rota.child.slots import Phase, Slot, boottime_ns
from rota.protocol.body import Body, encode_body
from rota.protocol.new_tasks import NewTask
from rota.protocol.outcome import read_attempt_records
from rota.protocol.scripts import ScriptCall
from rota.protocol.store import Store
from rota.protocol.tiers import QueueShare, domain_of
from rota.server.address import parse_address
from rota.server.connection import Connection
from support.child_settings import poller_settings, worker_settings
from support.growing_files import logged
from support.servers import Server
from support.waiting import DEADLINE_SECONDS, until

T = TypeVar("T")
LEASE_SECONDS: Final = 60.0
_CHILD: Final = Path(__file__).with_name("child_program.py")


def settings_for(server: Server, namespace: str, *queues: str, **changes: Any) -> WorkerSettings:
    """Return the worker settings of a pool that serves these queues, each in its own tier. For example, "a,b" is a tier
    with two queues.
    """
    tiers = tuple(domain_of([QueueShare(name) for name in tier.split(",")]) for tier in queues or ("default",))
    return worker_settings(tiers, ServerSettings(server.url, namespace), **{"lease_seconds": LEASE_SECONDS, **changes})


class ChildHarness:
    """A stand-in for the master. It starts workers and pollers, in one namespace of one server."""

    def __init__(self, server: Server, namespace: str, folder: Path) -> None:
        self.server = server
        self.store = Store(namespace)
        self.namespace = namespace
        self.connection = Connection(parse_address(server.url))
        self.memory = SlotMemory.create(8)
        self.log_path = folder / "worker.log"
        self._death_read, self.death_write = os.pipe()
        self.bell = os.eventfd(0)
        self._children: list[Child] = []

    def run(self, call: ScriptCall[T]) -> T:
        """Run a command as the master."""
        return self.connection.run(call)

    def enqueue(self, name: str, *args: Any, queue: str = "default", due: str = "", **options: Any) -> str:
        """Enqueue a task and return its id."""
        task_id = uuid.uuid4().hex
        body = encode_body(Body(task_id, queue, name, list(args), options=options))
        self.run(self.store.enqueue(uuid.uuid4().hex, [NewTask(task_id, queue, body, due)]))
        return task_id

    def ran(self) -> list[str]:
        """Return the lines that the tasks have written so far."""
        lines = self.connection.execute("LRANGE", f"{self.namespace}:ran", 0, -1)
        return [line.decode() for line in lines]

    def release(self) -> None:
        """Let one running `hold` task end."""
        self.connection.execute("RPUSH", f"{self.namespace}:release", "1")

    def state(self, task_id: str) -> str:
        """Return the state of the task."""
        return self.run(self.store.status(task_id)).state

    def death_record(self, task_id: str) -> dict[str, Any]:
        """Return the death record of a dead task."""
        return read_attempt_records(self.run(self.store.status(task_id)).attempt_records, "why")[-1]

    def inflight(self, owner: str) -> int:
        """Return the number of entries that the owner holds."""
        count: int = self.connection.execute("LLEN", self.store.keys.inflight(owner))
        return count

    def events(self, name: str = "") -> list[dict[str, Any]]:
        """Return the log lines of all children, or only those with the event `name`."""
        return logged(self.log_path, name)

    def start(self, settings: WorkerSettings, slot: int = 1, *, quiet: bool = False, **environment: str) -> "Child":
        """Register an owner, and start a worker for it."""
        (owner,) = self.run(self.store.register(round(LEASE_SECONDS * 1000), [f"node:{slot}"]))
        return self._spawn("worker", dataclasses.asdict(settings), slot, owner, environment, quiet=quiet)

    def start_poller(self, slot: int = 4, **changes: Any) -> "Child":
        """Start a poller."""
        settings = poller_settings(**{"server": ServerSettings(self.server.url, self.namespace), **changes})
        return self._spawn("poller", dataclasses.asdict(settings), slot, "", {})

    def _spawn(
        self,
        role: str,
        settings: dict[str, Any],
        slot: int,
        owner: str,
        environment: dict[str, str],
        *,
        quiet: bool = False,
    ) -> "Child":
        region = self.memory.slot(slot)
        nonce = len(self._children) + 1
        region.assign(nonce, settings.get("concurrency", 1))
        region.quiet_requested = quiet
        region.renewed_ns = boottime_ns()
        order = {
            "role": role,
            "settings": settings,
            "slot": slot,
            "nonce": nonce,
            "owner": owner,
            "slots_fd": self.memory.fd,
            "death_fd": self._death_read,
            "bell_fd": self.bell,
        }
        with self.log_path.open("ab") as sink:
            process = subprocess.Popen(
                [sys.executable, str(_CHILD), json.dumps(order)],
                stderr=sink,
                env={**os.environ, **environment},
                pass_fds=(self.memory.fd, self._death_read, self.bell),
            )
        child = Child(process, region, owner)
        self._children.append(child)
        return child

    def close(self) -> None:
        """Kill all remaining children."""
        for child in self._children:
            child.kill()
        self.connection.close()
        for fd in (self._death_read, self.bell):
            os.close(fd)
        if self.death_write >= 0:
            os.close(self.death_write)

    def die(self) -> None:
        """Close the death pipe, as if the master had died."""
        os.close(self.death_write)
        self.death_write = -1


@dataclasses.dataclass
class Child:
    """A worker or poller process under test."""

    process: "subprocess.Popen[bytes]"
    slot: Slot
    owner: str

    def until_phase(self, phase: Phase) -> "Child":
        """Wait until the slot of the process shows the phase."""
        until(lambda: self.slot.phase is phase, f"phase {phase.name}")
        return self

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.process.send_signal(signal.SIGTERM)

    def exit_code(self) -> int:
        """Wait until the process has ended and return its exit code."""
        return self.process.wait(DEADLINE_SECONDS)

    def kill(self) -> None:
        """Send SIGKILL to the process and wait until it has ended."""
        self.process.kill()
        self.process.wait()
