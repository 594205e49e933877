"""The connection of a client, which carries one request and its response. No function here blocks.

h11 parses the request and writes the head of the response. A body is read only for endpoints that accept one. Each
phase of a connection has a deadline, so even a client that keeps sending or reading slowly is disconnected.
"""

import json
import select
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote

import h11

MAX_HEAD_BYTES: Final = 1 << 14
MAX_HEAD_LINES: Final = 100  # h11 takes 1 us per line; without a limit, a head of short lines would take 10 ms
REQUEST_SECONDS: Final = 5.0
RESPONSE_SECONDS: Final = 10.0  # Prometheus gives up on a scrape after this time by default
LEAVE_SECONDS: Final = 2.0
MAX_BODY_BYTES: Final = 1 << 13
_PATHS_WITH_BODY: Final = (b"/actions",)
_CHUNK_BYTES: Final = 1 << 14
_PLAIN: Final = "text/plain; charset=utf-8"
_MAPPED: Final = "::ffff:"  # the prefix with which an IPv6 socket reports an IPv4 address


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """The request of a client."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]  # with names in lower case
    body: bytes = b""  # only for paths that accept a body
    is_local: bool = True  # whether the connection came from this machine, over the loopback interface
    peer: str = ""  # the numeric address of the client, or of the last proxy before this node


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """The response to a client."""

    status: HTTPStatus
    headers: tuple[tuple[str, str], ...]
    body: bytes


Endpoint = Callable[[HttpRequest], HttpResponse]


def text_response(
    text: str, *headers: tuple[str, str], status: HTTPStatus = HTTPStatus.OK, kind: str = _PLAIN
) -> HttpResponse:
    """Return a text response, which clients must not cache."""
    ours = (("Content-Type", kind), ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"))
    return HttpResponse(status, (*ours, *headers), text.encode())


def json_response(value: object, status: HTTPStatus = HTTPStatus.OK) -> HttpResponse:
    """Return a JSON response. The JSON is pure ASCII, so it cannot contain terminal control sequences.

    The JSON is on one line. The page fetches it every two seconds, and with indentation the history of many queues
    would be three times as long.
    """
    return text_response(f"{_json(value)}\n", status=status, kind="application/json")


_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


def _json(value: object, depth: int = 2) -> str:
    """Return the JSON of a value. The first `depth` levels are encoded in parts.

    The encoder does not release the GIL during a call, so one call for everything could delay the thread that replies
    to health probes.
    """
    if isinstance(value, dict) and depth:
        return f"{{{','.join(f'{_encode(key)}:{_json(each, depth - 1)}' for key, each in value.items())}}}"
    if isinstance(value, list) and depth:
        return f"[{','.join(_json(each, 0) for each in value)}]"
    return _encode(value)


class HttpExchange:
    """A parser of one request and an encoder of its response. It does no I/O. HttpRequest documents `is_local` and
    `peer`.
    """

    def __init__(self, *, is_local: bool = True, peer: str = "") -> None:
        self._is_local = is_local
        self._peer = peer
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._lines = 0
        self._taken_bytes = 0  # the number of bytes received before the head was complete
        self._head: h11.Request | None = None
        self._body = b""

    def take(self, data: bytes) -> HttpRequest | HttpResponse | None:
        """Add received data. Return the request once it is complete, a response that refuses it, or None if more data
        is needed. After a refusal, do not call this method again. `data` must not be empty.
        """
        if self._head is None:
            self._taken_bytes += len(data)
            self._lines += data.partition(b"\r\n\r\n")[0].count(b"\n")
            if self._lines > MAX_HEAD_LINES:
                return _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        self._protocol.receive_data(data)
        try:
            return self._read_on()
        except h11.RemoteProtocolError as fault:
            return _refusal(HTTPStatus(fault.error_status_hint))

    def _read_on(self) -> HttpRequest | HttpResponse | None:
        while True:
            event = self._protocol.next_event()
            if isinstance(event, h11.Request):
                self._head = event
                # h11 limits only incomplete heads. The data that completes a head can be as long again.
                if self._taken_bytes - len(self._protocol.trailing_data[0]) > MAX_HEAD_BYTES:
                    return _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
                if event.target not in _PATHS_WITH_BODY:
                    return self._request(event)
            elif isinstance(event, h11.Data):
                self._body += event.data
                if len(self._body) > MAX_BODY_BYTES:
                    return _refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            elif isinstance(event, h11.EndOfMessage) and self._head is not None:
                return self._request(self._head)
            else:
                return None

    def _request(self, head: h11.Request) -> HttpRequest:
        path, _, query = head.target.decode().partition("?")
        headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
        method = head.method.decode()
        return HttpRequest(method, unquote(path), query, headers, self._body, self._is_local, self._peer)

    def encode(self, response: HttpResponse) -> tuple[bytes, bytes]:
        """Return the head and the body to send. The body can be shared by many clients."""
        headers = [
            ("Date", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())),
            ("Server", "rota"),
            ("Connection", "close"),
            *response.headers,
            ("Content-Length", str(len(response.body))),
        ]
        head = h11.Response(status_code=response.status, reason=response.status.phrase, headers=headers)
        is_without_body = self._head is not None and self._head.method == b"HEAD"
        return self._protocol.send(head), b"" if is_without_body else response.body


_LIMITS: Final = {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: f": a body may have at most {MAX_BODY_BYTES:,} bytes",
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: (
        f": a head may have at most {MAX_HEAD_BYTES:,} bytes and {MAX_HEAD_LINES} lines"
    ),
}


def _refusal(status: HTTPStatus) -> HttpResponse:
    return text_response(f"the request is refused: {status.phrase}{_LIMITS.get(status, '')}\n", status=status)


class ClientPhase(Enum):
    """A phase in the life of a connection."""

    REQUESTING = auto()  # the client sends its request
    WAITING = auto()  # the client waits for the response
    RESPONDING = auto()  # the server sends the response
    CLOSING = auto()  # the response has been sent; further data from the client is dropped
    CLOSED = auto()


class HttpClient:
    """A connection, with or without TLS, from its acceptance to its end.

    The methods that use the socket raise OSError if the client has disconnected, and BlockingIOError or the
    corresponding TLS errors if the socket is not ready. `watched`: the epoll events that the server waits for. `until`:
    the deadline of the current phase. All times are monotonic.
    """

    def __init__(self, connection: socket.socket, now: float) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._exchange = HttpExchange(is_local=_is_local(connection), peer=_peer_of(connection))
        self._unsent: list[memoryview] = []
        self.body = b""  # the rest of the body to send
        self.is_scraping = False
        self.phase = ClientPhase.REQUESTING
        self.watched: int = select.EPOLLIN
        self.until = now + REQUEST_SECONDS

    def fileno(self) -> int:
        """Return the descriptor, or -1 if the connection is closed."""
        return self._connection.fileno()

    def receive(self) -> bytes:
        """Return the bytes that the client has sent."""
        if data := self._connection.recv(_CHUNK_BYTES):
            return data
        raise ConnectionResetError

    def receive_request(self) -> HttpRequest | HttpResponse | None:
        """Read from the socket. Return the request once it is complete, a response that refuses it, or None if more
        data is needed.
        """
        return self._exchange.take(self.receive())

    def wait(self, *, is_scraping: bool) -> None:
        self.phase = ClientPhase.WAITING
        self.until = float("inf")
        self.is_scraping = is_scraping

    def respond(self, response: HttpResponse, now: float) -> None:
        head, self.body = self._exchange.encode(response)
        is_short = len(self.body) < _CHUNK_BYTES
        self._unsent = [memoryview(each) for each in ([head + self.body] if is_short else [head, self.body])]
        self.phase = ClientPhase.RESPONDING
        self.until = now + RESPONSE_SECONDS
        self.send(now)

    def send(self, now: float) -> None:
        while self._unsent:
            sent = self._connection.send(self._unsent[0])
            if sent < len(self._unsent[0]):
                self._unsent[0] = self._unsent[0][sent:]
                return
            del self._unsent[0]
        self.body = b""
        # If a connection is closed while there is unread data, it is reset, and the client may lose the response.
        _end_sending(self._connection)
        self.phase = ClientPhase.CLOSING
        self.until = now + LEAVE_SECONDS

    def close(self) -> None:
        self.phase = ClientPhase.CLOSED
        self._unsent = []
        self.body = b""
        self._connection.close()


def _is_local(connection: socket.socket) -> bool:
    """Whether the client connected to an address of the loopback interface."""
    if connection.family == socket.AF_UNIX:
        return True
    address = str(connection.getsockname()[0]).removeprefix(_MAPPED)
    return address == "::1" or address.startswith("127.")


def _peer_of(connection: socket.socket) -> str:
    """Return the numeric address of the client, or "" if it has none or has disconnected."""
    if connection.family == socket.AF_UNIX:
        return ""
    with suppress(OSError):
        return str(connection.getpeername()[0]).removeprefix(_MAPPED)
    return ""


def _end_sending(connection: socket.socket) -> None:
    if unwrap := getattr(connection, "unwrap", None):
        with suppress(OSError):  # This sends the TLS close_notify alert, without waiting for the peer's alert.
            unwrap()
    connection.shutdown(socket.SHUT_WR)
