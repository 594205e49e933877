"""A poller promotes when a task is due by the server's clock, when its doorbell rings, and otherwise once a second."""

import math
from typing import Any, cast

import pytest

from rota.child.slot_memory import SharedText, SlotMemory
from rota.poller.poller_loop import EARLY_CALL_SECONDS, MARGIN_SECONDS, STANDBY_SECONDS, Promotion, Standby
from rota.poller.poller_report import PollerReport
from rota.poller.rounds import LONGEST_SECONDS, NextDue
from rota.protocol.replies import Promoted
from rota.protocol.scripts import ScriptCall
from rota.protocol.store import Store
from rota.server.connection import Connection
from rota.server.server_errors import ConnectionLost, Refused, ServerError
from rota.telemetry.recorder import Recorder

SECOND_US = 1_000_000
ROUND_TRIP = 0.0004
WAY_THERE = 0.0003
TIMER_LATE = 0.0002
AHEAD = EARLY_CALL_SECONDS + MARGIN_SECONDS


class Server:
    """A server, and the clock of this machine. The server's clock is `ahead` of this machine's clock. Tasks are due at
    `dues_us`.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self.ahead = 500.0
        self.dues_us: list[int] = []
        self.arrived_us: list[int] = []
        self.fail: ServerError | None = None
        self.slowness = 1

    def clock(self) -> float:
        return self.now

    def at_us(self, seconds: float) -> int:
        """Return the server's time this many seconds after the start of the test, in microseconds."""
        return round((self.now + self.ahead + seconds) * SECOND_US)

    def run(self, _call: ScriptCall[Any]) -> Promoted:
        if self.fail is not None:
            error, self.fail = self.fail, None
            raise error
        arrived_us = self.at_us(WAY_THERE * self.slowness)
        self.arrived_us.append(arrived_us)
        self.now += ROUND_TRIP * self.slowness
        self.dues_us = [due for due in self.dues_us if due > arrived_us]
        return Promoted({}, 0, min(self.dues_us, default=None), arrived_us, False)


@pytest.fixture
def server() -> Server:
    return Server()


def promoting_at(server: Server, rank: int = 0) -> Promotion:
    report = PollerReport(Recorder(SlotMemory.create(1).slot(0).metrics), 4, SharedText(memoryview(bytearray(4096))))
    return Promotion(Standby(rank), Store("n"), report, server.clock)


def step(promoting: Promotion, server: Server, *, rested: bool = False) -> None:
    promoting.step(cast(Connection, server), rested=rested)


def rest_and_step(promoting: Promotion, server: Server) -> int:
    """Wait until the call is due, with a timer that ends a little late, and then make the call. Return the server's
    time at which the call arrived, in microseconds.
    """
    rested = promoting.due_at() > server.now
    if rested:
        server.now = promoting.due_at() + TIMER_LATE
    step(promoting, server, rested=rested)
    return server.arrived_us[-1]


def test_a_poller_promotes_at_startup_and_then_whenever_a_task_is_due(server: Server) -> None:
    promoting = promoting_at(server)
    assert promoting.due_at() == -math.inf
    server.dues_us = [server.at_us(0.5)]
    sent_at = server.now
    step(promoting, server)
    assert promoting.due_at() == pytest.approx(sent_at + 0.5 - WAY_THERE - AHEAD, abs=1e-5)


@pytest.mark.parametrize("slowness", [1, 10])
def test_a_promotion_arrives_on_time_even_if_timers_are_late(server: Server, slowness: int) -> None:
    promoting, server.slowness = promoting_at(server), slowness
    dues_us = [server.at_us(1 + number / 20) for number in range(100)]
    server.dues_us = list(dues_us)
    step(promoting, server)
    late_us = []
    for due_us in dues_us:
        while server.arrived_us[-1] < due_us:
            arrived_us = rest_and_step(promoting, server)
        late_us.append(arrived_us - due_us)
    assert late_us[0] < (TIMER_LATE + ROUND_TRIP * slowness) * SECOND_US
    assert max(late_us[50:]) < 100
    assert len(server.arrived_us) < 220, "an early call and a promotion each"


def test_if_no_task_is_due_the_poller_checks_again_within_a_second(server: Server) -> None:
    promoting = promoting_at(server)
    sent_at = server.now
    step(promoting, server)
    assert promoting.due_at() == sent_at + LONGEST_SECONDS


def test_a_poller_uses_the_due_time_that_a_sweep_has_returned(server: Server) -> None:
    promoting = promoting_at(server)
    step(promoting, server)
    server.now += 0.9
    promoting.next_due = NextDue(server.at_us(0.25), server.at_us(0), server.now)
    assert promoting.due_at() == pytest.approx(server.now + 0.25 - AHEAD, abs=1e-5)


def test_a_doorbell_ring_causes_one_promotion_at_once(server: Server) -> None:
    promoting = promoting_at(server)
    step(promoting, server)
    promoting.bell_rang()
    assert promoting.due_at() == -math.inf
    step(promoting, server)
    assert promoting.due_at() > server.now


def test_a_doorbell_ring_before_a_lost_connection_is_not_forgotten(server: Server) -> None:
    promoting = promoting_at(server, rank=1)
    step(promoting, server)
    promoting.bell_rang()
    server.fail = ConnectionLost("gone", "network")
    with pytest.raises(ConnectionLost):
        step(promoting, server)
    promoting.connection_lost()
    server.dues_us = [server.at_us(0.5)]
    sent_at = server.now
    step(promoting, server)
    as_the_first = sent_at + 0.5 - WAY_THERE - AHEAD
    assert promoting.due_at() == pytest.approx(as_the_first, abs=1e-5), "only this poller was woken for this task"


def test_a_standby_poller_promotes_later_however_often_it_promotes(server: Server) -> None:
    promoting = promoting_at(server, rank=1)
    for _ in range(100):
        due_us = server.at_us(0.05)
        server.dues_us = [due_us]
        step(promoting, server)
        assert rest_and_step(promoting, server) - due_us > (STANDBY_SECONDS - AHEAD) * SECOND_US


def test_a_promotion_without_a_rest_does_not_change_the_learned_latency(server: Server) -> None:
    promoting = promoting_at(server)
    server.dues_us = [server.at_us(0.5)]
    step(promoting, server)
    server.now += 0.6
    step(promoting, server)
    server.dues_us = [server.at_us(0.5)]
    sent_at = server.now
    step(promoting, server)
    assert promoting.due_at() == pytest.approx(sent_at + 0.5 - WAY_THERE - AHEAD, abs=1e-5)


def test_a_refused_promotion_is_tried_again_a_second_later(server: Server) -> None:
    promoting = promoting_at(server)
    server.fail = Refused("WRONGTYPE", "wrongtype")
    sent_at = server.now
    step(promoting, server)
    assert promoting.due_at() == sent_at + LONGEST_SECONDS
