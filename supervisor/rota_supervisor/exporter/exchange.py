"""One request over HTTP and its answer, as bytes: h11 parses the one and writes the head of the other. No I/O.

A connection carries one request. What follows it, a body or more requests, nobody reads.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote

from rota_supervisor.exporter.libraries import h11

MAX_HEAD_BYTES: Final = 1 << 14
MAX_HEAD_LINES: Final = 100  # h11 takes 1 us a line: without this bound a head of short lines takes 10 ms
_PLAIN: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What a client asks for. Names of headers are in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """What it gets."""

    status: HTTPStatus
    headers: tuple[tuple[str, str], ...]
    body: bytes


def said(text: str, *headers: tuple[str, str], status: HTTPStatus = HTTPStatus.OK, kind: str = _PLAIN) -> Answer:
    """An answer of text, which is true only now."""
    ours = (("Content-Type", kind), ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"))
    return Answer(status, (*ours, *headers), text.encode())


class Exchange:
    """What has come from one client, and what it is sent."""

    def __init__(self) -> None:
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._lines = 0
        self._method = ""

    def take(self, data: bytes) -> HttpRequest | Answer | None:
        """The request, once it is whole, or its refusal. `data` is not empty; no more may be taken then."""
        self._lines += data.partition(b"\r\n\r\n")[0].count(b"\n")
        if self._lines > MAX_HEAD_LINES:
            return _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        self._protocol.receive_data(data)
        try:
            event = self._protocol.next_event()
        except h11.RemoteProtocolError as fault:
            return _refusal(HTTPStatus(fault.error_status_hint))
        return self._request(event) if isinstance(event, h11.Request) else None

    def _request(self, event: h11.Request) -> HttpRequest:
        self._method = event.method.decode()
        path, _, query = event.target.decode().partition("?")
        headers = {name.decode(): value.decode("latin-1") for name, value in event.headers}
        return HttpRequest(self._method, unquote(path), query, headers)

    def give(self, answer: Answer) -> bytes:
        """The answer, as it is sent."""
        headers = [
            ("Date", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())),
            ("Server", "rota"),
            ("Connection", "close"),
            *answer.headers,
            ("Content-Length", str(len(answer.body))),
        ]
        response = h11.Response(status_code=answer.status, reason=answer.status.phrase, headers=headers)
        return self._protocol.send(response) + (b"" if self._method == "HEAD" else answer.body)


def _refusal(status: HTTPStatus) -> Answer:
    return said(f"this is not answered: {status.phrase}\n", status=status)
