"""The master's end of the control socket. This module ensures that only one master uses the socket's path, and replies
to the requests of `rota status`, `scale`, `reload`, `restart`, `quiet`, `resume` and `stop`. It also returns the
address of the Redis server to commands whose configuration file is not valid.

A request is one line with a JSON object, for example `{"verb": "status"}`. The reply is one line as well:
`{"ok": true, "status": {...}}`, or `{"ok": false, "error": "what is wrong and what to do"}`.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import socket
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rota_supervisor.config.errors import shown, suggestion
from rota_supervisor.config.model import Config
from rota_supervisor.control.port import (
    ControlPort,
    ControlReply,
    RequestKind,
    RequestRefused,
    ScaleOrder,
    is_of_others,
    is_of_service,
    socket_paths,
)
from rota_supervisor.exits import ExitCode, Failure

SOCKET_MODE = 0o600
SERVICE_SOCKET_MODE = 0o660  # used in the folder of a systemd unit, whose group may operate the fleet
FOLDER_MODE = 0o700
LOCK_MODE = 0o600
SIGNATURE_BYTES = 32
SIGNING_SECONDS = 0.2
BACKLOG = 16
MAX_LINE_BYTES: Final = 65_536
QUIET_SECONDS: Final = 30.0  # a connection is closed if it sends no request for this long
_Request = Mapping[str, Any]
_Act = Callable[[ControlPort, _Request], ControlReply | Awaitable[ControlReply]]


# The socket has mode 0600, or 0660 in the folder of a systemd unit, and is guarded by a lock on `PATH.lock`. The kernel
# releases the lock when the process that holds it ends. Therefore a master that has obtained the lock may replace a
# socket that a killed master left behind. The lock file and the pid file have mode 0600 too, because any process that
# can open a file can lock it. Both files are removed at the end. In /tmp, another user may already have created a
# folder with the name that this user's folder should have. Therefore a folder there is used only if it belongs to this
# user and is closed to all others.


class _HeldError(Exception):
    """Raised if another process holds the lock on a file. The text is the pid of that process, if it is known."""


def _locked(path: Path, what: str, setting: str) -> int:
    """Lock the file at a path for the life of this process, write this process's pid into it, and return its
    descriptor.

    `what`: a description of the file, for the error message. `setting`: the setting that determines the path, also for
    the error message. Raises Failure with code 73 if another process holds the lock.
    """
    try:
        while True:
            fd = _opened(path)
            with contextlib.ExitStack() as unless_signed:
                unless_signed.callback(os.close, fd)
                if _sign(fd, path):
                    unless_signed.pop_all()
                    return fd
    except _HeldError as holder:
        raise _taken(f"another master, pid {holder}, has {what}: stop it, or set {setting}") from None
    except OSError as error:
        why = error.strerror or error
        raise _taken(f"{what} cannot be written: {why}: set {setting} to another path") from None


def _opened(path: Path) -> int:
    """Open a file for locking, and create it if it does not exist.

    A file that exists is opened without O_CREAT. With O_CREAT, the kernel would not let even root open another user's
    file in a folder such as /tmp (see `fs.protected_regular`).
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, flags)
        with contextlib.suppress(FileExistsError):  # Another process has created the file meanwhile.
            return os.open(path, flags | os.O_CREAT | os.O_EXCL, LOCK_MODE)


def _sign(fd: int, path: Path) -> bool:
    """Lock an open file and write this process's pid into it. Returns False if the file is no longer at the path.

    This happens if the previous holder of the lock removed the file after this process had opened it, but before this
    process locked it. A lock on a removed file would not keep other processes out. Raises _HeldError or OSError.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _HeldError(_signature(fd)) from None
    if not _is_at(path, fd):
        return False
    found = os.fstat(fd)
    is_file = stat.S_ISREG(found.st_mode)
    if not is_file or not all(word.isdigit() for word in os.pread(fd, SIGNATURE_BYTES, 0).split()):
        raise OSError("the path exists and is not a pid file")  # If the path is wrong, do not overwrite that file.
    if found.st_uid != os.geteuid():
        os.fchown(fd, os.geteuid(), -1)
    os.fchmod(fd, LOCK_MODE)  # No other user may lock or write the file, even if the file existed before.
    os.ftruncate(fd, os.pwrite(fd, b"%d\n" % os.getpid(), 0))
    return True


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def _release(fd: int, path: Path) -> None:
    """Release the lock on a file. Remove the file first, unless there is now another file at the path.

    Any process that has opened the file but not locked it yet notices that the file was removed (`_sign`).
    """
    if _is_at(path, fd):
        path.unlink()
    os.close(fd)


def _signature(fd: int) -> str:
    """Return the pid that another process has written into a file that it has locked. Wait briefly, because that
    process may have locked the file without having written its pid yet."""
    deadline = time.monotonic() + SIGNING_SECONDS
    while not (words := os.pread(fd, SIGNATURE_BYTES, 0).split()) and time.monotonic() < deadline:
        time.sleep(SIGNING_SECONDS / 100)
    pid = words[0].decode(errors="replace") if words else "unknown"
    user = os.fstat(fd).st_uid
    return pid if user == os.geteuid() else f"{pid} of user {user}"


def _taken(message: str) -> Failure:
    return Failure(ExitCode.TAKEN, message)


@contextlib.contextmanager
def hold_pid_file(path: str) -> Iterator[None]:
    """Hold the pid file while the block runs, and remove the file at the end. Do nothing if the path is "". Raises
    Failure with code 73."""
    with contextlib.ExitStack() as at_end:
        if path:
            fd = _locked(Path(path), f"the pid file {path}", "--pid-file or control.pid_file")
            at_end.callback(_release, fd, Path(path))
        yield


@dataclass(frozen=True, slots=True)
class ControlSocket:
    """The listening control socket, and the lock on its path."""

    path: Path
    listening: socket.socket
    lock_fd: int

    def close(self) -> None:
        """Remove the socket, then release the lock."""
        self.path.unlink(missing_ok=True)
        self.listening.close()
        _release(self.lock_fd, _lock_of(self.path))


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def claim_control_socket(path: Path, mode: int = SOCKET_MODE) -> ControlSocket:
    """Lock the path and listen on it. If a killed master has left a socket behind at the path, replace this socket.
    Raises Failure with code 73."""
    _make_folder(path.parent)
    lock_fd = _locked(_lock_of(path), f"the control socket {path}", "control.socket")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        _listen(listening, path, mode)
    except OSError as error:
        listening.close()
        _release(lock_fd, _lock_of(path))
        why = error.strerror or error
        raise _taken(
            f"the control socket {path} cannot be created: {why}: set control.socket to another path"
        ) from None
    return ControlSocket(path, listening, lock_fd)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True)
        folder.chmod(FOLDER_MODE)  # The umask may have cleared bits of the mode.
    except FileExistsError:
        pass
    except OSError as error:
        raise _taken(
            f"the folder {folder} of the control socket cannot be created: {error.strerror}: set control.socket"
        ) from None
    if is_of_others(folder):
        raise _taken(f"{folder} does not belong to this user alone (mode 0700): remove it, or set control.socket")


def _listen(listening: socket.socket, path: Path, mode: int) -> None:
    """Listen at the path. If a killed master has left a socket behind there, replace it. Raises OSError, for example if
    the file at the path is not a socket."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise OSError(f"the path {path} exists and is not a socket")
        path.unlink()
    before = os.umask(0o777 & ~mode)
    try:
        listening.bind(str(path))
    finally:
        os.umask(before)
    listening.listen(BACKLOG)


@contextlib.contextmanager
def hold_control_files(config: Config) -> Iterator[ControlSocket]:
    """Hold the pid file and the control socket while the block runs. Raises Failure with code 73."""
    path = socket_paths(config.control.socket, config.namespace, os.environ, os.getuid())[0]
    mode = SERVICE_SOCKET_MODE if is_of_service(path.parent, os.environ) else SOCKET_MODE
    with hold_pid_file(config.control.pid_file), contextlib.closing(claim_control_socket(path, mode)) as claimed:
        yield claimed


# The connections of clients


@contextlib.asynccontextmanager
async def serve_control(control_socket: ControlSocket, port: ControlPort) -> AsyncIterator[None]:
    """Serve the control socket while the block runs. At the end of the block, open connections are closed."""
    tasks: set[asyncio.Task[None]] = set()

    # This function is not a coroutine. Otherwise asyncio would create its task, and up to Python 3.12.1, asyncio would
    # report an error if that task were cancelled.
    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(_serve_connection(reader, writer, port))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_unix_server(serve, sock=control_socket.listening, limit=MAX_LINE_BYTES)
    try:
        yield
    finally:
        server.close()
        open_tasks = list(tasks)
        for task in open_tasks:
            task.cancel()
        await asyncio.gather(*open_tasks, return_exceptions=True)


async def _serve_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: ControlPort) -> None:
    """Reply to one client, one request at a time.

    If a client does not read its replies, no further requests are read from this client. If a client sends many
    requests at once, the other clients are served after each of them.
    """
    writer.transport.set_write_buffer_limits(high=0)
    try:
        while True:
            async with asyncio.timeout(QUIET_SECONDS):
                line = await reader.readuntil()
            writer.write(json.dumps(await _respond(line, port)).encode() + b"\n")
            async with asyncio.timeout(QUIET_SECONDS):
                await writer.drain()
            await asyncio.sleep(0)  # The two awaits above may not let other tasks run.
    except (ConnectionError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass  # The client disconnected, sent nothing for too long, or sent too long a line.
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


# Requests and replies. A request with a mistake is refused with an explanation.


async def _respond(line: bytes, port: ControlPort) -> ControlReply:
    """Reply to a request. The reply contains the result under the name of the verb. The reply to a reload is sent when
    the outcome of the reload is known."""
    try:
        name, reply = _fulfil(line, port)
        return {"ok": True, name: reply if isinstance(reply, dict) else await reply}
    except RequestRefused as refused:
        return {"ok": False, "error": str(refused)}


def _fulfil(line: bytes, port: ControlPort) -> tuple[str, ControlReply | Awaitable[ControlReply]]:
    request = _request_in(line)
    name = request.pop("verb", None)
    if not isinstance(name, str):
        raise RequestRefused(f"a request must name its verb, one of {', '.join(VERBS)}")
    if name not in VERBS:
        near = suggestion(name, VERBS) or f": it knows the verbs {', '.join(VERBS)}"
        raise RequestRefused(f"this master does not know the verb {shown(name)}{near}")
    act, fields = VERBS[name]
    for field in request:
        if field not in fields:  # A misspelt `dry_run` must not start a reload.
            takes = f"it takes {', '.join(fields)}" if fields else "it takes no fields"
            raise RequestRefused(f"{name} has no field {shown(field)}{suggestion(field, fields) or f': {takes}'}")
    return name, act(port, request)


def _request_in(line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        request = None
    if not isinstance(request, dict):
        raise RequestRefused('a request is one JSON object on one line, for example {"verb": "status"}')
    return request


def _reload(port: ControlPort, request: _Request) -> Awaitable[ControlReply]:
    return port.request(RequestKind.PREVIEW if _flag(request, "dry_run") else RequestKind.RELOAD)


def _stop(port: ControlPort, request: _Request) -> Awaitable[ControlReply]:
    return port.request(RequestKind.STOP_NOW if _flag(request, "now") else RequestKind.DRAIN)


def _scale(port: ControlPort, request: _Request) -> Awaitable[ControlReply]:
    pool = request.get("pool")
    given = [key for key in ("workers", "more", "auto") if key in request]
    if pool is not None and not isinstance(pool, str):
        raise RequestRefused(f"pool must be a name, got {shown(pool)}")
    if len(given) != 1:
        raise RequestRefused("scale takes exactly one of workers (the new number), more (the number to add) and auto")
    if given == ["auto"]:
        if request["auto"] is not True:
            raise RequestRefused(f"auto must be true, got {shown(request['auto'])}")
        return port.request(RequestKind.SCALE, ScaleOrder(pool, None))
    number = request[given[0]]
    if type(number) is not int:  # True is an int as well, but is not accepted.
        raise RequestRefused(f"{given[0]} must be a whole number, got {shown(number)}")
    return port.request(RequestKind.SCALE, ScaleOrder(pool, number, is_relative=given[0] == "more"))


def _flag(request: _Request, name: str) -> bool:
    value = request.get(name, False)
    if not isinstance(value, bool):
        raise RequestRefused(f"{name} must be true or false, got {shown(value)}")
    return value


# The function that carries out each verb, and the additional fields that a request with this verb may have.
VERBS: Final[dict[str, tuple[_Act, tuple[str, ...]]]] = {
    "status": (lambda port, _: port.status(), ()),
    "scale": (_scale, ("pool", "workers", "more", "auto")),
    "reload": (_reload, ("dry_run",)),
    "restart": (lambda port, _: port.request(RequestKind.RESTART), ()),
    "quiet": (lambda port, _: port.request(RequestKind.QUIET), ()),
    "resume": (lambda port, _: port.request(RequestKind.RESUME), ()),
    "stop": (_stop, ("now",)),
    "address": (lambda port, _: port.address(), ()),
    "scaling": (lambda port, _: port.scaling(), ()),
}
