"""What people can ask of a master, whoever carries it there: the control socket, a signal, a test."""

import json
import socket
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
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
