"""What clients send to a server, as MONITOR shows it."""

import socket
import time
from urllib.parse import urlsplit


def commands_of_clients(url: str, seconds: float) -> list[str]:
    """What they sent meanwhile, without the commands that scripts call inside the server."""
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
    return of_clients(seen.decode(errors="replace"))


def of_clients(shown: str) -> list[str]:
    """The commands of clients in MONITOR's lines, the first of which is its own answer."""
    return [line for line in shown.splitlines()[1:] if " lua] " not in line]
