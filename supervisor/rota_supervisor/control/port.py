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

ControlReply = dict[str, object]  # a reply, which is sent as JSON
SERVICES: Final = Path("/run")  # Only root can create a folder here, so a folder's owner is the user of a service.


class RequestRefused(Exception):
    """A request that cannot be fulfilled. Its text states what is wrong and what to do."""


@dataclass(frozen=True, slots=True)
class ScaleOrder:
    """A new number of workers for a pool."""

    pool: str | None  # the name of the pool; can be None if there is only one
    number: int | None  # None returns to the configured number, or to scaling within the configured range
    is_relative: bool = False  # whether to add the number to the current one


class RequestKind(Enum):
    """A request by a person, a signal or a changed file."""

    DRAIN = auto()  # stop when the running tasks have ended
    STOP_NOW = auto()  # stop at once
    RELOAD = auto()  # read the configuration again
    RESTART = auto()  # read the configuration and import the code again
    MORE = auto()  # one more worker in the first pool
    LESS = auto()  # one worker fewer in the first pool
    QUIET = auto()  # stop claiming tasks for now
    RESUME = auto()  # claim tasks again
    REPORT = auto()  # write the status and all stacks to the log
    PREVIEW = auto()  # show what a reload would do
    SCALE = auto()  # set or change the number of workers of a pool


class ControlPort(Protocol):
    """The master as clients see it. All calls are made in the master's loop, return at once, and can raise
    RequestRefused."""

    def status(self) -> ControlReply:
        """Return the current status of the fleet."""

    def address(self) -> ControlReply:
        """Return the server and the namespace of the fleet, and the file that it was started with."""

    def scaling(self) -> ControlReply:
        """Return, for each pool with a range, the facts that determine its number of workers."""

    def request(self, kind: RequestKind, order: ScaleOrder | None = None) -> Awaitable[ControlReply]:
        """Make a request. `order` is required for SCALE, and None for all others.

        The returned awaitable resolves to the reply, but a caller does not have to await it. The reply to RELOAD and
        RESTART comes when their outcome is known. All other replies come at once.
        """


# The path of the control socket, and a request through it


def socket_paths(configured: str, namespace: str, environment: Mapping[str, str], uid: int) -> list[Path]:
    """Return the possible paths of a fleet's control socket, the likeliest first. A master uses the first path.

    `configured`: the path in the configuration, or "" for none.
    """
    if configured:
        return [Path(configured)]
    return [folder / f"{namespace}.sock" for folder in folders_of_sockets(environment, uid)]


def folders_of_sockets(environment: Mapping[str, str], uid: int) -> list[Path]:
    """Return the folders of a user's control sockets whose path is not configured, the likeliest first."""
    folders = [Path("/tmp") / f"rota-{uid}"]  # noqa: S108 - the folder is created with 0700 and its owner is checked
    if session := environment.get("XDG_RUNTIME_DIR"):
        folders.insert(0, Path(session) / "rota")
    if service := environment.get("RUNTIME_DIRECTORY"):
        folders.insert(0, Path(service.partition(":")[0]))
    return folders


def folders_of_services(root: Path = SERVICES) -> list[Path]:
    """Return the folders that systemd created for units with `RuntimeDirectory=rota` or `rota-NAME`."""
    return [folder for folder in (root / "rota", *sorted(root.glob("rota-*"))) if folder.is_dir()]


def is_of_service(folder: Path, environment: Mapping[str, str]) -> bool:
    """Whether systemd created this folder for the unit of this process. The unit's group may use the socket in it."""
    return str(folder) == environment.get("RUNTIME_DIRECTORY", "").partition(":")[0]


def is_of_others(folder: Path) -> bool:
    """Whether this user's folder in /tmp is unsafe to use, because it is a link, belongs to another user, or is open to
    other users. The result is False for a folder that does not have the name of this user's folder."""
    if folder.name != f"rota-{os.getuid()}":
        return False
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return False
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid in (os.geteuid(), 0)
    return not ours or bool(found.st_mode & 0o077)


def exchange(connected: socket.socket, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Send a request and return the reply. Raises TimeoutError after `seconds`, or OSError if there is no reply."""
    connected.settimeout(seconds)
    with connected.makefile("rb") as reader:
        connected.sendall(json.dumps(request).encode() + b"\n")
        line = reader.readline()
    if not line:
        raise ConnectionResetError("it hung up")
    reply: dict[str, Any] = json.loads(line)
    return reply
