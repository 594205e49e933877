"""The limit on access tokens that the exporter checks for one address. An address that has sent too many wrong tokens
has to wait.
"""

import pytest

from rota_supervisor.exporter.access import WrongTokens


@pytest.fixture
def now() -> list[float]:
    return [1000.0]


@pytest.fixture
def wrong_tokens(now: list[float]) -> WrongTokens:
    return WrongTokens(lambda: now[0])


def test_ten_wrong_tokens_are_allowed_at_once_and_then_one_a_second(
    wrong_tokens: WrongTokens, now: list[float]
) -> None:
    for _ in range(10):
        assert not wrong_tokens.are_too_many("192.0.2.1")
        wrong_tokens.add("192.0.2.1")
    assert wrong_tokens.are_too_many("192.0.2.1")
    now[0] += 1
    assert not wrong_tokens.are_too_many("192.0.2.1")
    wrong_tokens.add("192.0.2.1")
    assert wrong_tokens.are_too_many("192.0.2.1")


def test_wrong_tokens_from_one_address_do_not_delay_other_addresses(wrong_tokens: WrongTokens) -> None:
    for _ in range(20):
        wrong_tokens.add("192.0.2.1")
    assert not wrong_tokens.are_too_many("192.0.2.2")


def test_only_a_bounded_number_of_addresses_with_wrong_tokens_is_remembered(wrong_tokens: WrongTokens) -> None:
    for number in range(2000):
        for _ in range(10):
            wrong_tokens.add(f"address {number}")
    assert wrong_tokens.are_too_many("address 1999")
    assert not wrong_tokens.are_too_many("address 0")
