"""A real exporter for tests. It is spawned as a master would spawn it, and the test fills the slots."""

import contextlib
import copy
import dataclasses
import json
import os
import secrets
import signal
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from rota.child.child_settings import ServerSettings
from rota.child.slot_memory import SharedText, SlotMemory
from rota.child.slots import MASTER_SLOT, Phase, Slot
from rota.telemetry.metrics import REDIS_UP, START_TIME
from rota.telemetry.recorder import Recorder
from rota_supervisor.child_start import SpawnedChild, Spawner, greet
from rota_supervisor.config.model import QueueConfig
from rota_supervisor.exporter.exporter_settings import ExporterSettings
from rota_supervisor.layout import EXPORTER_SLOT, RANGES, Role
from rota_supervisor.master.effects.listen_socket import bind
from rota_supervisor.master_snapshot import MasterSnapshot
from rota_supervisor.messages import Descriptors, First
from support.child_settings import exporter_settings
from support.waiting import until

DEADLINE_SECONDS = 30.0
POLLER_SLOT = RANGES[Role.POLLER][0]
WORKER_SLOT = RANGES[Role.WORKER][0]


@dataclass(frozen=True, slots=True)
class Page:
    """The response of an endpoint: its status, headers and body."""

    status: int
    headers: dict[str, str]
    body: str

    def json(self) -> Any:
        return json.loads(self.body)


def settings_for(url: str, namespace: str, *queues: str, **changes: Any) -> ExporterSettings:
    """Return settings of an exporter for these queues."""
    return exporter_settings(dict.fromkeys(queues, QueueConfig()), ServerSettings(url, namespace), **changes)


class Exporter:
    """A fleet with an exporter as its only child. The test process acts as the master, and writes the slots of the
    missing children.
    """

    def __init__(self, settings: ExporterSettings, listen: str = "127.0.0.1") -> None:
        self.settings = settings
        self.memory = SlotMemory.create(1024)
        self._spawner = Spawner()
        self.bell_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.listener = bind("", listen, "0")
        self.asked_at = "127.0.0.1"
        self.spawned: SpawnedChild | None = None
        self.fill(MASTER_SLOT, Phase.IDLE)
        self.master = self.recorder(MASTER_SLOT)
        self.master.gauge(REDIS_UP).set(1)
        self.publish(MasterSnapshot(fleet=settings.server.namespace, redis_up=True))
        self.master.gauge(START_TIME).set(time.time())

    @property
    def target(self) -> str:
        """The host and port, in the form of a Prometheus target."""
        return f"{self.asked_at}:{self.listener.getsockname()[1]}"

    def at(self, address: str) -> "Exporter":
        """Make the test connect to the exporter at another address of the machine. Return this exporter."""
        asked = copy.copy(self)
        asked.asked_at = address
        return asked

    @property
    def pid(self) -> int:
        assert self.spawned is not None
        return self.spawned.pid

    def fill(self, number: int, phase: Phase, pid: int | None = None) -> Slot:
        """Fill a slot with the data of a process, by default this one."""
        slot = self.memory.slot(number)
        slot.assign(1)
        slot.enter(1, pid or os.getpid())
        slot.phase = phase
        return slot

    def recorder(self, number: int) -> Recorder:
        """Return a metrics recorder for a slot, as the next process in the slot would create it."""
        return Recorder(self.memory.slot(number).metrics)

    def publish(self, master_snapshot: MasterSnapshot) -> None:
        """Publish this snapshot, as the master does."""
        shared_text = SharedText(self.memory.slot(MASTER_SLOT).far_spare)
        shared_text.publish(master_snapshot.to_json(shared_text.capacity))

    def start(self) -> "Exporter":
        """Spawn the exporter and wait until it serves."""
        nonce = secrets.randbits(32)
        self.memory.slot(EXPORTER_SLOT).assign(nonce)
        first = First("exporter", "node", os.getpid(), EXPORTER_SLOT, nonce, dataclasses.asdict(self.settings))
        self.spawned = self._spawner.start(Role.EXPORTER)
        greet(self.spawned, first, Descriptors(self.memory.fd, self.bell_fd, self.listener.fileno()))
        until(lambda: self.memory.slot(EXPORTER_SLOT).phase is Phase.IDLE, "the exporter serves")
        return self

    def get(self, path: str, method: str = "GET", data: bytes | None = None, **headers: str) -> Page:
        """Request an endpoint and return the response, even if it is an error response."""
        request = urllib.request.Request(f"http://{self.target}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as response:
                return Page(response.status, dict(response.headers), response.read().decode())
        except urllib.error.HTTPError as refusal:
            with refusal:
                return Page(refusal.code, dict(refusal.headers), refusal.read().decode())

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait until the exporter has ended. Return its exit code, or the negative number of the
        signal that killed it.
        """
        os.kill(self.pid, number)
        return self.wait()

    def drop_death_pipe(self) -> None:
        """Close the death pipe, as the kernel does when the master dies."""
        self._spawner.close()
        self._spawner = Spawner()

    def wait(self) -> int:
        """Wait until the exporter has ended and return its exit code."""
        assert self.spawned is not None
        _, status = os.waitpid(self.spawned.pid, 0)
        self.spawned.channel.close()
        self.spawned = None
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        """Kill the exporter, whatever its state."""
        if self.spawned is not None:
            self.end(signal.SIGKILL)
        self.listener.close()
        self._spawner.close()
        for fd in (self.bell_fd, self.memory.fd):
            with contextlib.suppress(OSError):
                os.close(fd)


def small_fleet(url: str, namespace: str, *more: str) -> Exporter:
    """Return an exporter that is not started yet, for the queues `mail`, `bulk` and `more`. The slots show a poller and
    a worker that are alive.
    """
    made = Exporter(settings_for(url, namespace, "mail", "bulk", *more))
    made.fill(POLLER_SLOT, Phase.IDLE)
    made.fill(WORKER_SLOT, Phase.IDLE)
    return made
