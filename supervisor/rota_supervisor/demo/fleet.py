"""The fleet of the demo: `rota run --embedded` in a folder of its own, started and stopped as a user does.

1. It has a session of its own, so a Ctrl-C in the terminal reaches the demo only, which then ends it in order.
2. It is killed by the kernel when the demo dies without a chance to do so, and everything below dies with it.
3. Whatever it started is looked for after its end, by process and not by number.
"""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from rota_supervisor.demo import scenario
from rota_supervisor.demo.interrupts import Interrupts
from rota_supervisor.demo.numbers import Numbers, read_numbers

READY_SECONDS: Final = 60.0
LEAVE_SECONDS: Final = 45.0  # above the fleet's own drain limit and its server's
_FETCH_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.05
_STOP_SECONDS: Final = 5.0  # what takes a millisecond on a machine that is not overloaded
_GONE_SECONDS: Final = 3.0
_QUEUES: Final = tuple(queue for tier in scenario.TIERS for queue in tier)


class FleetEnded(Exception):
    """The fleet ended by itself. `code` is its exit code; the message has what it said."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(f"the fleet ended by itself with exit code {code}{said}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Place:
    """Where a fleet is to be: a folder, and two free ports of this machine."""

    folder: Path
    redis_port: int
    http_port: int

    @property
    def redis_url(self) -> str:
        """Where its server listens."""
        return f"redis://127.0.0.1:{self.redis_port}/0"

    @property
    def http_url(self) -> str:
        """Where its exporter listens."""
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def config_file(self) -> Path:
        """Its configuration."""
        return self.folder / "rota.toml"

    @property
    def log_file(self) -> Path:
        """What it says."""
        return self.folder / "fleet.log"

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
        with place.log_file.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module, no shell
                _command(place), cwd=place.folder, env=_environment(), stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def check(self, patience_seconds: float = 0.0) -> None:
        """Raises FleetEnded when it is gone, or goes while we wait."""
        try:
            code = self._process.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            return
        raise FleetEnded(code, _errors_in(self.place.log_file))

    def is_ready(self) -> bool:
        """Whether it takes work, by `/readyz`. Raises FleetEnded."""
        self.check()
        answer = self._fetch("/readyz")
        return answer is not None and answer[0] == http.client.OK

    def numbers(self) -> Numbers | None:
        """Its `/metrics` now; None when it does not answer, as while one exporter follows another."""
        answer = self._fetch("/metrics")
        if answer is None or answer[0] != http.client.OK:
            return None
        try:
            return read_numbers(answer[1], _QUEUES)
        except ValueError:  # of a fleet that is ending, or of whoever has its port now
            return None

    def _fetch(self, path: str) -> tuple[int, str] | None:
        # Not urllib: a proxy in the environment has no part in this.
        connection = http.client.HTTPConnection("127.0.0.1", self.place.http_port, timeout=_FETCH_SECONDS)
        with contextlib.closing(connection):
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
                return answer.status, answer.read().decode()
            except (OSError, http.client.HTTPException):
                return None

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
        family = self._family()
        self._signal(signal.SIGTERM)
        for impatient in (signal.SIGQUIT, signal.SIGKILL):
            if self._gone_within(LEAVE_SECONDS, interrupts):
                break
            self._signal(impatient)
        code = self._process.wait()
        return Ending(code, time.monotonic() - started, _end_leftovers(family))

    def _family(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def _signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)  # does nothing once it is known to be gone

    def _gone_within(self, seconds: float, interrupts: Interrupts) -> bool:
        deadline = time.monotonic() + seconds
        while self._process.poll() is None:
            if interrupts.wait(_LOOK_SECONDS) or time.monotonic() > deadline:
                return False
        return True


def _command(place: Place) -> list[str]:
    rota = [sys.executable, "-P", "-m", "rota_supervisor", "run", "--embedded", "--config", str(place.config_file)]
    return [sys.executable, "-P", "-m", "rota_supervisor.process", str(os.getpid()), *rota]


def _environment() -> dict[str, str]:
    # The caller's settings are for the caller's fleet: with them the demo would meet a server that is in use.
    return {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}


def _errors_in(log_file: Path) -> str:
    lines = log_file.read_text(encoding="utf-8", errors="replace").splitlines()
    mark = "rota: error: "
    said = [line.removeprefix(mark) for line in lines if line.startswith(mark)] or lines[-3:]
    return f": {'; '.join(said)}" if said else ""


def _end_leftovers(family: list[psutil.Process]) -> tuple[str, ...]:
    """Wait a moment for processes to be gone; kill and name those that are not."""
    _, left = psutil.wait_procs(family, timeout=_GONE_SECONDS)
    alive = [process for process in left if _is_alive(process)]
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    return tuple(f"process {process.pid}" for process in alive)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE  # whoever inherited it may be slow to reap
    except psutil.NoSuchProcess:
        return False


def _stands_still(worker: psutil.Process) -> bool:
    """Wait until a process is stopped that was told to; False when that takes too long."""
    deadline = time.monotonic() + _STOP_SECONDS
    while worker.status() != psutil.STATUS_STOPPED:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True
