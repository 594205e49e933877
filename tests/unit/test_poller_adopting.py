"""The times at which a poller checks legacy lists, and the keys for which it requests notifications."""

import math
from typing import Any, cast

import pytest

from rota.child.slot_memory import SharedText, SlotMemory
from rota.poller.poller_bell import BellState, prefixes_of
from rota.poller.poller_report import PollerReport
from rota.poller.rounds import (
    LEGACY_POLL_SECONDS,
    PAUSE_SECONDS,
    REFUSED_SECONDS,
    UNNOTIFIED_SECONDS,
    Leadership,
    LegacyAdoption,
    seconds_to_next,
)
from rota.protocol.replies import AdoptedLegacy, FromSource, LegacySource
from rota.protocol.scripts import ScriptCall
from rota.protocol.store import Store
from rota.server.connection import Connection
from rota.server.server_errors import ConnectionLost, Refused
from rota.telemetry import metrics
from rota.telemetry.recorder import Recorder
from support.child_settings import poller_settings
from support.region_reading import read_region

NOW_US = 1_000_000_000
SOURCE = LegacySource("queue:mail", "mail")


def adopted(
    *, is_leader: bool = True, due_in_seconds: float | None = None, more: bool = False, taken: int = 0
) -> AdoptedLegacy:
    due_us = None if due_in_seconds is None else NOW_US + round(due_in_seconds * 1_000_000)
    return AdoptedLegacy(NOW_US, is_leader, due_us, more, (FromSource(taken, 7, ""),), ())


def test_legacy_lists_are_read_when_an_item_is_due_or_the_poll_interval_ends() -> None:
    assert seconds_to_next(adopted(), is_notified=True) == LEGACY_POLL_SECONDS
    assert seconds_to_next(adopted(), is_notified=False) == UNNOTIFIED_SECONDS
    assert seconds_to_next(adopted(due_in_seconds=0.02), is_notified=True) == pytest.approx(0.02)
    assert seconds_to_next(adopted(due_in_seconds=-1), is_notified=True) == 0
    assert seconds_to_next(adopted(due_in_seconds=60), is_notified=True) == LEGACY_POLL_SECONDS
    assert seconds_to_next(adopted(more=True), is_notified=True) == PAUSE_SECONDS


def test_only_the_leading_poller_reads_legacy_lists_when_items_are_due() -> None:
    assert seconds_to_next(adopted(is_leader=False, due_in_seconds=0.02), is_notified=False) == LEGACY_POLL_SECONDS


def test_without_notifications_legacy_lists_are_polled_every_50_milliseconds() -> None:
    assert UNNOTIFIED_SECONDS < 0.05


def test_tracked_key_prefixes_do_not_overlap() -> None:
    assert prefixes_of(["queue:email2", "delayed:", "queue:email", "queue:e"]) == ["delayed:", "queue:e"]
    assert prefixes_of([]) == []


class FakeServer:
    """A fake connection that records commands. `run` returns the next item of `answers`, or raises it if it is an
    exception. The server refuses the command that `refuses` names.
    """

    def __init__(self, *answers: AdoptedLegacy | Exception, refuses: str = "") -> None:
        self.answers = list(answers)
        self.refuses = refuses
        self.sent: list[tuple[Any, ...]] = []

    def run(self, _: ScriptCall[Any]) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def execute(self, *args: Any) -> Any:
        self.sent.append(args)
        if args[0] == self.refuses:
            raise Refused("NOPERM", "noperm")
        return b"OK"


def connection(server: FakeServer) -> Connection:
    return cast(Connection, server)


class Adopter:
    """The adoption round of one poller, the commands that the poller sent, and the events that it logged."""

    def __init__(self, *sources: LegacySource) -> None:
        self.listening = BellState()
        self.region = SlotMemory.create(1).slot(0).metrics
        self.recorder = Recorder(self.region)
        settings, report = (
            poller_settings(adopts=sources),
            PollerReport(self.recorder, 4, SharedText(memoryview(bytearray(4096)))),
        )
        self.round = LegacyAdoption(settings, Store("n"), report, Leadership(self.listening), 0.0)


def test_a_fleet_without_legacy_lists_never_calls_the_adoption_script() -> None:
    assert Adopter().round.due_at == float("inf")


def test_only_the_leader_tracks_the_legacy_lists() -> None:
    adopter = Adopter(SOURCE, LegacySource("delayed:"))
    two = (FromSource(0, 0, ""),) * 2
    server = FakeServer(*(AdoptedLegacy(0, is_leader, None, False, two, ()) for is_leader in (True, False)))
    adopter.round.step(connection(server), 0.0)
    assert adopter.listening.wanted == ("queue:mail", "delayed:")
    adopter.round.step(connection(server), 1.0)
    assert not adopter.listening.wanted


def test_a_notification_causes_one_adoption_whose_items_are_counted() -> None:
    adopter = Adopter(SOURCE)
    server = FakeServer(adopted(taken=3))
    adopter.listening.rang = True
    assert adopter.round.due_at <= 0
    adopter.round.step(connection(server), 5.0)
    assert adopter.round.due_at > 5
    counter = adopter.recorder.counter(metrics.ADOPTED, SOURCE.key)
    assert counter._numbers[counter._at] == 3
    gauge = adopter.recorder.gauge(metrics.ADOPT_WAITING, SOURCE.key)
    assert gauge._numbers[gauge._at] == 7


def test_each_failed_read_of_a_legacy_list_is_counted() -> None:
    adopter = Adopter(SOURCE)
    counted = []
    for fault in ("", "it is a hash", "it is a hash"):
        answer = AdoptedLegacy(0, True, None, False, (FromSource(0, 0, fault),), ())
        adopter.round.step(connection(FakeServer(answer)), 0.0)
        found = read_region(adopter.region)
        counted += [numbers for definition, _, numbers in found if definition is metrics.ADOPT_ERRORS]
    assert counted == [(0,), (1,), (2,)]


def test_a_flood_of_notifications_does_not_starve_the_pollers_other_work() -> None:
    adopter = Adopter(SOURCE)
    adopter.round.step(connection(FakeServer(adopted(taken=3))), 5.0)
    adopter.listening.rang = True
    assert adopter.round.due_at == 5 + PAUSE_SECONDS


def test_a_refused_adoption_is_retried_and_a_lost_connection_is_raised() -> None:
    adopter = Adopter(SOURCE)
    server = FakeServer(Refused("WRONGTYPE", "wrongtype"), ConnectionLost("gone", "network"))
    adopter.round.step(connection(server), 5.0)
    assert adopter.round.due_at == 5 + REFUSED_SECONDS
    with pytest.raises(ConnectionLost):
        adopter.round.step(connection(server), 6.0)


def test_after_tracking_starts_the_poller_checks_for_earlier_items_once() -> None:
    listening, server = BellState(wanted=("queue:mail",)), FakeServer()
    assert listening.is_outdated
    listening.set_up(connection(server))
    tracking = "CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "queue:mail"
    assert server.sent == [("HELLO", 3), tracking, ("CLIENT", "ID")]
    assert (listening.is_notified, listening.rang, listening.is_outdated) == (True, True, False)


@pytest.mark.parametrize("command", ["HELLO", "CLIENT"])
def test_the_poller_works_without_key_tracking_if_the_server_refuses_it(command: str) -> None:
    listening, server = BellState(wanted=("queue:mail",)), FakeServer(refuses=command)
    listening.set_up(connection(server))
    assert (listening.is_notified, listening.is_outdated, listening.client_id) == (False, False, 0)


def test_without_legacy_lists_no_key_is_tracked() -> None:
    listening, server = BellState(), FakeServer()
    listening.set_up(connection(server))
    assert server.sent == [("HELLO", 3), ("CLIENT", "ID")]
    assert not listening.is_notified


def test_the_key_of_a_notification_decides_if_a_legacy_list_has_changed() -> None:
    listening = BellState(wanted=("queue:mail",))
    listening.invalidated([b"{n}:queue:mail"])
    assert (listening.rang, math.isfinite(listening.changed_at)) == (False, True)
    listening = BellState(wanted=("queue:mail",))
    listening.invalidated([b"queue:mail"])
    assert (listening.rang, math.isfinite(listening.changed_at)) == (True, False)
    for wanted in ((), ("queue:mail",)):
        listening = BellState(wanted=wanted)
        listening.invalidated(None)
        assert (listening.rang, math.isfinite(listening.changed_at)) == (bool(wanted), True)
