"""A client's connection: its one request and our answer, as bytes and over the socket. Nothing here waits.

h11 parses the request and writes the head of the answer. Of what follows it a body is read where an
endpoint takes one, and no more.
Each part has a time by which it is over, however busily the client sends or reads a byte now and then.
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
MAX_HEAD_LINES: Final = 100  # h11 takes 1 us a line: without this bound a head of short lines takes 10 ms
REQUEST_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 10.0  # as long as Prometheus waits for a scrape by default
LEAVE_SECONDS: Final = 2.0
MAX_BODY_BYTES: Final = 1 << 13
_TAKE_A_BODY: Final = (b"/actions",)
_CHUNK_BYTES: Final = 1 << 14
_PLAIN: Final = "text/plain; charset=utf-8"
_MAPPED: Final = "::ffff:"  # what an address of IPv4 begins with where a socket of IPv6 was asked


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What a client asks for. Names of headers are in lower case. `body`: where the path takes one. `is_local`: the
    connection came over the loopback interface, so its other end is on this machine."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes = b""
    is_local: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client gets."""

    status: HTTPStatus
    headers: tuple[tuple[str, str], ...]
    body: bytes


Endpoint = Callable[[HttpRequest], Answer]


def text_answer(text: str, *headers: tuple[str, str], status: HTTPStatus = HTTPStatus.OK, kind: str = _PLAIN) -> Answer:
    """An answer of text, which is true only now."""
    ours = (("Content-Type", kind), ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"))
    return Answer(status, (*ours, *headers), text.encode())


def json_answer(value: object, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    """An answer of JSON, all ASCII: nothing in it moves a cursor. On one line: set out for people, the history of many
    queues would be three times as long, each two seconds."""
    return text_answer(f"{_json(value)}\n", status=status, kind="application/json")


_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


def _json(value: object, depth: int = 2) -> str:
    """Return the text of a value, made in parts: a call of the encoder keeps the interpreter to itself, and health is
    answered meanwhile by another thread."""
    if isinstance(value, dict) and depth:
        return f"{{{','.join(f'{_encode(key)}:{_json(each, depth - 1)}' for key, each in value.items())}}}"
    if isinstance(value, list) and depth:
        return f"[{','.join(_json(each, 0) for each in value)}]"
    return _encode(value)


class HttpExchange:
    """What has come from one client, and what it is sent, as bytes. `is_local`: as in its request."""

    def __init__(self, *, is_local: bool = True) -> None:
        self._is_local = is_local
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._lines = 0
        self._taken_bytes = 0  # until the head is whole
        self._head: h11.Request | None = None
        self._body = b""

    def take(self, data: bytes) -> HttpRequest | Answer | None:
        """Return the request, once it is whole, or its refusal. `data` is not empty; take no more after either."""
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

    def _read_on(self) -> HttpRequest | Answer | None:
        while True:
            event = self._protocol.next_event()
            if isinstance(event, h11.Request):
                self._head = event
                # h11 bounds a head that is not whole yet: the piece that completes it may be as long again.
                if self._taken_bytes - len(self._protocol.trailing_data[0]) > MAX_HEAD_BYTES:
                    return _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
                if event.target not in _TAKE_A_BODY:
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
        return HttpRequest(head.method.decode(), unquote(path), query, headers, self._body, self._is_local)

    def give(self, answer: Answer) -> tuple[bytes, bytes]:
        """Return what is sent: the head, and the body, which many clients may share."""
        headers = [
            ("Date", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())),
            ("Server", "rota"),
            ("Connection", "close"),
            *answer.headers,
            ("Content-Length", str(len(answer.body))),
        ]
        response = h11.Response(status_code=answer.status, reason=answer.status.phrase, headers=headers)
        is_without_body = self._head is not None and self._head.method == b"HEAD"
        return self._protocol.send(response), b"" if is_without_body else answer.body


_LIMITS: Final = {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: f": a body has at most {MAX_BODY_BYTES:,} bytes",
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: (
        f": a head has at most {MAX_HEAD_BYTES:,} bytes and {MAX_HEAD_LINES} lines"
    ),
}


def _refusal(status: HTTPStatus) -> Answer:
    return text_answer(f"the request is refused: {status.phrase}{_LIMITS.get(status, '')}\n", status=status)


class ClientTurn(Enum):
    """What is next."""

    ASKING = auto()  # it sends its request
    WAITING = auto()  # its answer is being made
    TAKING = auto()  # its answer is being sent
    LEAVING = auto()  # it has its answer, and closes; what it still sends is thrown away
    GONE = auto()


class HttpClient:
    """One connection, maybe under TLS, from its acceptance to its end. What talks to the client raises OSError when it
    has gone, and BlockingIOError, or what TLS has for that, when it is not ready. `watched`: the events of epoll
    that it is watched for. `until` and all times are monotonic."""

    def __init__(self, connection: socket.socket, now: float) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._exchange = HttpExchange(is_local=_is_local(connection))
        self._unsent: list[memoryview] = []
        self.body = b""  # what it is sent
        self.is_scraping = False
        self.turn = ClientTurn.ASKING
        self.watched: int = select.EPOLLIN
        self.until = now + REQUEST_SECONDS

    def fileno(self) -> int:
        """Return its descriptor, -1 once it is closed."""
        return self._connection.fileno()

    def receive(self) -> bytes:
        """Return what it has sent."""
        if data := self._connection.recv(_CHUNK_BYTES):
            return data
        raise ConnectionResetError

    def hear(self) -> HttpRequest | Answer | None:
        """Return its request, once that is whole, or the refusal of it."""
        return self._exchange.take(self.receive())

    def wait(self, *, is_scraping: bool) -> None:
        self.turn, self.until, self.is_scraping = ClientTurn.WAITING, float("inf"), is_scraping

    def answer(self, answer: Answer, now: float) -> None:
        head, self.body = self._exchange.give(answer)
        is_short = len(self.body) < _CHUNK_BYTES
        self._unsent = [memoryview(each) for each in ([head + self.body] if is_short else [head, self.body])]
        self.turn, self.until = ClientTurn.TAKING, now + ANSWER_SECONDS
        self.send(now)

    def send(self, now: float) -> None:
        while self._unsent:
            sent = self._connection.send(self._unsent[0])
            if sent < len(self._unsent[0]):
                self._unsent[0] = self._unsent[0][sent:]
                return
            del self._unsent[0]
        self.body = b""
        # A close while something of it is unread would take the answer back from a client that has yet to read it.
        _end_sending(self._connection)
        self.turn, self.until = ClientTurn.LEAVING, now + LEAVE_SECONDS

    def close(self) -> None:
        self.turn = ClientTurn.GONE
        self._unsent, self.body = [], b""
        self._connection.close()


def _is_local(connection: socket.socket) -> bool:
    """Whether the address that the client reached is one of the loopback interface."""
    if connection.family == socket.AF_UNIX:
        return True
    address = str(connection.getsockname()[0]).removeprefix(_MAPPED)
    return address == "::1" or address.startswith("127.")


def _end_sending(connection: socket.socket) -> None:
    if unwrap := getattr(connection, "unwrap", None):
        with suppress(OSError):  # that TLS ends is said, and nobody waits for an answer to it
            unwrap()
    connection.shutdown(socket.SHUT_WR)
