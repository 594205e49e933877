"""The requests that people can send to a master through the control socket or by signal, and the client side of the
control socket."""

import json
import os
import socket
import stat
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final, Protocol

ControlReply = dict[str, object]  # a reply, before it is encoded as JSON
SERVICES: Final = Path("/run")  # Only root can create a folder here, so each folder belongs to the user of its service.


class RequestRefused(Exception):
    """A request that the master cannot carry out. The text states what is wrong and what to do."""


@dataclass(frozen=True, slots=True)
class ScaleOrder:
    """An order to set the number of workers of a pool, or to change it by a difference."""

    pool: str | None  # the name of the pool; None is permitted if there is only one pool
    number: int | None  # the number; None stands for the configured number, or for scaling within the configured range
    is_relative: bool = False  # whether to add `number` to the current number of workers


class RequestKind(Enum):
    """A request by a person, a signal or a changed file."""

    DRAIN = auto()  # stop the fleet when the running tasks have ended
    STOP_NOW = auto()  # stop the fleet at once
    RELOAD = auto()  # read the configuration again
    RESTART = auto()  # read the configuration again, and import the code again
    MORE = auto()  # start one more worker in the first pool
    LESS = auto()  # stop one worker in the first pool
    QUIET = auto()  # stop claiming tasks until RESUME
    RESUME = auto()  # claim tasks again
    REPORT = auto()  # write the status, and the stacks of all children, to the log
    PREVIEW = auto()  # show what a reload would do
    SCALE = auto()  # set or change the number of workers of a pool


class ControlPort(Protocol):
    """The master as its clients see it. All methods are called in the master's event loop and return at once. Each can
    raise RequestRefused."""

    def status(self) -> ControlReply:
        """Return the current status of the fleet."""

    def address(self) -> ControlReply:
        """Return the server and the namespace of the fleet, and the configuration file with which the fleet was
        started."""

    def scaling(self) -> ControlReply:
        """Return the measurements from which the number of workers is computed, for each pool whose number of workers
        is a range."""

    def request(self, kind: RequestKind, order: ScaleOrder | None = None) -> Awaitable[ControlReply]:
        """Make a request. `order` is required for SCALE, and must be None for all other kinds.

        The returned awaitable resolves to the reply, but a caller does not have to await it. The reply to RELOAD or
        RESTART is ready when the outcome is known. All other replies are ready at once.
        """


# The path of the control socket, and a request through it


def socket_paths(configured: str, namespace: str, environment: Mapping[str, str], uid: int) -> list[Path]:
    """Return the possible paths of a fleet's control socket, the likeliest first.

    A master uses the first one. `configured`: the path in the configuration, or "" if it has none.
    """
    if configured:
        return [Path(configured)]
    return [folder / f"{namespace}.sock" for folder in folders_of_sockets(environment, uid)]


def folders_of_sockets(environment: Mapping[str, str], uid: int) -> list[Path]:
    """Return the folders in which a user's control sockets are if their path is not configured. The likeliest folder is
    first."""
    folders = [Path("/tmp") / f"rota-{uid}"]  # noqa: S108 - the folder is created with 0700 and its owner is checked
    if session := environment.get("XDG_RUNTIME_DIR"):
        folders.insert(0, Path(session) / "rota")
    if service := environment.get("RUNTIME_DIRECTORY"):
        folders.insert(0, Path(service.partition(":")[0]))
    return folders


def folders_of_services(root: Path = SERVICES) -> list[Path]:
    """Return those folders in `root` that systemd created for units with `RuntimeDirectory=rota` or `rota-NAME`."""
    return [folder for folder in (root / "rota", *sorted(root.glob("rota-*"))) if folder.is_dir()]


def is_of_service(folder: Path, environment: Mapping[str, str]) -> bool:
    """Whether systemd created this folder for the unit of this process. In such a folder, the control socket may also
    be used by the unit's group."""
    return str(folder) == environment.get("RUNTIME_DIRECTORY", "").partition(":")[0]


def is_of_others(folder: Path) -> bool:
    """Whether another user could control this folder, so that it is unsafe to use. Only the folder `rota-UID` of this
    user in /tmp is checked. It is unsafe if it is a link, belongs to another user, or is open to other users. For a
    folder with any other name, the result is False."""
    if folder.name != f"rota-{os.getuid()}":
        return False
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return False
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid in (os.geteuid(), 0)
    return not ours or bool(found.st_mode & 0o077)


def exchange(connected: socket.socket, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Send a request and return the reply. Raises TimeoutError if there is no reply within `seconds`, or OSError if the
    connection fails."""
    connected.settimeout(seconds)
    with connected.makefile("rb") as reader:
        connected.sendall(json.dumps(request).encode() + b"\n")
        line = reader.readline()
    if not line:
        raise ConnectionResetError("it hung up")
    reply: dict[str, Any] = json.loads(line)
    return reply
