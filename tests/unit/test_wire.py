"""RESP packing, read back by an independent parser (hiredis)."""

import hiredis
from hypothesis import given
from hypothesis import strategies as st

from rota.protocol.wire import NOTHING, Arg, Packed, command, pack

_ARGS = st.lists(st.one_of(st.binary(max_size=200), st.text(max_size=50), st.integers()), max_size=20)


def _raw(arg: Arg) -> bytes:
    return arg if isinstance(arg, bytes) else str(arg).encode()


def _parsed(data: bytes) -> object:
    reader = hiredis.Reader()
    reader.feed(data)
    return reader.gets()


@given(_ARGS)
def test_a_command_is_read_back_as_its_arguments(args: list[Arg]) -> None:
    assert _parsed(command([pack(args)])) == [_raw(arg) for arg in args]


@given(_ARGS, _ARGS)
def test_packing_in_parts_is_packing_at_once(first: list[Arg], second: list[Arg]) -> None:
    assert pack(first) + pack(second) == pack(first + second)
    assert command([pack(first), pack(second)]) == command([pack(first + second)])


@given(_ARGS)
def test_packing_at_once_is_packing_each(args: list[Arg]) -> None:
    each = [b"$" + str(len(_raw(arg))).encode() + b"\r\n" + _raw(arg) + b"\r\n" for arg in args]
    assert pack(args) == Packed(len(args), b"".join(each))


def test_nothing_adds_nothing() -> None:
    assert NOTHING + pack(["PING"]) == pack(["PING"])
    assert pack([]) == NOTHING


def test_a_length_is_counted_in_bytes() -> None:
    assert pack(["é"]) == Packed(1, b"$2\r\n\xc3\xa9\r\n")
