"""The time at which a poller calls next. A stand-by poller calls after the other pollers, and each poller learns by how
much its timers end too late.
"""

import math
import random

import pytest

from rota.poller.poller_loop import Standby, WakeLatency
from rota.poller.rounds import UNKNOWN_DUE, NextDue

MILLISECOND = 0.001


def test_a_due_time_is_computed_from_when_the_last_call_was_sent() -> None:
    next_due = NextDue(next_due_us=1_300_000, now_us=1_000_000, sent_at=50.0)
    assert next_due.due_at == pytest.approx(50.3)
    assert NextDue(0, 5_000_000, 50.0).due_at == pytest.approx(45.0)
    assert NextDue(None, 0, 50.0).due_at == math.inf


def test_a_known_due_time_is_outdated_after_a_second() -> None:
    assert NextDue(None, 0, 50.0).stale_at == 51.0
    assert UNKNOWN_DUE.stale_at == -math.inf


def test_a_standby_poller_promotes_later_according_to_its_rank() -> None:
    assert Standby(1).seconds(300_000) == pytest.approx(3 * MILLISECOND)
    assert Standby(0).seconds(300_000) == 0.0


def test_a_standby_poller_woken_by_the_doorbell_promotes_without_delay() -> None:
    standby = Standby(1)
    standby.woken_due_us = 300_000
    assert standby.seconds(300_000) == 0.0
    assert standby.seconds(400_000) == pytest.approx(3 * MILLISECOND)


def test_a_poller_soon_compensates_for_a_constant_wake_up_latency() -> None:
    latency, noise = WakeLatency(), random.Random(1)
    arrivals = []
    for _ in range(200):
        arrivals.append(noise.gauss(0.4, 0.05) * MILLISECOND - latency.seconds)
        latency.arrived(arrivals[-1])
    learned = sorted(arrivals[40:])
    assert 0 < learned[len(learned) // 2] < 0.1 * MILLISECOND
    assert sum(late < 0 for late in learned) < len(learned) / 3


def test_one_slow_call_barely_changes_the_learned_wake_up_latency() -> None:
    latency = WakeLatency()
    for _ in range(100):
        latency.arrived(0.3 * MILLISECOND - latency.seconds)
    before = latency.seconds
    latency.arrived(2.0)
    assert latency.seconds - before < 0.1 * MILLISECOND


@pytest.mark.parametrize(("late_seconds", "learned"), [(5.0, MILLISECOND), (-5.0, 0.0)])
def test_the_learned_wake_up_latency_is_between_zero_and_a_millisecond(late_seconds: float, learned: float) -> None:
    latency = WakeLatency(0.5 * MILLISECOND)
    for _ in range(1000):
        latency.arrived(late_seconds)
    assert latency.seconds == learned
