"""The master's end of the control socket: how a master holds its place alone; how `rota status`, `scale`, `reload`,
`restart`, `quiet`, `resume` and `stop` are answered; and how commands whose configuration file has faults find their
server.

One JSON object a line, `{"verb": "status"}`, answered by one JSON object a line: `{"ok": true, "status": {...}}`, or
`{"ok": false, "error": "what is wrong and what to do"}`.
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

from rota_supervisor.config.model import Config, shown, suggestion
from rota_supervisor.control.port import (
    Answer,
    ControlPort,
    RequestKind,
    RequestRefused,
    ScaleOrder,
    is_of_others,
    socket_places,
)
from rota_supervisor.exits import ExitCode, Failure

SOCKET_MODE = 0o600
FOLDER_MODE = 0o700
LOCK_MODE = 0o600
SIGNATURE_BYTES = 32
SIGNING_SECONDS = 0.2
BACKLOG = 16
MAX_LINE_BYTES: Final = 65_536
QUIET_SECONDS: Final = 30.0  # a client that says nothing for longer is hung up on
_Request = Mapping[str, Any]
_Act = Callable[[ControlPort, _Request], Answer | Awaitable[Answer]]


# The place: a unix socket, mode 0600, held by a lock on `PATH.lock`, which the kernel drops with its process: a master
# that has the lock may replace a socket that a killed master left behind. Lock and pid file are 0600 too, as who can
# open a file can lock it; both are removed at the end. In /tmp, where others may make a folder of our name first, a
# folder that is not ours alone is not used.


class _HeldError(Exception):
    """Another process holds a lock; its pid, as far as it is known."""


def _locked(path: Path, what: str, setting: str) -> int:
    """Lock the file at a path for the life of this process and write our pid into it; return its descriptor.

    `what` the lock is for, and the `setting` that moves it. Raises Failure 73 when another process holds it.
    """
    try:
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, LOCK_MODE)
            with contextlib.ExitStack() as unless_signed:
                unless_signed.callback(os.close, fd)
                if _sign(fd, path):
                    unless_signed.pop_all()
                    return fd
    except _HeldError as holder:
        raise _taken(f"another master, pid {holder}, has {what}: stop it, or set {setting}") from None
    except OSError as error:
        why = error.strerror or error
        raise _taken(f"{what} cannot be written: {why}: set {setting} to another place") from None


def _sign(fd: int, path: Path) -> bool:
    """Lock an open file and put our pid in it; False when it is no more the one at the path: its holder took it away
    between our opening and our locking it, and a lock on it would keep nobody out. Raises _HeldError, OSError."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _HeldError(_signature(fd)) from None
    if not _is_at(path, fd):
        return False
    found = os.fstat(fd)
    is_file = stat.S_ISREG(found.st_mode)
    if not is_file or not all(word.isdigit() for word in os.pread(fd, SIGNATURE_BYTES, 0).split()):
        raise OSError("there is something that is no pid file")  # a path given by mistake costs nobody a file
    if found.st_uid != os.geteuid():
        os.fchown(fd, os.geteuid(), -1)
    os.fchmod(fd, LOCK_MODE)  # nobody else locks or writes it, were it older, or made by others
    os.ftruncate(fd, os.pwrite(fd, b"%d\n" % os.getpid(), 0))
    return True


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def _let_go(fd: int, path: Path) -> None:
    """Take a locked file away, unless another is there by now, and then its lock: who waits for that finds it gone."""
    if _is_at(path, fd):
        path.unlink()
    os.close(fd)


def _signature(fd: int) -> str:
    """The pid in a file that another process holds; it may have got there in the same instant as we."""
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
    """Hold the pid file while the master lives and remove it after; "" is none. Raises Failure 73."""
    with contextlib.ExitStack() as at_end:
        if path:
            fd = _locked(Path(path), f"the pid file {path}", "--pid-file or control.pid_file")
            at_end.callback(_let_go, fd, Path(path))
        yield


@dataclass(frozen=True, slots=True)
class ControlPlace:
    """The place of a control socket, locked, with the socket listening in it."""

    path: Path
    listening: socket.socket
    lock_fd: int

    def close(self) -> None:
        """Take the socket away, then let the lock go."""
        self.path.unlink(missing_ok=True)
        self.listening.close()
        _let_go(self.lock_fd, _lock_of(self.path))


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def claim_place(path: Path) -> ControlPlace:
    """Take the place and listen there, replacing what a killed master left. Raises Failure 73."""
    _make_folder(path.parent)
    lock_fd = _locked(_lock_of(path), f"the control socket {path}", "control.socket")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        _listen(listening, path)
    except OSError as error:
        listening.close()
        _let_go(lock_fd, _lock_of(path))
        why = error.strerror or error
        raise _taken(f"the control socket {path} cannot be made: {why}: set control.socket to another place") from None
    return ControlPlace(path, listening, lock_fd)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True)
        folder.chmod(FOLDER_MODE)  # whatever the umask took away
    except FileExistsError:
        pass
    except OSError as error:
        raise _taken(
            f"the folder {folder} of the control socket cannot be made: {error.strerror}: set control.socket"
        ) from None
    if is_of_others(folder):
        raise _taken(f"{folder} is not a folder of ours alone (mode 0700): remove it, or set control.socket")


def _listen(listening: socket.socket, path: Path) -> None:
    """Replace what a killed master left there by this socket. Raises OSError, also when there is something else."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise OSError(f"there is something at {path} that is no socket")
        path.unlink()
    before = os.umask(0o777 & ~SOCKET_MODE)
    try:
        listening.bind(str(path))
    finally:
        os.umask(before)
    listening.listen(BACKLOG)


@contextlib.contextmanager
def own_places(config: Config) -> Iterator[ControlPlace]:
    """Hold the pid file and the place of the control socket for the length of the block. Raises Failure 73."""
    place = socket_places(config.control.socket, config.namespace, os.environ, os.getuid())[0]
    with hold_pid_file(config.control.pid_file), contextlib.closing(claim_place(place)) as claimed:
        yield claimed


# From a connection to lines


@contextlib.asynccontextmanager
async def serve_control(place: ControlPlace, port: ControlPort) -> AsyncIterator[None]:
    """Answer requests at a place for the length of the block; whoever is still talking then is hung up on."""
    talks: set[asyncio.Task[None]] = set()

    # No coroutine: asyncio would make the task, and up to 3.12.1 report one that is cancelled as a failure.
    def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.get_running_loop().create_task(_talk(reader, writer, port))
        talks.add(talk)
        talk.add_done_callback(talks.discard)

    server = await asyncio.start_unix_server(answer, sock=place.listening, limit=MAX_LINE_BYTES)
    try:
        yield
    finally:
        server.close()
        open_talks = list(talks)
        for talk in open_talks:
            talk.cancel()
        await asyncio.gather(*open_talks, return_exceptions=True)


async def _talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: ControlPort) -> None:
    """Answer one client, a request at a time: one whose answers are not read is answered no more, and one that has sent
    many lets all others go first after each."""
    writer.transport.set_write_buffer_limits(high=0)
    try:
        while True:
            async with asyncio.timeout(QUIET_SECONDS):
                line = await reader.readuntil()
            writer.write(json.dumps(await _respond(line, port)).encode() + b"\n")
            async with asyncio.timeout(QUIET_SECONDS):
                await writer.drain()
            await asyncio.sleep(0)  # neither of the two waits need let others run
    except (ConnectionError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass  # the client left, said nothing, or has no end; there is nothing to answer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


# From a line to its answer; what a person got wrong is refused in words


async def _respond(line: bytes, port: ControlPort) -> Answer:
    """Return the answer under the name of its verb. A reload is answered when it is known what came of it."""
    try:
        name, answer = _fulfil(line, port)
        return {"ok": True, name: answer if isinstance(answer, dict) else await answer}
    except RequestRefused as refused:
        return {"ok": False, "error": str(refused)}


def _fulfil(line: bytes, port: ControlPort) -> tuple[str, Answer | Awaitable[Answer]]:
    request = _request_in(line)
    name = request.pop("verb", None)
    if not isinstance(name, str):
        raise RequestRefused(f"a request names its verb, one of {', '.join(VERBS)}")
    if name not in VERBS:
        near = suggestion(name, VERBS) or f": it knows {', '.join(VERBS)}"
        raise RequestRefused(f"this master does not know the verb {shown(name)}{near}")
    act, fields = VERBS[name]
    for field in request:
        if field not in fields:  # misspelt, a dry run would be none
            takes = f"it takes {', '.join(fields)}" if fields else "it takes none"
            raise RequestRefused(f"{name} has no field {shown(field)}{suggestion(field, fields) or f': {takes}'}")
    return name, act(port, request)


def _request_in(line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        request = None
    if not isinstance(request, dict):
        raise RequestRefused('a request is one JSON object a line, as {"verb": "status"}')
    return request


def _reload(port: ControlPort, request: _Request) -> Awaitable[Answer]:
    return port.ask(RequestKind.PREVIEW if _flag(request, "dry_run") else RequestKind.RELOAD)


def _stop(port: ControlPort, request: _Request) -> Awaitable[Answer]:
    return port.ask(RequestKind.STOP_NOW if _flag(request, "now") else RequestKind.DRAIN)


def _scale(port: ControlPort, request: _Request) -> Awaitable[Answer]:
    pool, given = request.get("pool"), [key for key in ("workers", "more") if key in request]
    if pool is not None and not isinstance(pool, str):
        raise RequestRefused(f"pool is a name, and not {shown(pool)}")
    if len(given) != 1:
        raise RequestRefused("scale takes either workers, how many there are to be, or more, how many more")
    number = request[given[0]]
    if type(number) is not int:  # True is an int, too
        raise RequestRefused(f"{given[0]} is a whole number, and not {shown(number)}")
    return port.ask(RequestKind.SCALE, ScaleOrder(pool, number, is_relative=given[0] == "more"))


def _flag(request: _Request, name: str) -> bool:
    value = request.get(name, False)
    if not isinstance(value, bool):
        raise RequestRefused(f"{name} is true or false, and not {shown(value)}")
    return value


# What each verb does, and the fields that a request may have beside it.
VERBS: Final[dict[str, tuple[_Act, tuple[str, ...]]]] = {
    "status": (lambda port, _: port.status(), ()),
    "scale": (_scale, ("pool", "workers", "more")),
    "reload": (_reload, ("dry_run",)),
    "restart": (lambda port, _: port.ask(RequestKind.RESTART), ()),
    "quiet": (lambda port, _: port.ask(RequestKind.QUIET), ()),
    "resume": (lambda port, _: port.ask(RequestKind.RESUME), ()),
    "stop": (_stop, ("now",)),
    "address": (lambda port, _: port.address(), ()),
}
