"""The control socket: how `rota status`, `reload` and `stop` reach the master of this node.

A unix socket, mode 0600, in a folder only its user can enter. One JSON object a line, `{"verb": "status"}`,
answered by one JSON object a line: `{"ok": true, ...}` or `{"ok": false, "error": "what is wrong"}`.

A place is held by a lock on `PATH.lock`, which the kernel drops with its process: whoever has the lock may
replace a socket that a killed master left behind.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import socket
import stat
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rota_supervisor.config.model import Config
from rota_supervisor.master.control_port import ControlPort

SOCKET_MODE = 0o600
FOLDER_MODE = 0o700
BACKLOG = 16
MAX_LINE_BYTES = 65_536
QUIET_SECONDS = 30.0  # a client that says nothing for longer is hung up on


class PlaceTakenError(Exception):
    """A live master has the socket or the pid file, or the place cannot be used."""


def socket_places(config: Config, environment: Mapping[str, str], uid: int) -> list[Path]:
    """Where the control socket of this configuration is, likeliest first; a master takes the first."""
    if config.control.socket:
        return [Path(config.control.socket)]
    folders = [Path("/tmp") / f"rota-{uid}"]  # noqa: S108 - the folder is made 0700 and its owner is checked
    if session := environment.get("XDG_RUNTIME_DIR"):
        folders.insert(0, Path(session) / "rota")
    if service := environment.get("RUNTIME_DIRECTORY"):
        folders.insert(0, Path(service.partition(":")[0]))
    return [folder / f"{config.namespace}.sock" for folder in folders]


def locked(path: Path, said: str) -> int:
    """Lock the file at a path for the life of this process and write our pid into it; answers its descriptor.

    `said`: what the lock is for. Raises PlaceTakenError when another process holds it, naming it.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise PlaceTakenError(f"{said} cannot be had: {path}: {error.strerror}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(fd)
        raise PlaceTakenError(f"another master, pid {holder}, has {said}") from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, b"%d\n" % os.getpid(), 0)
    return fd


@contextlib.contextmanager
def pid_file(path: str) -> Iterator[None]:
    """Hold the pid file while the master lives and remove it after; "" is none. Raises PlaceTakenError."""
    if not path:
        yield
        return
    fd = locked(Path(path), f"the pid file {path}")
    try:
        yield
    finally:
        Path(path).unlink(missing_ok=True)
        os.close(fd)


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
        os.close(self.lock_fd)


def claim_place(path: Path) -> ControlPlace:
    """Take the place and listen there, replacing what a killed master left. Raises PlaceTakenError."""
    _make_folder(path.parent)
    lock_fd = locked(path.with_name(f"{path.name}.lock"), f"the control socket {path}")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        _remove_stale(path)
        _bind_private(listening, path)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        os.close(lock_fd)
        raise PlaceTakenError(f"the control socket {path} cannot be made: {error.strerror or error}") from None
    return ControlPlace(path, listening, lock_fd)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise PlaceTakenError(f"the folder {folder} of the control socket cannot be made: {error.strerror}") from None
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid in (os.geteuid(), 0)
    if folder.name == f"rota-{os.getuid()}" and not (ours and not found.st_mode & 0o077):
        raise PlaceTakenError(f"{folder} is not a folder of ours alone (mode 0700): remove it, or set control.socket")


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(f"there is something at {path} that is no socket")
    path.unlink()


def _bind_private(listening: socket.socket, path: Path) -> None:
    before = os.umask(0o777 & ~SOCKET_MODE)
    try:
        listening.bind(str(path))
    finally:
        os.umask(before)


@contextlib.asynccontextmanager
async def serve_control(place: ControlPlace, port: ControlPort) -> AsyncIterator[None]:
    """Answer requests at a place for the length of the block; whoever is still talking then is hung up on."""
    talks: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.current_task()
        assert talk is not None
        talks.add(talk)
        try:
            await _converse(reader, writer, port)
        except (ConnectionError, TimeoutError):
            pass  # the client left, or said nothing; it has nothing to be told
        finally:
            talks.discard(talk)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    server = await asyncio.start_unix_server(answer, sock=place.listening, limit=MAX_LINE_BYTES)
    try:
        yield
    finally:
        server.close()
        open_talks = list(talks)
        for talk in open_talks:
            talk.cancel()
        await asyncio.gather(*open_talks, return_exceptions=True)


async def _converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: ControlPort) -> None:
    while True:
        async with asyncio.timeout(QUIET_SECONDS):
            try:
                line = await reader.readuntil()
            except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                return
        writer.write(json.dumps(await respond(line, port)).encode() + b"\n")
        async with asyncio.timeout(QUIET_SECONDS):
            await writer.drain()


async def respond(line: bytes, port: ControlPort) -> dict[str, Any]:
    """The answer to one request; for `reload` when it is known what became of it."""
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        return _refusal("a request is one JSON object a line")
    match request:
        case {"verb": "status"}:
            return {"ok": True, "status": port.status()}
        case {"verb": "reload"}:
            return {"ok": True, "reload": await port.request_reload()}
        case {"verb": "stop"}:
            port.request_stop(now=request.get("now") is True)
            return {"ok": True}
        case {"verb": verb}:
            return _refusal(f"this master does not know the verb {verb!r}")
    return _refusal("a request names its verb")


def _refusal(error: str) -> dict[str, Any]:
    return {"ok": False, "error": error}
