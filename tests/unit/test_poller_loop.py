"""The poller's loop. The loop alternates between promotions and rounds of other work, such as sweeps. It notices a stop
signal between any two calls.
"""

import os
from collections.abc import Iterator
from typing import Any, cast

import pytest

from rota.child.child_process import EXIT_DRAINED, ChildProcess, StopSignals, Waiter
from rota.child.slot_memory import SharedText, SlotMemory
from rota.child.slots import Phase
from rota.poller.poller_bell import BellState, PollerBell
from rota.poller.poller_loop import HEARTBEAT_SECONDS, PollerLoop, Promotion, Rounds, Standby
from rota.poller.poller_report import PollerReport
from rota.poller.rounds import NEW_SECONDS
from rota.protocol.replies import Promoted, Reaped, Swept
from rota.protocol.scripts import ScriptCall
from rota.protocol.store import Store
from rota.server.connection import Connection
from rota.server.link import Link
from rota.server.server_errors import ConnectionLost, Refused, ServerError
from rota.telemetry.recorder import Recorder
from support.child_settings import poller_settings

SECOND_US = 1_000_000
CALL_SECONDS = 0.001


class FakeServer:
    """A fake for the link, the doorbell and the clock. It requests a stop after `most` calls, or when the loop rests
    for longer than `CALL_SECONDS`. `overdue` is the number of calls that are needed to promote all due tasks.
    `next_due_us` is the due time of the next task by the poller's clock.
    """

    def __init__(self, signals: StopSignals) -> None:
        self._signals = signals
        self.now = 1000.0
        self.calls: list[str] = []
        self.arrived_us: list[int] = []
        self.rests: list[float] = []
        self.refused: set[str] = set()
        self.overdue = 0
        self.next_due_us: int | None = None
        self.lost_owners = 0
        self.places_are_taken = False
        self.away: list[ServerError] = []
        self.disconnected_at: list[int] = []
        self.most = 20

    def connection(self) -> Connection:
        return cast(Connection, self)

    def succeeded(self) -> None: ...

    def clock(self) -> float:
        return self.now

    @property
    def now_us(self) -> int:
        return round(self.now * SECOND_US)

    def rest(self, seconds: float) -> bool:
        self.rests.append(seconds)
        if seconds > CALL_SECONDS:
            self._signals.stop_requested = True
        self.now += seconds
        return False

    def disconnect(self) -> None:
        self.disconnected_at.append(len(self.calls))

    def failed(self, _error: ServerError) -> float:
        return 0.0

    def pause(self, seconds: float) -> None: ...

    def run(self, call: ScriptCall[Any]) -> Any:
        if self.away:
            raise self.away.pop()
        self.calls.append(call.script.name)
        self.now += CALL_SECONDS
        self.arrived_us.append(self.now_us)
        if len(self.calls) == self.most:
            self._signals.stop_requested = True
        if call.script.name in self.refused:
            raise Refused("WRONGTYPE", "wrongtype")
        match call.script.name:
            case "promote":
                self.overdue -= 1
                if self.next_due_us is not None and self.next_due_us <= self.now_us:
                    self.next_due_us = None
                return Promoted({}, 0, self._due_us(), self.now_us, self.overdue > 0)
            case "sweep":
                owners = tuple(f"n:{slot}:1" for slot in range(self.lost_owners))
                due_us = None if self.places_are_taken else self._due_us()
                return Swept(self.now_us, 0, 0, owners, due_us, is_reserve=self.places_are_taken)
            case "reap":
                return Reaped(False, 0, (), ())
        raise AssertionError(call.script.name)

    def _due_us(self) -> int | None:
        return 0 if self.overdue > 0 else self.next_due_us


@pytest.fixture
def signals() -> StopSignals:
    return StopSignals()


@pytest.fixture
def server(signals: StopSignals) -> FakeServer:
    return FakeServer(signals)


@pytest.fixture
def loop(signals: StopSignals, server: FakeServer) -> Iterator[PollerLoop]:
    slot = SlotMemory.create(1).slot(0)
    store, report = Store("n"), PollerReport(Recorder(slot.metrics), 4, SharedText(memoryview(bytearray(4096))))
    bell = os.eventfd(0)
    yield PollerLoop(
        process=ChildProcess("node", 4, slot, 1, "", -1, bell),
        link=cast(Link, server),
        bell=cast(PollerBell, server),
        waiter=cast(Waiter, server),
        signals=signals,
        promoting=Promotion(Standby(0), store, report, server.clock),
        rounds=Rounds(poller_settings(), store, report, server.clock, BellState()),
        rank=0,
        clock=server.clock,
    )
    os.close(bell)


def test_an_endless_backlog_of_due_tasks_does_not_delay_sweeps_or_reaps(loop: PollerLoop, server: FakeServer) -> None:
    server.overdue, server.lost_owners = 1_000_000, 3
    assert loop.run() == EXIT_DRAINED
    rounds = ["sweep", "reap", "reap", "reap"]
    made = [call for name in rounds for call in ("promote", name)]
    assert server.calls[: len(made)] == made
    assert set(server.calls[len(made) :]) == {"promote"}
    assert not any(server.rests)


def test_reaping_a_hundred_lost_owners_does_not_delay_a_promotion(loop: PollerLoop, server: FakeServer) -> None:
    server.lost_owners, server.most = 100, 1000
    server.next_due_us = server.now_us + 50_000
    loop.run()
    looked = server.calls.index("promote", 1)
    assert looked == pytest.approx(50, abs=2)
    before, after = ["reap"] * (looked - 2), ["reap"] * (102 - looked)
    assert server.calls == ["promote", "sweep", *before, "promote", "promote", *after], (
        "an early call, and the promotion"
    )


def test_the_poller_makes_no_other_call_when_a_task_is_about_to_be_due(loop: PollerLoop, server: FakeServer) -> None:
    server.lost_owners, server.most = 100, 60
    server.next_due_us = due_us = server.now_us + 50_500
    loop.run()
    arrived_us = [at for call, at in zip(server.calls, server.arrived_us, strict=True) if call == "promote"]
    assert next(at for at in arrived_us if at >= due_us) - due_us <= 100


def test_the_poller_notices_a_stop_signal_before_its_next_call(loop: PollerLoop, server: FakeServer) -> None:
    server.overdue, server.lost_owners, server.most = 1_000_000, 100, 3
    assert loop.run() == EXIT_DRAINED
    assert server.calls == ["promote", "sweep", "promote", "reap"]
    assert loop.process.slot.phase is Phase.DRAINING


def test_the_poller_rests_after_a_sweep_if_nothing_is_due(loop: PollerLoop, server: FakeServer) -> None:
    loop.run()
    assert server.calls == ["promote", "sweep"]
    assert [seconds > 0 for seconds in server.rests] == [True]


def test_a_reserve_still_records_a_heartbeat_every_second(loop: PollerLoop, server: FakeServer) -> None:
    server.places_are_taken = True
    server.now += NEW_SECONDS
    loop.run()
    assert server.calls == ["promote", "sweep"]
    assert server.rests == [HEARTBEAT_SECONDS]


def test_a_refused_promotion_does_not_prevent_the_sweep(loop: PollerLoop, server: FakeServer) -> None:
    server.refused = {"promote"}
    loop.run()
    assert server.calls == ["promote", "sweep"]


def test_a_poller_that_lost_its_connection_listens_again(loop: PollerLoop, server: FakeServer) -> None:
    server.away = [ConnectionLost("gone", "silent")]
    loop.run()
    assert server.disconnected_at == [0]
    assert server.calls
