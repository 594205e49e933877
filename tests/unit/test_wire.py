"""RESP packing, checked with an independent parser (hiredis)."""

import hiredis
from hypothesis import example, given
from hypothesis import strategies as st

from rota.protocol.wire import NOTHING, Arg, Packed, command, pack, packed_in, shown, text_of

_ARGS = st.lists(st.one_of(st.binary(max_size=200), st.text(max_size=50), st.integers()), max_size=20)


def _raw(arg: Arg) -> bytes:
    return arg if isinstance(arg, bytes) else str(arg).encode()


def _parsed(data: bytes) -> object:
    reader = hiredis.Reader()
    reader.feed(data)
    return reader.gets()


@given(_ARGS)
def test_a_packed_command_is_parsed_back_into_its_arguments(args: list[Arg]) -> None:
    assert _parsed(command([pack(args)])) == [_raw(arg) for arg in args]


@given(_ARGS, _ARGS)
def test_packing_arguments_in_parts_equals_packing_them_at_once(first: list[Arg], second: list[Arg]) -> None:
    assert pack(first) + pack(second) == pack(first + second)
    assert command([pack(first), pack(second)]) == command([pack(first + second)])


@given(_ARGS)
def test_packing_a_list_equals_packing_each_argument(args: list[Arg]) -> None:
    each = [b"$" + str(len(_raw(arg))).encode() + b"\r\n" + _raw(arg) + b"\r\n" for arg in args]
    assert pack(args) == Packed(len(args), b"".join(each))


def test_packing_an_empty_list_of_arguments_adds_nothing() -> None:
    assert NOTHING + pack(["PING"]) == pack(["PING"])
    assert pack([]) == NOTHING


def test_the_length_of_a_packed_argument_is_counted_in_bytes() -> None:
    assert pack(["é"]) == Packed(1, b"$2\r\n\xc3\xa9\r\n")


@given(_ARGS)
def test_intact_packed_data_is_accepted_unchanged(args: list[Arg]) -> None:
    whole = pack(args)
    assert packed_in(whole.count, whole.data) == whole


@given(st.integers(-(2**31), 2**31), st.one_of(st.binary(max_size=50), _ARGS.map(lambda args: pack(args).data)))
@example(2, b"$1\r\na\r\n")
@example(0, b"$1\r\na\r\n")
@example(-1, b"")
@example(1, b"$1\r\na")
@example(1, b"$1")
@example(1, b"$" + b"9" * 5000 + b"\r\n")
def test_damaged_packed_data_never_affects_the_next_command(count: int, data: bytes) -> None:
    taken = packed_in(count, data)
    sent = command([pack(["SCRIPT"]), taken, pack(["NEXT"])])
    reader = hiredis.Reader()
    reader.feed(sent)
    read = reader.gets()
    assert (read[0], read[-1], len(read)) == (b"SCRIPT", b"NEXT", taken.count + 2)
    assert reader.gets() is False  # the reader has no data left


@given(st.binary(max_size=50))
@example(b"\xff")
def test_any_bytes_can_be_displayed_and_are_sent_unchanged(raw: bytes) -> None:
    text = text_of(raw)
    assert pack([text]) == pack([raw])
    assert shown(shown(text).encode().decode()) == shown(text)


def test_a_byte_that_is_not_utf8_is_shown_as_an_escape_sequence() -> None:
    assert shown(text_of(b"n\xc3\xa4me\xff")) == "n\u00e4me\\xff"
