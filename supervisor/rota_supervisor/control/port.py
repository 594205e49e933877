"""What people can ask of a master, whoever carries it there: the control socket, a signal, a test; and the control
socket for its clients."""

import json
import os
import socket
import stat
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any, Protocol

Answer = dict[str, object]  # what is written as JSON


class RequestRefused(Exception):
    """A request that cannot be fulfilled: its text says what is wrong and what to do."""


@dataclass(frozen=True, slots=True)
class ScaleOrder:
    """How many workers a pool is to have, or how many more. `pool` is None where there is but one."""

    pool: str | None
    number: int
    is_relative: bool = False


class RequestKind(Enum):
    """What a person, a signal or a changed file asks for."""

    DRAIN = auto()
    STOP_NOW = auto()
    RELOAD = auto()
    RESTART = auto()
    MORE = auto()
    LESS = auto()
    QUIET = auto()
    RESUME = auto()
    REPORT = auto()
    PREVIEW = auto()
    SCALE = auto()


class ControlPort(Protocol):
    """The master as people see it. All calls are made in its loop, return at once, and may raise RequestRefused."""

    def status(self) -> Answer:
        """Return the fleet as it stands."""

    def address(self) -> Answer:
        """Return the server and the namespace of the fleet, and the file that it was started with."""

    def ask(self, kind: RequestKind, order: ScaleOrder | None = None) -> Awaitable[Answer]:
        """Ask for something; `order`: of SCALE. What is returned resolves to the answer, and need not be awaited: for
        RELOAD and RESTART when it is known what became of it, for all others at once."""


# Where the control socket is, and a request over it


def socket_places(configured: str, namespace: str, environment: Mapping[str, str], uid: int) -> list[Path]:
    """Return where the control socket of a fleet may be, likeliest first; a master takes the first. `configured`: the
    path in the configuration, "" for none."""
    if configured:
        return [Path(configured)]
    return [folder / f"{namespace}.sock" for folder in folders_of_sockets(environment, uid)]


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


def exchange(connected: socket.socket, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Send a request, and return what is answered within this time. Raises TimeoutError; OSError where nobody does."""
    connected.settimeout(seconds)
    with connected.makefile("rb") as reader:
        connected.sendall(json.dumps(request).encode() + b"\n")
        line = reader.readline()
    if not line:
        raise ConnectionResetError("it hung up")
    answer: dict[str, Any] = json.loads(line)
    return answer
