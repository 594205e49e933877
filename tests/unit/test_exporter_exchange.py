"""An HTTP exchange of the exporter: one request, which may arrive in any number of pieces, and one response."""

import json
from http import HTTPStatus
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota_supervisor.exporter.http_connection import (
    MAX_HEAD_BYTES,
    MAX_HEAD_LINES,
    HttpExchange,
    HttpRequest,
    HttpResponse,
    json_response,
    text_response,
)

ASKED = b"GET /status.json?verbose&a=b%20c HTTP/1.1\r\nHost: here\r\nX-Name: \xe9\r\n\r\n"
_LIKE_HTTP = st.sampled_from(
    [
        b"GET ",
        b"HEAD ",
        b"/livez",
        b" HTTP/1.1",
        b"\r\n",
        b"\n",
        b"Host: a\r\n",
        b"Content-Length: ",
        b"9",
        b":",
        b"\x00",
    ]
)
_ANYTHING = st.lists(_LIKE_HTTP | st.binary(min_size=1, max_size=20), min_size=1, max_size=40).map(b"".join)


def result_of(data: bytes, *at: int) -> HttpRequest | HttpResponse | None:
    """Return the parsed request or the refusal if these bytes arrive in pieces that end at these positions."""
    exchange = HttpExchange()
    heard = None
    for start, end in pairwise(sorted({0, *at, len(data)})):
        assert heard is None
        heard = exchange.take(data[start:end])
    return heard


@given(st.lists(st.integers(0, len(ASKED)), max_size=5))
def test_an_http_request_may_arrive_in_any_number_of_parts(places: list[int]) -> None:
    asked = HttpRequest("GET", "/status.json", "verbose&a=b%20c", {"host": "here", "x-name": "é"})
    assert result_of(ASKED, *places) == asked


@given(st.lists(_ANYTHING, min_size=1, max_size=4))
def test_any_bytes_sent_to_the_exporter_are_a_request_an_error_or_incomplete(parts: list[bytes]) -> None:
    exchange = HttpExchange()
    for part in parts:
        heard = exchange.take(part)
        if heard is not None:
            answer = heard if isinstance(heard, HttpResponse) else text_response("ok\n")
            assert exchange.encode(answer)[0].startswith(b"HTTP/1.1 %d " % answer.status)
            return


def test_http_request_headers_that_are_too_large_are_refused() -> None:
    too_large = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    long = result_of(b"GET / HTTP/1.1\r\nLong: " + b"a" * MAX_HEAD_BYTES)
    many = result_of(b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * MAX_HEAD_LINES)
    assert isinstance(long, HttpResponse)
    assert isinstance(many, HttpResponse)
    assert long.status is many.status is too_large
    assert b": a head may have at most 16,384 bytes and 100 lines" in long.body


@pytest.mark.parametrize("piece", [1 << 14, 5000, (1 << 14) - 1])
@pytest.mark.parametrize("more", [0, 1, 4000])
def test_the_size_limit_of_http_headers_is_exact_however_they_arrive(piece: int, more: int) -> None:
    opening, end = b"GET / HTTP/1.1\r\nHost: here\r\nLong: ", b"\r\n\r\n"
    head = opening + b"a" * (MAX_HEAD_BYTES + more - len(opening) - len(end)) + end
    exchange = HttpExchange()
    answers = (exchange.take(head[at : at + piece]) for at in range(0, len(head), piece))
    found = next((answer for answer in answers if answer is not None), None)
    assert isinstance(found, HttpResponse if more else HttpRequest)


@pytest.mark.parametrize(("method", "body"), [("GET", b"ok\n"), ("HEAD", b"")])
def test_an_http_response_states_its_length_and_closes_the_connection(method: str, body: bytes) -> None:
    exchange = HttpExchange()
    exchange.take(f"{method} / HTTP/1.0\r\n\r\n".encode())
    head, sent = exchange.encode(text_response("ok\n", ("Allow", "GET")))
    assert sent == body
    assert {b"Content-Length: 3", b"Connection: close", b"Allow: GET", b"Cache-Control: no-store"} < set(
        head.split(b"\r\n")
    )


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(_JSON)
def test_json_encoded_in_parts_equals_json_encoded_at_once(value: object) -> None:
    assert json_response(value).body.decode() == f"{json.dumps(value, separators=(',', ':'))}\n"
