"""Back-off delays, which double up to a maximum. Each delay is random, and at least half of its nominal length."""

import pytest

from rota.durations import Backoff


def _shortest(low: float, _high: float) -> float:
    return low


def _longest(_low: float, high: float) -> float:
    return high


def test_backoff_delays_double_up_to_the_maximum() -> None:
    backoff = Backoff(0.1, 1.0, _longest)
    assert [backoff.next_seconds() for _ in range(6)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_jitter_reduces_a_backoff_delay_by_at_most_half() -> None:
    backoff = Backoff(0.1, 1.0, _shortest)
    assert [backoff.next_seconds() for _ in range(3)] == pytest.approx([0.05, 0.1, 0.2])


def test_after_a_reset_the_backoff_starts_at_its_first_delay_again() -> None:
    backoff = Backoff(0.1, 1.0, _longest)
    for _ in range(2000):  # so many times that 2.0 ** n would overflow
        backoff.next_seconds()
    backoff.reset()
    assert backoff.next_seconds() == pytest.approx(0.1)
