"""Addresses that send wrong tokens have to wait."""

import pytest

from rota_supervisor.exporter.access import Failures


@pytest.fixture
def now() -> list[float]:
    return [1000.0]


@pytest.fixture
def failures(now: list[float]) -> Failures:
    return Failures(lambda: now[0])


def test_ten_wrong_tokens_are_permitted_at_once_and_then_one_a_second(failures: Failures, now: list[float]) -> None:
    for _ in range(10):
        assert not failures.are_too_many("192.0.2.1")
        failures.add("192.0.2.1")
    assert failures.are_too_many("192.0.2.1")
    now[0] += 1
    assert not failures.are_too_many("192.0.2.1")
    failures.add("192.0.2.1")
    assert failures.are_too_many("192.0.2.1")


def test_other_addresses_do_not_wait(failures: Failures) -> None:
    for _ in range(20):
        failures.add("192.0.2.1")
    assert not failures.are_too_many("192.0.2.2")


def test_many_addresses_are_not_remembered_forever(failures: Failures) -> None:
    for number in range(2000):
        for _ in range(10):
            failures.add(f"address {number}")
    assert failures.are_too_many("address 1999")
    assert not failures.are_too_many("address 0")
