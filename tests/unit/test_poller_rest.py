"""A poller knows when to look again, goes after others when it is a stand-by, and learns how early to set out."""

import math
import random

import pytest

from rota.poller.rest import NO_OUTLOOK, Lead, Outlook, Standby

MILLISECOND = 0.001


def test_a_due_time_is_reckoned_from_when_the_last_call_was_sent() -> None:
    outlook = Outlook(next_due_us=1_300_000, now_us=1_000_000, sent_at=50.0)
    assert outlook.due_at == pytest.approx(50.3)
    assert Outlook(0, 5_000_000, 50.0).due_at == pytest.approx(45.0)
    assert Outlook(None, 0, 50.0).due_at == math.inf


def test_an_outlook_is_old_after_a_second_and_none_is_older() -> None:
    assert Outlook(None, 0, 50.0).look_again_at == 51.0
    assert NO_OUTLOOK.look_again_at == -math.inf


def test_a_stand_by_goes_later_by_its_rank() -> None:
    assert Standby(1).seconds(300_000) == pytest.approx(3 * MILLISECOND)
    assert Standby(0).seconds(300_000) == 0.0


def test_a_stand_by_that_heard_the_bell_goes_first_for_what_it_was_told_of() -> None:
    standby = Standby(1)
    standby.heard(300_000)
    assert standby.seconds(300_000) == 0.0
    assert standby.seconds(400_000) == pytest.approx(3 * MILLISECOND)


def test_calls_that_would_be_late_by_as_much_each_time_soon_arrive_just_after_their_time() -> None:
    lead, noise = Lead(), random.Random(1)
    arrivals = []
    for _ in range(200):
        arrivals.append(noise.gauss(0.4, 0.05) * MILLISECOND - lead.seconds)
        lead.arrived(arrivals[-1])
    learned = sorted(arrivals[40:])
    assert 0 < learned[len(learned) // 2] < 0.1 * MILLISECOND
    assert sum(late < 0 for late in learned) < len(learned) / 3


def test_a_busy_server_teaches_no_one_to_be_early() -> None:
    lead = Lead()
    for _ in range(100):
        lead.arrived(0.3 * MILLISECOND - lead.seconds)
    before = lead.seconds
    lead.arrived(2.0)
    assert lead.seconds - before < 0.1 * MILLISECOND


@pytest.mark.parametrize(("late_seconds", "learned"), [(5.0, MILLISECOND), (-5.0, 0.0)])
def test_a_lead_is_never_below_nothing_nor_over_a_millisecond(late_seconds: float, learned: float) -> None:
    lead = Lead(0.5 * MILLISECOND)
    for _ in range(1000):
        lead.arrived(late_seconds)
    assert lead.seconds == learned
