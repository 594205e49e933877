"""A Redis server and a fleet for the tests of applications. The fixtures `rota_client` and `rota_fleet` use this
module.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rota.client.blocking.client import Client
from rota.protocol.keys import Keys, pattern_of_all
from rota.server.address import parse_address
from rota.server.connection import ConnectionOptions, connect
from rota.tasks.registry import default_registry
from rota_supervisor.embedded import embedded_server

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0
_READY: Final = b"READY=1"
_LOG: Final = "fleet.log"
_SHOWN_CHARACTERS: Final = 4000
_DEFAULTS: Final = {"workers": 2, "http": {"listen": ""}, "log": {"format": "json"}, "limits": {"drain_seconds": 2}}


class FleetFailed(RuntimeError):
    """Raised if the fleet of a test did not start. The message contains the end of the fleet's log."""


@contextlib.contextmanager
def server() -> Iterator[str]:
    """Run an embedded server for the duration of the block, and yield its URL. Raises Failure if the server cannot be
    started.
    """
    # The path must be short, because the path of a socket is limited to about a hundred characters.
    with tempfile.TemporaryDirectory(prefix="rota-") as folder:
        url = f"unix://{folder}/server"
        with embedded_server(url, Path(folder)):
            yield url


def erase(redis_url: str, namespace: str) -> None:
    """Remove all keys that tests have left in a namespace."""
    keys = Keys(namespace)
    connection = connect(parse_address(redis_url, key=keys.tasks), ConnectionOptions("rota-testing"))
    with contextlib.closing(connection):
        cursor = b"0"
        while True:
            cursor, found = connection.execute("SCAN", cursor, "MATCH", pattern_of_all(keys), "COUNT", 1000)
            if found:
                connection.execute("UNLINK", *found)
            if cursor == b"0":
                return


def fleet_settings(client_url: str, namespace: str, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the contents of `rota.toml` for a fleet in tests. The fleet imports the modules of the tasks that are
    declared in this process, and serves their queues. Settings in `own` override these settings."""
    tasks = list(default_registry)
    settings: dict[str, Any] = {
        "redis_url": client_url,
        "namespace": namespace,
        "imports": sorted({task.function.__module__ for task in tasks}),
        "tiers": [sorted({task.options.queue for task in tasks} or {"default"})],
        **_DEFAULTS,
    }
    for name, value in own.items():
        settings[name] = {**settings.get(name, {}), **value} if isinstance(value, Mapping) else value
    return settings


class FleetOfTest:
    """A master with its workers, started by `rota run` for a test. `client` enqueues tasks for the fleet. `folder`
    contains the fleet's `rota.toml` and log."""

    def __init__(self, client: Client, folder: Path, settings: Mapping[str, Any]) -> None:
        self.client = client
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._configure(settings)

    def _configure(self, settings: Mapping[str, Any]) -> None:
        text = _toml({"control": {"socket": str(self.folder / "control")}, **settings})
        (self.folder / "rota.toml").write_text(text, encoding="utf-8")

    @property
    def log(self) -> str:
        """The log of all processes of the fleet, with the output of tasks."""
        return (self.folder / _LOG).read_text(encoding="utf-8", errors="replace")

    def start(self, *launcher: str, new_session: bool = False) -> None:
        """Start the fleet, and wait until its workers are ready. `launcher`: arguments for Python that precede the
        command, for example those that start `rota_supervisor.process`. Raises FleetFailed.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
            notified.bind(str(self.folder / "notify"))
            with (self.folder / _LOG).open("ab") as log:
                self._process = self._spawn(log.fileno(), launcher, new_session=new_session)
            if not _wait_until_ready(notified, self._process.pid):
                raise FleetFailed(self._why_not())

    @property
    def pid(self) -> int | None:
        """The pid of the master, or None if it was not started."""
        return None if self._process is None else self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code of the master if it has ended on its own, or None."""
        return None if self._process is None else self._process.poll()

    def reload(self, settings: Mapping[str, Any]) -> None:
        """Write new settings to the configuration, and send SIGHUP to the master."""
        assert self._process is not None, "a fleet that runs"
        self._configure(settings)
        self._process.send_signal(signal.SIGHUP)

    def stop(self) -> int:
        """Stop the fleet, wait until it has ended, and return its exit code. Tasks that still run after
        `limits.drain_seconds` are killed."""
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()  # The master's children die with it.
            self._process.wait()
        code = self._process.returncode
        self._process = None
        return code

    def _spawn(self, log_fd: int, launcher: Sequence[str], *, new_session: bool) -> subprocess.Popen[bytes]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
        more = {"NOTIFY_SOCKET": str(self.folder / "notify"), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        return subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, *launcher, "-P", "-m", "rota_supervisor", "run", "-c", str(self.folder / "rota.toml")],
            env=inherited | more,
            stdin=subprocess.DEVNULL,
            stdout=log_fd,
            stderr=log_fd,
            start_new_session=new_session,
        )

    def _why_not(self) -> str:
        return (
            "the fleet did not start. It imports the modules of the tasks that are declared in this process, by the "
            "same sys.path. If these are the wrong modules, return others from the fixture rota_fleet_settings, as in "
            '{"imports": ["tasks"]}. '
            f"The end of its log:\n{self.log[-_SHOWN_CHARACTERS:]}"
        )


@contextlib.contextmanager
def fleet(client: Client, settings: Mapping[str, Any]) -> Iterator[FleetOfTest]:
    """Run a fleet for the duration of the block. Raises FleetFailed if the fleet does not start."""
    with tempfile.TemporaryDirectory(prefix="rota-") as folder:
        made = FleetOfTest(client, Path(folder), settings)
        try:
            made.start()
            yield made
        finally:
            made.stop()


def _wait_until_ready(notified: socket.socket, pid: int) -> bool:
    """Wait until the master reports that it is ready. Returns False if the master ends before it is ready or takes too
    long.
    """
    ended = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(notified, select.POLLIN)
    poller.register(ended, select.POLLIN)
    deadline = time.monotonic() + START_SECONDS
    try:
        while (left := deadline - time.monotonic()) > 0:
            found = {fd for fd, _ in poller.poll(left * 1000)}
            if ended in found:
                return False
            if notified.fileno() in found and _READY in notified.recv(4096).splitlines():
                return True
        return False
    finally:
        os.close(ended)


def _toml(settings: Mapping[str, Any], path: str = "") -> str:
    """Return settings as TOML. Nested mappings become tables, and all other values are written as JSON."""
    plain = [f"{key} = {json.dumps(value)}" for key, value in settings.items() if not isinstance(value, Mapping)]
    tables = [
        f"[{path}{json.dumps(key)}]\n{_toml(value, f'{path}{json.dumps(key)}.')}"
        for key, value in settings.items()
        if isinstance(value, Mapping)
    ]
    return "\n".join([*plain, *tables]) + "\n"
