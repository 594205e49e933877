"""The poller's loop: promotions and rounds take turns, and a stop signal is seen between any two calls."""

import os
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from rota.child.life import EXIT_DRAINED, Life
from rota.child.settings import PollerSettings, ServerSettings
from rota.child.signals import StopSignals
from rota.child.slots import Phase, SlotMemory
from rota.child.wait import Waiter
from rota.poller.bell import PollerBell
from rota.poller.loop import PollerLoop, PollerTools
from rota.poller.report import PollerReport
from rota.poller.rest import Standby
from rota.poller.rounds import Rounds
from rota.protocol.replies import Promoted, Retired, Swept
from rota.protocol.store import Command, Store
from rota.server.connection import Connection
from rota.server.link import Link
from rota.telemetry.recorder import Recorder

SECOND_US = 1_000_000


class FakeServer:
    """Plays the link and the bell as well. `overdue`: chunks left to promote; asks to stop after `most` calls."""

    def __init__(self, signals: StopSignals) -> None:
        self._signals = signals
        self.calls: list[str] = []
        self.rests: list[float] = []
        self.overdue = 0
        self.lost_owners = 0
        self.most = 20

    def connection(self) -> Connection:
        return cast(Connection, self)

    def worked(self) -> None: ...

    def rest(self, seconds: float) -> bool:
        self.rests.append(seconds)
        if seconds > 0:
            self._signals.asked = True
        return False

    def run(self, call: Command[Any]) -> Any:
        self.calls.append(call.script.name)
        if len(self.calls) == self.most:
            self._signals.asked = True
        match call.script.name:
            case "promote":
                self.overdue -= 1
                more = self.overdue > 0
                return Promoted({}, 0, SECOND_US if more else None, 2 * SECOND_US, more)
            case "sweep":
                return Swept(0, 0, 0, tuple(f"n:{slot}:1" for slot in range(self.lost_owners)))
            case "retire":
                return Retired(False, 0, (), ())
        raise AssertionError(call.script.name)

    def execute(self, *_: object) -> list[Any]:
        self.calls.append("scan")
        return [b"0", []]


@pytest.fixture
def signals() -> StopSignals:
    return StopSignals()


@pytest.fixture
def server(signals: StopSignals) -> FakeServer:
    return FakeServer(signals)


@pytest.fixture
def tools(signals: StopSignals, server: FakeServer) -> Iterator[PollerTools]:
    slot = SlotMemory.create(1).slot(0)
    store, report = Store("n"), PollerReport(Recorder(slot.metrics), 4)
    bell, started = os.eventfd(0), time.monotonic()
    yield PollerTools(
        life=Life(4, slot, 1, "", -1, bell),
        store=store,
        link=cast(Link, server),
        bell=cast(PollerBell, server),
        waiter=cast(Waiter, None),
        signals=signals,
        standby=Standby(0),
        rounds=Rounds(PollerSettings(ServerSettings("redis://", "n")), store, report, clock=lambda: started),
        report=report,
    )
    os.close(bell)


def test_a_backlog_without_end_holds_up_neither_sweep_nor_retirements(tools: PollerTools, server: FakeServer) -> None:
    server.overdue, server.lost_owners = 1_000_000, 3
    assert PollerLoop(tools).run() == EXIT_DRAINED
    rounds = ["sweep", "retire", "retire", "retire", "scan"]
    made = [call for name in rounds for call in ("promote", name)]
    assert server.calls[: len(made)] == made
    assert set(server.calls[len(made) :]) == {"promote"}
    assert not any(server.rests)


def test_a_hundred_lost_owners_hold_up_no_promotion(tools: PollerTools, server: FakeServer) -> None:
    server.lost_owners, server.most = 100, 1000
    PollerLoop(tools).run()
    assert server.calls[:204:2] == ["promote"] * 102
    assert server.calls[1:204:2] == ["sweep", *["retire"] * 100, "scan"]


def test_a_stop_signal_is_seen_before_the_next_chunk(tools: PollerTools, server: FakeServer) -> None:
    server.overdue, server.lost_owners, server.most = 1_000_000, 100, 3
    assert PollerLoop(tools).run() == EXIT_DRAINED
    assert server.calls == ["promote", "sweep", "promote", "retire"]
    assert tools.life.slot.phase is Phase.DRAINING


def test_it_rests_when_nothing_is_due(tools: PollerTools, server: FakeServer) -> None:
    PollerLoop(tools).run()
    assert server.calls == ["promote", "sweep", "promote", "scan"]
    assert [seconds > 0 for seconds in server.rests] == [False, True]
