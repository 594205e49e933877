"""Task arguments must be strict JSON. Otherwise the enqueue fails at once, and the error names the path and type of the
invalid value.
"""

import enum
import uuid
from collections import OrderedDict, namedtuple
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import InvalidArguments
from rota.protocol.body import MAX_DEPTH
from rota.tasks.arguments import _OUTER_LEVELS, _faults, check_arguments

Point = namedtuple("Point", "x y")  # noqa: PYI024 - a plain one, as many applications have


class Colour(enum.IntEnum):
    RED = 1


def fault(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(InvalidArguments) as caught:
        check_arguments("resize", args, kwargs)
    assert isinstance(caught.value, TypeError)
    return str(caught.value)


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -7, 2**63, 1.5, "", "ä€🎈", [], [1, [2]], {"a": [{"b": None}]}, OrderedDict(a=1)],
)
def test_json_values_are_accepted_as_arguments(value: Any) -> None:
    check_arguments("resize", [value], {"key": value})


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (datetime(2024, 1, 1, tzinfo=UTC), "is of type datetime (pass its .isoformat())"),
        (uuid.uuid4(), "is of type UUID (pass it as str)"),
        (Decimal(1), "is of type Decimal (pass it as str)"),
        (b"raw", "is of type bytes"),
        ({1, 2}, "is of type set (pass a list)"),
        ((1, 2), "is of type tuple (pass a list, because a tuple would arrive as a list)"),
        (Point(1, 2), "is of type Point (pass a list, because a tuple would arrive as a list)"),
        (object(), "is of type object"),
        (Colour.RED, "is of type Colour (pass its .value)"),
        (float("nan"), "is nan, not a finite number"),
        (float("-inf"), "is -inf, not a finite number"),
        ("\ud800", "contains a lone surrogate"),
        pytest.param(10**5000, "is a number with thousands of digits", id="huge"),
    ],
)
def test_arguments_that_are_not_json_values_are_refused_with_path_and_type(value: Any, what: str) -> None:
    assert fault(1, {"rows": [0, {"price": value}]}).startswith(f"resize: args[1].rows[1].price {what}")


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.characters(codec=None)
    | st.sampled_from([Colour.RED, 10**4250, 2**62, -(2**62), "\ud800", Decimal(1)])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers() | st.just("\ud800"), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.lists(VALUES, max_size=3), st.dictionaries(st.text(), VALUES, max_size=3))
def test_the_quick_and_the_full_check_of_arguments_agree(args: list[Any], kwargs: dict[str, Any]) -> None:
    faults = [*_faults("args", args, _OUTER_LEVELS), *_faults("kwargs", kwargs, _OUTER_LEVELS)]
    if faults:
        where, fault = faults[0]
        with pytest.raises(InvalidArguments) as caught:
            check_arguments("resize", args, kwargs)
        assert str(caught.value) == f"resize: {where} {fault}; arguments must be JSON"
    else:
        check_arguments("resize", args, kwargs)


@pytest.mark.parametrize("innermost", [[], {}, [1]], ids=str)
@pytest.mark.parametrize("levels", [MAX_DEPTH - _OUTER_LEVELS - 1, MAX_DEPTH - _OUTER_LEVELS])
def test_the_quick_and_the_full_check_of_arguments_have_one_depth_limit(innermost: Any, levels: int) -> None:
    nested = innermost
    for level in range(levels):
        nested = [nested] if level % 2 else {"a": nested}
    if levels < MAX_DEPTH - _OUTER_LEVELS:
        check_arguments("resize", [nested], {})
        check_arguments("resize", (), {"a": nested})
    else:
        assert "nested deeper than 64 levels" in fault(nested)
        assert "nested deeper than 64 levels" in fault(a=nested)


def test_an_error_names_a_keyword_argument_by_its_key() -> None:
    assert "kwargs.sizes[0] is of type complex" in fault(sizes=[1j])
    assert "kwargs['a b'] is of type complex" in fault(**{"a b": 1j})


def test_keys_of_objects_in_arguments_must_be_text() -> None:
    assert "args[0] has a key 1 that is of type int, not str" in fault({1: "a"})
    assert "lone surrogate" in fault({"\ud800": 1})
    assert "kwargs has a key '\\ud800' that contains a lone surrogate" in fault(**{"\ud800": 1})


def test_an_argument_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert "nested deeper than 64 levels, or contains itself" in fault(loop)


def test_args_and_kwargs_may_be_any_sequence_and_mapping() -> None:
    check_arguments("resize", range(3), MappingProxyType({"a": 1}))
    with pytest.raises(InvalidArguments, match=r"args\[0\] is of type range"):
        check_arguments("resize", [range(3)], {})


def test_args_and_kwargs_of_other_types_are_refused() -> None:
    for args, kwargs, what in (
        ("abc", {}, "args must be a list or a tuple, got str"),
        ({"a": 1}, {}, "args must be a list or a tuple, got dict"),
        (b"abc", {}, "args must be a list or a tuple, got bytes"),
        ([], [1], "kwargs must be a dict whose keys are str"),
        ([], {1: 2}, "kwargs must be a dict whose keys are str"),
    ):
        with pytest.raises(InvalidArguments, match=what):
            check_arguments("resize", args, kwargs)  # type: ignore[arg-type]  # that is the claim
