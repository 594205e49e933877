"""The commands that a server receives, counted with MONITOR."""

import socket
import time
from typing import NamedTuple
from urllib.parse import urlsplit


class Commands(NamedTuple):
    """The number of commands that clients sent, and the number of commands that scripts called in the server."""

    of_clients: int
    of_scripts: int


def commands_at(url: str, seconds: float) -> Commands:
    """Return the number of commands that the server received during this time."""
    return counted(monitored(url, seconds))


def monitored(url: str, seconds: float) -> str:
    """Return the lines that MONITOR shows during this time."""
    parts = urlsplit(url)
    deadline = time.monotonic() + seconds
    seen = b""
    with socket.create_connection((parts.hostname, parts.port)) as watching:
        watching.sendall(b"MONITOR\r\n")
        while (left := deadline - time.monotonic()) > 0:
            watching.settimeout(left)
            try:
                seen += watching.recv(65_536)
            except TimeoutError:
                break
    return seen.decode(errors="replace")


def counted(shown: str) -> Commands:
    """Return the counts from MONITOR's lines. The first line is the reply to MONITOR itself."""
    lines = shown.splitlines()[1:]
    of_scripts = sum(" lua] " in line for line in lines)
    return Commands(len(lines) - of_scripts, of_scripts)
