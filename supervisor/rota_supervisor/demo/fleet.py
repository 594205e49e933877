"""The fleet of the demo: `rota run --embedded` in a folder of its own, started and stopped as a user does.

1. It has a session of its own, so a Ctrl-C in the terminal reaches the demo only, which then ends it in order.
2. It is killed by the kernel when the demo dies without a chance to do so, and everything below dies with it.
3. Whatever it started is looked for after its end, by process and not by number.
"""

import contextlib
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import psutil

from rota_supervisor.demo import scenario
from rota_supervisor.demo.books import FleetBooks, read_books
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.node_http import NodeHttp, NodeSilent

READY_SECONDS: Final = 60.0
LEAVE_SECONDS: Final = 45.0  # above the fleet's own drain limit and its server's
_LOOK_SECONDS: Final = 0.05
_STOP_SECONDS: Final = 5.0  # what takes a millisecond on a machine that is not overloaded
_GONE_SECONDS: Final = 3.0
_QUEUES: Final = tuple(queue for tier in scenario.TIERS for queue in tier)
_ERROR: Final = "rota: error: "


class Interrupts:
    """Ctrl-C and its like as something to wait for: while entered, INT, TERM and HUP do not end this process.

    HUP stays ignored where it was, under nohup. INT does not: shells ignore it for what they start with `&`.
    """

    def __init__(self) -> None:
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def __enter__(self) -> Self:
        for number, handler in self._before.items():
            if number != signal.SIGHUP or handler is not signal.SIG_IGN:
                signal.signal(number, lambda *_: self.ring())
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._bell)

    def ring(self) -> None:
        """Interrupt."""
        os.eventfd_write(self._bell, 1)

    def wait(self, seconds: float) -> bool:
        """Wait for an interrupt; True when there was one since the last call, at once then."""
        if not select.select([self._bell], [], [], seconds)[0]:
            return False
        os.eventfd_read(self._bell)
        return True


class Place:
    """Where a fleet is to be: a folder, and two free ports of this machine."""

    def __init__(self, folder: Path, redis_port: int, http_port: int) -> None:
        self.folder = folder
        self.redis_port = redis_port
        self.http_port = http_port
        self.redis_url = f"redis://127.0.0.1:{redis_port}/0"
        self.http_url = f"http://127.0.0.1:{http_port}"
        self.config_file = folder / "rota.toml"
        self.log_file = folder / "fleet.log"

    def config_text(self) -> str:
        """The configuration to begin with."""
        return scenario.CONFIG_TEXT.format(
            namespace=scenario.NAMESPACE,
            redis_url=self.redis_url,
            workers=scenario.WORKERS,
            listen=f"127.0.0.1:{self.http_port}",
            socket=self.folder / "control.sock",
        )


def find_place(folder: Path) -> Place:
    """A place in `folder`, on ports that are free now."""
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return Place(folder, one.getsockname()[1], other.getsockname()[1])


@dataclass(frozen=True, slots=True)
class Ending:
    """How the fleet left: exit code, how long it took, and its processes that were still there (and killed)."""

    code: int
    seconds: float
    left_behind: tuple[str, ...]


class Fleet:
    """A running fleet. Call `end` whatever happens."""

    def __init__(self, place: Place) -> None:
        """Start it. Raises OSError."""
        self.place = place
        place.config_file.write_text(place.config_text(), encoding="utf-8")
        python = [sys.executable, "-P", "-m"]
        rota = [*python, "rota_supervisor", "run", "--embedded", "--config", str(place.config_file)]
        # The caller's settings are for the caller's fleet: with them the demo would meet a server that is in use.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
        with place.log_file.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module, no shell
                [*python, "rota_supervisor.process", str(os.getpid()), *rota], cwd=place.folder,
                env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def check(self, patience_seconds: float = 0.0) -> None:
        """Raises Failure, with its exit code and what it said, when it has ended by itself or does while we wait."""
        try:
            code = self._process.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            return
        lines = self.place.log_file.read_text(encoding="utf-8", errors="replace").splitlines()
        said = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)] or lines[-3:]
        message = "; ".join(said)
        known = ExitCode(code) if code in set(ExitCode) - {ExitCode.CLEAN} else ExitCode.NO
        raise Failure(known, f"the fleet ended by itself with exit code {code}" + (f": {message}" if message else ""))

    def is_ready(self) -> bool:
        """Whether it takes work, by `/readyz`. Raises Failure."""
        self.check()
        return self._fetch("/readyz") is not None

    def status(self) -> dict[str, Any] | None:
        """Its `/status.json` now; None when it does not answer, as while one exporter follows another."""
        text = self._fetch("/status.json")
        try:
            return None if text is None else dict(json.loads(text))
        except ValueError:  # of a fleet that is ending, or of whoever has its port now
            return None

    def books(self) -> FleetBooks | None:
        """What is in it for the demo; None likewise."""
        status = self.status()
        try:
            return None if status is None else read_books(status, _QUEUES)
        except (KeyError, TypeError):
            return None

    def _fetch(self, path: str) -> str | None:
        """What is answered with 200; None for everything else."""
        try:
            answer = NodeHttp("http", "127.0.0.1", self.place.http_port).get(path)
        except NodeSilent:
            return None
        return answer.text if answer.status == http.client.OK else None

    def resize(self, workers: int) -> None:
        """Edit the file and send SIGHUP."""
        text = self.place.config_file.read_text(encoding="utf-8")
        beside = self.place.config_file.with_suffix(".new")
        beside.write_text(scenario.with_workers(text, workers), encoding="utf-8")
        beside.replace(self.place.config_file)
        self._process.send_signal(signal.SIGHUP)

    def kill_worker(self, pid: int, is_busy: Callable[[], bool]) -> bool:
        """SIGKILL a worker that is busy, which is looked at while it stands still; False when it is not, or the process
        of that number is no child of this fleet's master."""
        try:
            worker = psutil.Process(pid)
            if worker.ppid() != self._process.pid:
                return False
            worker.suspend()  # looks again whether it is the same process
            if not (_stands_still(worker) and is_busy()):
                worker.resume()
                return False
            worker.kill()
        except psutil.NoSuchProcess:
            return False
        return True

    def end(self, interrupts: Interrupts) -> Ending:
        """TERM and wait. An interrupt meanwhile has it leave at once, and so does waiting too long."""
        started = time.monotonic()
        family: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            family = psutil.Process(self._process.pid).children(recursive=True)
        self._process.send_signal(signal.SIGTERM)  # does nothing once it is known to be gone
        for impatient in (signal.SIGQUIT, signal.SIGKILL):
            if self._is_gone_within(LEAVE_SECONDS, interrupts):
                break
            self._process.send_signal(impatient)
        code = self._process.wait()
        return Ending(code, time.monotonic() - started, _end_leftovers(family))

    def _is_gone_within(self, seconds: float, interrupts: Interrupts) -> bool:
        deadline = time.monotonic() + seconds
        while self._process.poll() is None:
            if interrupts.wait(_LOOK_SECONDS) or time.monotonic() > deadline:
                return False
        return True


def _end_leftovers(family: list[psutil.Process]) -> tuple[str, ...]:
    """Wait a moment for processes to be gone; kill and name those that are not."""
    _, left = psutil.wait_procs(family, timeout=_GONE_SECONDS)
    killed = []
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:  # whoever inherited it may be slow to reap
                killed.append(f"process {process.pid}")
                process.kill()
    return tuple(killed)


def _stands_still(worker: psutil.Process) -> bool:
    """Wait until a suspended process is stopped; False when that takes too long."""
    deadline = time.monotonic() + _STOP_SECONDS
    while worker.status() != psutil.STATUS_STOPPED:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True
