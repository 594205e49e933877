"""Where a master can be reached, and that it is there alone: control socket, lock and pid file.

The socket is a unix socket, mode 0600. A place is held by a lock on `PATH.lock`, which the kernel drops with
its process: whoever has the lock may replace a socket that a killed master left behind. Lock and pid file are 0600 too,
as who can open a file can lock it; both are taken away at the end. In /tmp, where anybody may make a folder of our name
first, one that is not ours alone is neither used nor asked.
"""

import contextlib
import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rota_supervisor.config.model import Config
from rota_supervisor.exits import ExitCode, Failure

SOCKET_MODE = 0o600
FOLDER_MODE = 0o700
LOCK_MODE = 0o600
SIGNATURE_BYTES = 32
SIGNING_SECONDS = 0.2
BACKLOG = 16


def socket_places(config: Config, environment: Mapping[str, str], uid: int) -> list[Path]:
    """Return where the control socket of this configuration may be, likeliest first; a master takes the first."""
    if config.control.socket:
        return [Path(config.control.socket)]
    return [folder / f"{config.namespace}.sock" for folder in folders_of_sockets(environment, uid)]


def folders_of_sockets(environment: Mapping[str, str], uid: int) -> list[Path]:
    """Return the folders that hold control sockets whose path no configuration names, likeliest first."""
    folders = [Path("/tmp") / f"rota-{uid}"]  # noqa: S108 - the folder is made 0700 and its owner is checked
    if session := environment.get("XDG_RUNTIME_DIR"):
        folders.insert(0, Path(session) / "rota")
    if service := environment.get("RUNTIME_DIRECTORY"):
        folders.insert(0, Path(service.partition(":")[0]))
    return folders


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
        raise _taken(f"{what} cannot be had: {path}: {why}: set {setting} to another place") from None


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
            fd = _locked(Path(path), f"the pid file {path}", "control.pid_file")
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
