"""What a server is asked, as MONITOR shows it."""

import socket
import time
from typing import NamedTuple
from urllib.parse import urlsplit


class Commands(NamedTuple):
    """How many commands clients sent, and how many scripts called inside the server."""

    of_clients: int
    of_scripts: int


def commands_at(url: str, seconds: float) -> Commands:
    """What it was asked meanwhile."""
    place = urlsplit(url)
    deadline = time.monotonic() + seconds
    seen = b""
    with socket.create_connection((place.hostname, place.port)) as watching:
        watching.sendall(b"MONITOR\r\n")
        while (left := deadline - time.monotonic()) > 0:
            watching.settimeout(left)
            try:
                seen += watching.recv(65_536)
            except TimeoutError:
                break
    return counted(seen.decode(errors="replace"))


def counted(shown: str) -> Commands:
    """What MONITOR's lines tell, the first of which is its own answer."""
    lines = shown.splitlines()[1:]
    of_scripts = sum(" lua] " in line for line in lines)
    return Commands(len(lines) - of_scripts, of_scripts)
