"""A poller rests until the next due time, never past a second, and stand-bys a little longer."""

import pytest

from rota.poller.rest import Outlook, Standby


def test_it_rests_until_the_next_due_time_less_what_has_passed() -> None:
    outlook = Outlook(next_due_us=1_300_000, now_us=1_000_000, seen_at=50.0)
    assert outlook.rest_seconds(50.1, 0.0) == pytest.approx(0.2)


def test_it_rests_a_second_at_most_and_never_less_than_nothing() -> None:
    assert Outlook(None, 0, 50.0).rest_seconds(50.0, 0.0) == 1.0
    assert Outlook(9_000_000, 0, 50.0).rest_seconds(50.25, 0.0) == pytest.approx(0.75)
    assert Outlook(0, 5_000_000, 50.0).rest_seconds(50.0, 0.0) == 0.0


def test_a_stand_by_goes_later_by_its_rank() -> None:
    outlook = Outlook(next_due_us=300_000, now_us=0, seen_at=0.0)
    assert outlook.rest_seconds(0.0, Standby(1).seconds(300_000)) == pytest.approx(0.303)
    assert Standby(0).seconds(300_000) == 0.0


def test_a_stand_by_that_heard_the_bell_goes_first_for_what_it_was_told_of() -> None:
    standby = Standby(1)
    standby.heard(300_000)
    assert standby.seconds(300_000) == 0.0
    assert standby.seconds(400_000) == pytest.approx(0.003)
