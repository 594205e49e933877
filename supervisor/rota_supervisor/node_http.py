"""The HTTP of a node's exporter, as this machine reaches it: for commands that ask it, and for the demo.

Not by urllib: a proxy in the environment has no part in this.
"""

import contextlib
import http.client
from typing import Final, NamedTuple
from urllib.parse import urlsplit

ANSWER_SECONDS: Final = 5.0
_EVERY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "*": "127.0.0.1"}  # noqa: S104 - where to ask a server that listens everywhere


class NoAnswer(Exception):
    """Nothing answers there; the message says where, and why."""


class Answered(NamedTuple):
    """An answer: its HTTP status, and its text."""

    status: int
    text: str


class NodeHttp(NamedTuple):
    """Where to ask: `scheme` is http or https; `token` is sent as a bearer token unless it is ""."""

    scheme: str
    host: str
    port: int
    token: str = ""

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def get(self, path: str) -> Answered:
        """Ask for a path, and wait ANSWER_SECONDS for its answer at most. Raises NoAnswer."""
        kind = http.client.HTTPSConnection if self.scheme == "https" else http.client.HTTPConnection
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        with contextlib.closing(kind(self.host, self.port, timeout=ANSWER_SECONDS)) as connection:
            try:
                connection.request("GET", path, headers=headers)
                answer = connection.getresponse()
                return Answered(answer.status, answer.read().decode(errors="replace"))
            except (OSError, http.client.HTTPException) as error:
                raise NoAnswer(f"nothing answers at {self.url}{path}: {error}") from None


def node_at(listen: str, token: str = "") -> NodeHttp:
    """Return how to ask a node that listens there: `[http] listen`, as `host:port`. Raises ValueError."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    return NodeHttp("http", _EVERY_ADDRESS.get(host, host), int(port), token)


def node_of_url(url: str, token: str = "") -> NodeHttp:
    """Return how to ask the node at this URL. Raises ValueError for one that is none."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"expected a URL as http://host:9750, got {url!r}")
    return NodeHttp(parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80), token)
