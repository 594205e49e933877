"""The client of the control socket. It finds the master of a configuration, even if the file has faults, and sends
requests to this master.
"""

import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import structs

from rota_supervisor.config.model import Config, Control
from rota_supervisor.control.port import (
    SERVICES,
    exchange,
    folders_of_services,
    folders_of_sockets,
    is_of_others,
    socket_paths,
)
from rota_supervisor.exits import ExitCode, Failure

REPLY_SECONDS: Final = 10.0
HIDDEN_POLL_SECONDS: Final = 0.1  # how often to check whether a master whose pid is not visible has ended
_UCRED: Final = struct.Struct("3i")


class ControlClient:
    """A connection to the control socket of a running master."""

    def __init__(self, connected: socket.socket, path: Path) -> None:
        self._socket = connected
        self._path = path
        self.master_pid, _ = _peer_of(connected)  # 0 if the master is in a PID namespace that is not visible here

    def request(self, verb: str, seconds: float = REPLY_SECONDS, **fields: Any) -> dict[str, Any]:
        """Send a request and wait up to `seconds` for the reply. Raises Failure with code 69 if there is no reply, and
        with code 1 if the master refuses."""
        try:
            reply = exchange(self._socket, {"verb": verb, **fields}, seconds)
        except TimeoutError:
            reason = (
                f" within {seconds:g} s: see the log of the master, and check whether process {self.master_pid} "
                "is stopped"
            )
            raise self._no_reply(reason) from None
        except OSError as error:
            raise self._no_reply(f": {error}") from error
        if not reply.get("ok"):
            raise Failure(ExitCode.NO, f"the master refused: {reply.get('error', 'it did not give a reason')}")
        return reply

    def _no_reply(self, reason: str) -> Failure:
        return Failure(ExitCode.UNREACHABLE, f"the master at {self._path} did not reply{reason}")

    def wait_for_exit(self, seconds: float) -> bool:
        """Wait until the master has ended, for at most `seconds`. Returns whether it has ended."""
        if self.master_pid:
            return _has_exited(self.master_pid, seconds)
        deadline = time.monotonic() + seconds
        while (connected := _connect(self._path)) is not None:
            connected.close()
            if time.monotonic() > deadline:
                return False
            time.sleep(HIDDEN_POLL_SECONDS)
        return True


@contextlib.contextmanager
def master_of(config: Config) -> Iterator[ControlClient]:
    """Yield a connection to the master of this configuration. Raises Failure with code 69 if there is none."""
    paths = socket_paths(config.control.socket, config.namespace, os.environ, os.getuid())
    if not config.control.socket:
        paths += [folder / f"{config.namespace}.sock" for folder in folders_of_services()]
    refused: list[Path] = []
    for path in paths:
        try:
            connected = _connect(path)
        except PermissionError:
            refused.append(path)
            continue
        if connected is not None:
            with connected:
                yield ControlClient(connected, path)
            return
    raise Failure(ExitCode.UNREACHABLE, _why_none(paths, refused))


def _why_none(paths: list[Path], refused: list[Path]) -> str:
    """Return a text that explains why no master was found at these paths. `refused`: the paths that this user may not
    open.
    """
    closed = [path for path in refused if not os.access(path.parent, os.X_OK, effective_ids=True)]
    members = "as root, or, if the fleet is a systemd unit, as a member of the group of that unit"
    for path in refused:
        if path not in closed:
            return f"{path} belongs to another user: run this command as the user of the master, {members}"
    why = (
        f"no master is listening at {' or '.join(map(str, paths))}: start a master with `rota run`, or correct the "
        "paths under [control]"
    )
    if closed:
        folders = " and ".join(str(path.parent) for path in closed)
        why += f". This user may not search {folders}: if the master is running, run this command {members}"
    return why


def _connect(path: Path) -> socket.socket | None:
    """Return a connection to the socket at this path, or None if no process of a trusted user listens there. Raises
    PermissionError.
    """
    if is_of_others(path.parent):  # A listener there cannot be this user's master.
        return None
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connecting.settimeout(REPLY_SECONDS)
    try:
        connecting.connect(str(path))
    except OSError as error:
        connecting.close()
        if isinstance(error, PermissionError):
            raise
        return None
    if not _is_trusted(_peer_of(connecting)[1], path.parent):  # Another user's process occupies the address.
        connecting.close()
        return None
    return connecting


def _is_trusted(user: int, folder: Path) -> bool:
    """Whether to trust a process of `user` that listens in `folder`, so that it may be the master. Root and the user of
    this command are trusted, and in the folder of a service, the owner of the folder. Root itself trusts all users.
    """
    if os.geteuid() == 0 or user in (os.geteuid(), 0):
        return True
    return folder.parent == SERVICES and user == folder.stat().st_uid


def _peer_of(connected: socket.socket) -> tuple[int, int]:
    """Return the pid and the user id of the process at the other end of the socket."""
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, user, _ = _UCRED.unpack(raw)
    return pid, user


def _has_exited(pid: int, seconds: float) -> bool:
    """Wait up to `seconds` until a process has ended. It need not be a child of this process. Returns whether it has
    ended.
    """
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], seconds)[0])
    finally:
        os.close(fd)


# Finding the master if the file has faults


class FoundMaster(NamedTuple):
    """A running master, with the Redis server and the namespace of its fleet."""

    path: Path
    pid: int
    redis_url: str
    redis_credentials: str
    namespace: str

    def reached_by(self, config: Config) -> Config:
        """Return the configuration, with this master's socket and the server and namespace of its fleet filled in.

        If no tiers could be read, the result has none instead of the default tier, because the fleet may not have the
        queue `default`.
        """
        tiers = () if config.tiers == Config().tiers else config.tiers
        control = Control(socket=str(self.path))
        server = {"redis_url": self.redis_url, "redis_credentials": self.redis_credentials}
        return structs.replace(config, **server, namespace=self.namespace, control=control, tiers=tiers)


def find_master(file: Path, usable: Config) -> FoundMaster | None:
    """Return the master on this node that was started with a configuration file, or None if there is none or more than
    one.

    `usable`: the part of the configuration that could be read. A master with another server or namespace is ignored, so
    that no command reaches a fleet that the user did not name.
    """
    found = [each for path in _sockets(usable) if (each := _master_at(path, file)) is not None]
    matching = [each for each in found if _matches(each, usable)]
    return matching[0] if len(matching) == 1 else None


def _sockets(usable: Config) -> list[Path]:
    if usable.control.socket:
        return [Path(usable.control.socket)]
    folders = [*folders_of_sockets(os.environ, os.getuid()), *folders_of_services()]
    return sorted({path for folder in folders if not is_of_others(folder) for path in folder.glob("*.sock")})


def _master_at(path: Path, file: Path) -> FoundMaster | None:
    """Return the master that listens at a path, or None if no master replies or the master was started with another
    file.
    """
    with contextlib.suppress(PermissionError, Failure):
        connected = _connect(path)
        if connected is None:
            return None
        with connected:
            client = ControlClient(connected, path)
            reply = client.request("address")["address"]
        if reply["file"] == str(file.absolute()):
            return FoundMaster(
                path, client.master_pid, *(reply[key] for key in ("redis_url", "redis_credentials", "namespace"))
            )
    return None


def _matches(found: FoundMaster, usable: Config) -> bool:
    default = Config()
    return usable.namespace in (default.namespace, found.namespace) and usable.redis_url in (
        default.redis_url,
        found.redis_url,
    )
