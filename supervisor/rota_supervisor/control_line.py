"""One request to a master over its control socket, and the answer to it, a JSON object a line each."""

import json
import socket
from collections.abc import Mapping
from typing import Any


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
