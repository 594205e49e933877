"""The valid names of queues, tasks, ids and namespaces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.protocol import keys


@pytest.mark.parametrize("text", ["a", "sold-email", "shop.tasks:send_1", "A" * 128, "-delayed-x"])
def test_valid_names_are_accepted(text: str) -> None:
    assert keys.is_name(text)
    assert keys.fault_in_name("task name", text) is None
    assert keys.fault_in_queue_name(text) is None


@pytest.mark.parametrize("text", ["", "A" * 129, "with space", "{tag}", "a\n", "naïve", "a%b", "a/b", "٣"])
def test_names_that_would_break_a_key_or_an_entry_are_refused(text: str) -> None:
    assert not keys.is_name(text)
    assert keys.fault_in_queue_name(text) is not None


def test_a_queue_name_may_not_have_the_suffix_of_a_delayed_lane() -> None:
    assert keys.is_name("mail-delayed")
    fault = keys.fault_in_queue_name("mail-delayed")
    assert fault is not None
    assert "delayed lane" in fault


def test_the_error_for_an_invalid_name_quotes_it_and_states_the_rule() -> None:
    fault = keys.fault_in_name("task name", "send mail")
    assert fault is not None
    assert fault.startswith("task name 'send mail' is not valid")
    assert "a name has 1 to 128 of the characters" in fault


@given(st.text(max_size=140))
def test_a_fault_is_described_for_invalid_names_and_for_no_others(text: str) -> None:
    assert (keys.fault_in_name("id", text) is None) == keys.is_name(text)
    usable = keys.is_name(text) and not text.endswith(keys.DELAYED_SUFFIX)
    assert (keys.fault_in_queue_name(text) is None) == usable


@given(st.text(st.characters(max_codepoint=0x2FF), min_size=1, max_size=3))
def test_valid_names_contain_no_field_separators_and_no_braces(text: str) -> None:
    assert not (keys.is_name(text) and set(text) & set(" {}%\r\n\0"))
    assert text.isascii() or not keys.is_name(text)
