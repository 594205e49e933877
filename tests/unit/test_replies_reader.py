"""Rota's own reader of replies, which is used if hiredis is not installed and must return the same results as
hiredis.
"""

from collections.abc import Iterator
from typing import Any

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.server import replies_reader

NOTHING = object()


class ErrorReply(Exception):
    """An error reply."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ErrorReply) and self.args == other.args

    __hash__ = None  # type: ignore[assignment]  # in no set


TEXTS = st.text(st.characters(codec="ascii", exclude_characters="\r\n"), max_size=8)


def line(kind: str, text: object) -> bytes:
    return f"{kind}{text}\r\n".encode()


def bulk(value: bytes) -> bytes:
    return line("$", len(value)) + value + b"\r\n"


def array(kind: str, parts: list[bytes]) -> bytes:
    return line(kind, len(parts)) + b"".join(parts)


SCALARS = (
    st.binary(max_size=12).map(bulk)
    | st.integers(-(2**63), 2**63 - 1).map(lambda number: line(":", number))
    | TEXTS.map(lambda text: line("+", text))
    | TEXTS.map(lambda text: line("-", f"ERR {text}"))
    | st.sampled_from([b"$-1\r\n", b"*-1\r\n", b"_\r\n", b"#t\r\n", b"#f\r\n", b",1.5\r\n", b"=7\r\ntxt:abc\r\n"])
)
PAIRS = st.lists(st.tuples(TEXTS, SCALARS), max_size=3, unique_by=lambda pair: pair[0])
REPLIES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda parts: array("*", parts))
        | st.lists(inner, max_size=4).map(lambda parts: array(">", parts))
        | PAIRS.map(lambda pairs: line("%", len(pairs)) + b"".join(line("+", key) + value for key, value in pairs))
    ),
    max_leaves=12,
)


def read(reader: Any, chunks: list[bytes]) -> Iterator[Any]:
    for chunk in chunks:
        reader.feed(chunk)
        while (reply := reader.gets()) is not NOTHING:
            yield type(reply).__name__, reply


@given(st.lists(REPLIES, min_size=1, max_size=4), st.lists(st.integers(0, 400), max_size=6))
def test_the_reply_reader_agrees_with_hiredis_however_replies_are_split(replies: list[bytes], cuts: list[int]) -> None:
    data = b"".join(replies)
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    chunks = [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    ours = replies_reader.Reader(replyError=ErrorReply, notEnoughData=NOTHING)
    theirs = hiredis.Reader(replyError=ErrorReply, notEnoughData=NOTHING)
    assert list(read(ours, chunks)) == list(read(theirs, chunks))


@pytest.mark.parametrize("data", [b"HTTP/1.1 400 Bad Request\r\n", b":x\r\n", b"*q\r\n"])
def test_an_invalid_reply_raises_a_protocol_error(data: bytes) -> None:
    reader = replies_reader.Reader(replyError=str, notEnoughData=NOTHING)
    reader.feed(data)
    with pytest.raises(replies_reader.ProtocolError):
        reader.gets()
