"""The valid names of queues, tasks, ids and namespaces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.protocol import keys


@pytest.mark.parametrize("text", ["a", "sold-email", "shop.tasks:send_1", "A" * 128, "-delayed-x"])
def test_usable_names_are_accepted(text: str) -> None:
    assert keys.is_name(text)
    assert keys.fault_in_name("task name", text) is None
    assert keys.fault_in_queue_name(text) is None


@pytest.mark.parametrize("text", ["", "A" * 129, "with space", "{tag}", "a\n", "naïve", "a%b", "a/b", "٣"])
def test_names_that_would_break_a_key_or_an_entry_are_refused(text: str) -> None:
    assert not keys.is_name(text)
    assert keys.fault_in_queue_name(text) is not None


def test_a_queue_name_may_not_end_like_a_delayed_lane() -> None:
    assert keys.is_name("mail-delayed")
    fault = keys.fault_in_queue_name("mail-delayed")
    assert fault is not None
    assert "delayed lane" in fault


def test_a_refusal_names_the_given_name_and_the_rule() -> None:
    fault = keys.fault_in_name("task name", "send mail")
    assert fault is not None
    assert fault.startswith("task name 'send mail' is not usable")
    assert "names are 1 to 128 of the characters" in fault


@given(st.text(max_size=140))
def test_a_fault_is_returned_exactly_for_refused_names(text: str) -> None:
    assert (keys.fault_in_name("id", text) is None) == keys.is_name(text)
    usable = keys.is_name(text) and not text.endswith(keys.DELAYED_SUFFIX)
    assert (keys.fault_in_queue_name(text) is None) == usable


@given(st.text(st.characters(max_codepoint=0x2FF), min_size=1, max_size=3))
def test_a_name_contains_no_separators_of_fields_or_tags(text: str) -> None:
    assert not (keys.is_name(text) and set(text) & set(" {}%\r\n\0"))
    assert text.isascii() or not keys.is_name(text)
