"""The blocking side of the control socket: one request, one answer, from this node's master."""

import contextlib
import json
import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rota_supervisor.config.model import Config
from rota_supervisor.control.places import is_of_others, socket_places
from rota_supervisor.exits import ExitCode, Failure

ANSWER_SECONDS = 10.0
UNSEEN_LOOK_SECONDS = 0.1  # whether a master still answers whose process cannot be waited for
_UCRED = struct.Struct("3i")


class ControlClient:
    """A conversation with a live master."""

    def __init__(self, connected: socket.socket, path: Path) -> None:
        self._socket = connected
        self._path = path
        self.master_pid, _ = _peer_of(connected)  # 0 when it is in a PID namespace that is not seen from this one

    def ask(self, verb: str, seconds: float = ANSWER_SECONDS, **fields: Any) -> dict[str, Any]:
        """Send a request and wait so long for its answer. Raises Failure: 69 without one, 1 for a refusal."""
        self._socket.settimeout(seconds)
        line, reason = b"", "it hung up"
        try:
            with self._socket.makefile("rb") as reader:
                self._socket.sendall(json.dumps({"verb": verb, **fields}).encode() + b"\n")
                line = reader.readline()
        except TimeoutError:
            reason = f"not within {seconds:g} s: see its log, and whether process {self.master_pid} is stopped"
        except OSError as error:
            reason = str(error)
        if not line:
            raise Failure(ExitCode.UNREACHABLE, f"the master at {self._path} did not answer: {reason}")
        answer: dict[str, Any] = json.loads(line)
        if not answer.get("ok"):
            raise Failure(ExitCode.NO, f"the master refused: {answer.get('error', 'it did not say why')}")
        return answer

    def wait_for_exit(self, seconds: float) -> bool:
        """Wait until the master has ended; False when it has not in time."""
        if self.master_pid:
            return _has_exited(self.master_pid, seconds)
        deadline = time.monotonic() + seconds
        while (connected := _connect(self._path)) is not None:
            connected.close()
            if time.monotonic() > deadline:
                return False
            time.sleep(UNSEEN_LOOK_SECONDS)
        return True


@contextlib.contextmanager
def master_of(config: Config) -> Iterator[ControlClient]:
    """A conversation with the master of this configuration. Raises Failure 69 when there is none."""
    places = socket_places(config, os.environ, os.getuid())
    refused: list[Path] = []
    for path in places:
        try:
            connected = _connect(path)
        except PermissionError:
            refused.append(path)
            continue
        if connected is not None:
            with connected:
                yield ControlClient(connected, path)
            return
    if refused:
        why = f"{refused[0]} is another user's: ask as the user of the master, or as root"
    else:
        why = f"no master answers at {' or '.join(map(str, places))}: start one with `rota run`, or see [control]"
    raise Failure(ExitCode.UNREACHABLE, why)


def _connect(path: Path) -> socket.socket | None:
    """A connection, or None where nobody listens. Raises PermissionError."""
    if is_of_others(path.parent):  # whoever listens there is not our master
        return None
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connecting.settimeout(ANSWER_SECONDS)
    try:
        connecting.connect(str(path))
    except OSError as error:
        connecting.close()
        if isinstance(error, PermissionError):
            raise
        return None
    if _peer_of(connecting)[1] not in (os.geteuid(), 0) and os.geteuid() != 0:  # it sits where our master would
        connecting.close()
        return None
    return connecting


def _peer_of(connected: socket.socket) -> tuple[int, int]:
    """The process that listens at the other end, and its user."""
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, user, _ = _UCRED.unpack(raw)
    return pid, user


def _has_exited(pid: int, seconds: float) -> bool:
    """Whether a process that is not our child ends within this time."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        return bool(poller.poll(seconds * 1000))
    finally:
        os.close(fd)
