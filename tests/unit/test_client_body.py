"""The encoding and decoding of task bodies: the legacy forms, the full form, and invalid bodies."""

import contextlib
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.protocol.body import MAX_DEPTH, Body, BodyError, _is_name, _writer, decode_body, encode_body

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def test_a_body_without_options_has_four_elements() -> None:
    raw = encode_body(Body("id-1", "email", "send", [1, "zwei", None]))
    assert json.loads(raw) == ["id-1", "email", "send", [1, "zwei", None]]


def test_keyword_arguments_and_options_are_the_fifth_element_of_a_body() -> None:
    raw = encode_body(Body("id-1", "email", "send", [], {"to": "a"}, {"retries": 2}, {"trace": "00-ab"}))
    assert json.loads(raw)[4] == {"kwargs": {"to": "a"}, "options": {"retries": 2}, "trace": "00-ab"}


def test_unknown_fields_of_the_fifth_element_of_a_body_are_kept() -> None:
    raw = b'["i","q","f",[],{"trace":{"a":1},"kwargs":{"x":1}}]'
    assert decode_body(raw) == Body("i", "q", "f", [], {"x": 1}, {}, {"trace": {"a": 1}})
    assert json.loads(encode_body(decode_body(raw)))[4] == {"trace": {"a": 1}, "kwargs": {"x": 1}}


def test_a_body_of_two_elements_has_neither_id_nor_queue() -> None:
    assert decode_body(b'["send", [1, 2]]') == Body(None, None, "send", [1, 2])


@given(st.lists(JSON, max_size=4), st.dictionaries(st.text(), JSON, max_size=4))
def test_a_decoded_body_equals_the_encoded_one(args: list[object], kwargs: dict[str, object]) -> None:
    body = Body("id-1", "email", "send", args, kwargs)
    assert decode_body(encode_body(body)) == body


@given(st.lists(JSON, max_size=4), st.dictionaries(st.text(), JSON, max_size=4))
def test_a_body_is_compact_json(args: list[object], kwargs: dict[str, object]) -> None:
    written = encode_body(Body("id-1", "email", "send", args, kwargs))
    plain = ["id-1", "email", "send", args, *([{"kwargs": kwargs}] if kwargs else [])]
    assert written == json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


@given(JSON, st.text(" \t\n\r", max_size=3), st.text(" \t\n\rx,]", max_size=3))
def test_text_before_and_after_a_body_is_handled_as_json_loads_does(value: object, before: str, after: str) -> None:
    text = f'{before}["send",[{json.dumps(value)}]]{after}'
    try:
        expected = json.loads(text)[1]
    except ValueError as error:
        with pytest.raises(BodyError, match=re.escape(f"the body is not JSON: {error}")):
            decode_body(text.encode())
    else:
        assert decode_body(text.encode()).args == expected


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'\xef\xbb\xbf["send",[]]', "Unexpected UTF-8 BOM"),
        (b'["send",[]]x', "Extra data"),
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"{", "not JSON"),
        (b'["a","b","f",[NaN]]', "NaN is not a JSON number"),
        (b'"send"', "not an array"),
        (b"[]", "not an array"),
        (b'["i","q","f"]', "not an array"),
        (b'["i","q","f",[],{},1]', "not an array"),
        (b'["i","q",7,[]]', "name is not a string but a number"),
        (b'["i","q","send mail",[]]', "task name 'send mail' is not valid"),
        (b'["i","q","os.system; rm",[]]', "not valid"),
        (b'["i","q","f",{"a":1}]', "arguments of f are not an array but an object"),
        (b'[1,"q","f",[]]', "id is not a string but a number"),
        (b'["i",["q"],"f",[]]', "queue is not a string but an array"),
        (b'["i","q","f",[],null]', "fifth element is not an object but null"),
        (b'["i","q","f",[],{"kwargs":[1]}]', "kwargs is not an object but an array"),
        (b'["i","q","f",[],{"options":true}]', "options is not an object but a boolean"),
    ],
)
def test_a_malformed_body_is_refused_with_the_reason(raw: bytes, reason: str) -> None:
    with pytest.raises(BodyError) as caught:
        decode_body(raw)
    assert reason in str(caught.value)


@pytest.mark.parametrize("depth", [MAX_DEPTH, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_a_body_with_deep_nesting_is_refused(depth: int, opening: bytes, closing: bytes) -> None:
    nested = opening * depth + b"1" + closing * depth
    with pytest.raises(BodyError, match="nested deeper"):
        decode_body(b'["i","q","f",[' + nested + b"]]")


def test_many_arguments_do_not_count_as_deep_nesting() -> None:
    args = [[number] for number in range(1000)]
    assert decode_body(encode_body(Body("i", "q", "f", list(args)))).args == args


@given(st.binary(max_size=60))
def test_decoding_any_bytes_raises_no_error_other_than_body_error(raw: bytes) -> None:
    with contextlib.suppress(BodyError):
        decode_body(raw)


def test_a_body_over_the_size_limit_is_refused() -> None:
    with pytest.raises(BodyError, match="has 23 bytes, but the limit is 20"):
        decode_body(b'["i","q","f",[1234567]]', max_bytes=20)


def test_a_task_name_that_is_too_long_is_not_cached() -> None:
    kept = _is_name.cache_info().currsize
    for length in (129, 100_000):
        with pytest.raises(BodyError):
            decode_body(json.dumps(["x" * length, []]).encode())
    assert _is_name.cache_info().currsize == kept


def test_the_pure_python_json_encoder_writes_the_same_body(monkeypatch: pytest.MonkeyPatch) -> None:
    args: list[Any] = [1, 2.5, 'zwei é " \n', None, True, {"a": [(), {}]}]
    monkeypatch.setattr("json.encoder.c_make_encoder", None)
    slow = "".join(_writer()(["id-1", "email", "send", args], 0))
    assert slow.encode() == encode_body(Body("id-1", "email", "send", args))
    with pytest.raises(ValueError, match="not JSON compliant"):
        "".join(_writer()([float("nan")], 0))
