"""Where a master can be reached, and that it is there alone: control socket, lock and pid file.

The socket is a unix socket, mode 0600. A place is held by a lock on `PATH.lock`, which the kernel drops with
its process: whoever has the lock may replace a socket that a killed master left behind. In /tmp, where anybody
may make a folder of our name first, one that is not ours alone is neither used nor asked.
"""

import contextlib
import fcntl
import os
import socket
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rota_supervisor.config.model import Config
from rota_supervisor.exits import ExitCode, Failure

SOCKET_MODE = 0o600
FOLDER_MODE = 0o700
BACKLOG = 16


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


def is_of_others(folder: Path) -> bool:
    """Whether a folder bears the name of ours in /tmp and is somebody else's, a link, or open to others."""
    if folder.name != f"rota-{os.getuid()}":
        return False
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return False
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid in (os.geteuid(), 0)
    return not ours or bool(found.st_mode & 0o077)


def _locked(path: Path, what: str, setting: str) -> int:
    """Lock the file at a path for the life of this process and write our pid into it; answers its descriptor.

    `what` the lock is for, and the `setting` that moves it. Raises Failure 73 when another process holds it.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise _taken(f"{what} cannot be had: {path}: {error.strerror}: set {setting} to another place") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(fd)
        raise _taken(f"another master, pid {holder}, has {what}: stop it, or set {setting}") from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, b"%d\n" % os.getpid(), 0)
    return fd


def _taken(message: str) -> Failure:
    return Failure(ExitCode.TAKEN, message)


@contextlib.contextmanager
def pid_file(path: str) -> Iterator[None]:
    """Hold the pid file while the master lives and remove it after; "" is none. Raises Failure 73."""
    if not path:
        yield
        return
    fd = _locked(Path(path), f"the pid file {path}", "control.pid_file")
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
    """Take the place and listen there, replacing what a killed master left. Raises Failure 73."""
    _make_folder(path.parent)
    lock_fd = _locked(path.with_name(f"{path.name}.lock"), f"the control socket {path}", "control.socket")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        _remove_stale(path)
        _bind_private(listening, path)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        os.close(lock_fd)
        why = error.strerror or error
        raise _taken(f"the control socket {path} cannot be made: {why}: set control.socket to another place") from None
    return ControlPlace(path, listening, lock_fd)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise _taken(
            f"the folder {folder} of the control socket cannot be made: {error.strerror}: set control.socket"
        ) from None
    if is_of_others(folder):
        raise _taken(f"{folder} is not a folder of ours alone (mode 0700): remove it, or set control.socket")


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
