"""The poller's round of schedules. Each step makes one call, and a failure of one schedule does not delay the
others.
"""

import math
from collections.abc import Iterable
from typing import Any, cast

import pytest

from rota.child.slot_memory import SharedText, SlotMemory
from rota.poller.poller_bell import BellState
from rota.poller.poller_report import PollerReport
from rota.poller.rounds import STANDBY_UPCOMING_SECONDS, UPCOMING_SECONDS, Leadership, ScheduleRound
from rota.protocol.replies import Swept
from rota.protocol.schedule_store import SCHEDULES_A_PAGE, RemoveStatus, ScheduleRecord, StoredSchedule
from rota.protocol.scripts import ScriptCall
from rota.protocol.store import Store
from rota.schedules.schedule import EveryRule, Schedule, encode_schedule
from rota.server.connection import Connection
from rota.server.server_errors import ConnectionLost, PushedBack, Refused
from rota.telemetry import metrics
from rota.telemetry.recorder import Recorder
from rota_supervisor.exporter.series import Series
from support.child_settings import poller_settings
from support.region_reading import read_region

SECOND_US = 1_000_000
NOW_US = 1_795_252_620 * SECOND_US
NOW = 100.0


def stored(name: str, passed_us: int = NOW_US, missed: str = "last") -> StoredSchedule:
    schedule = Schedule(name, "work", EveryRule(60 * SECOND_US), "q", missed=cast(Any, missed))
    return StoredSchedule(name, ScheduleRecord(passed_us, 0, 0, 0, 0, (), encode_schedule(schedule)).to_bytes())


class Poller:
    """A poller's round of schedules, with a fake server. `found` is the server's first list of schedules, and
    `next_found` is the next one. `advanced` has the schedules that the poller has advanced.
    """

    def __init__(self) -> None:
        self.found: list[StoredSchedule] = []
        self.next_found: list[StoredSchedule] = []
        self.calls: list[str] = []
        self.advanced: list[str] = []
        self.fail: dict[str, Exception] = {}
        self.leadership = Leadership(BellState(), is_leader=True)
        self.region = SlotMemory.create(1).slot(0).metrics
        self.recorder = Recorder(self.region)
        report = PollerReport(self.recorder, 4, SharedText(memoryview(bytearray(4096))))
        self.round = ScheduleRound(poller_settings(), Store("n"), report, self.leadership, NOW)

    def sweep(self, next_us: int | None, *undeclared: str, is_leader: bool = True) -> None:
        self.leadership.take_sweep(Swept(NOW_US, 0, 0, (), None, is_leader, 0, next_us, undeclared), NOW)

    def run(self, call: ScriptCall[Any]) -> Any:
        name = call.script.name
        self.calls.append(name)
        args = [part.decode(errors="replace") for part in call.args.data.split(b"\r\n")[1::2]]
        if error := self.fail.pop(args[0] if name == "advance" else name, None):
            raise error
        if name == "upcoming":
            found, self.found, self.next_found = tuple(self.found), self.next_found or self.found, []
            return NOW_US, found
        self.advanced.append(args[0])
        return RemoveStatus.REMOVED if name == "remove_schedule" else True

    def until_idle(self) -> list[str]:
        while self.round.due_at <= NOW:
            self.round.step(cast(Connection, self), NOW)
        return self.calls

    def series(self) -> Iterable[Series]:
        return read_region(self.region)

    def counted(self, name: str, outcome: str) -> float:
        counter = self.recorder.counter(metrics.SCHEDULE_OCCURRENCES, name, outcome)
        return counter._numbers[counter._at]


@pytest.fixture
def poller() -> Poller:
    return Poller()


def test_without_schedules_the_poller_makes_no_schedule_calls(poller: Poller) -> None:
    poller.sweep(None)
    assert (poller.round.due_at, poller.until_idle()) == (math.inf, [])


def test_other_pollers_enqueue_occurrences_if_the_leader_does_not(poller: Poller) -> None:
    poller.sweep(NOW_US + 10 * SECOND_US)
    assert poller.round.due_at == NOW + 10 - UPCOMING_SECONDS
    poller.sweep(NOW_US + 10 * SECOND_US, is_leader=False)
    assert poller.round.due_at == NOW + 10 - STANDBY_UPCOMING_SECONDS


def test_each_upcoming_schedule_is_processed_once_per_sweep(poller: Poller) -> None:
    poller.found = [stored("a"), stored("b", NOW_US - 3600 * SECOND_US)]
    poller.sweep(0)
    assert poller.until_idle() == ["upcoming", "advance", "advance"]
    assert poller.round.due_at == math.inf
    assert (poller.counted("b", "enqueued"), poller.counted("b", "missed")) == (1, 59)


def test_all_occurrence_counters_of_a_schedule_start_at_zero(poller: Poller) -> None:
    """If a counter appeared only later, `increase()` in Prometheus would not count its first value."""
    poller.found = [stored("a")]
    poller.sweep(0)
    poller.until_idle()
    found = [labels for definition, labels, _ in poller.series() if definition is metrics.SCHEDULE_OCCURRENCES]
    assert found == [("a", outcome) for outcome in metrics.OCCURRENCE_OUTCOMES]


def test_an_unreadable_or_refused_schedule_does_not_stop_others(poller: Poller) -> None:
    texts = (b"no record", b"1 0 0 0 0 -\nno schedule", b'1 0 0 0 0 -\n{"task":"t","queue":"q","cron":"no"}')
    poller.found = [
        *(StoredSchedule(f"bad{number}", text) for number, text in enumerate(texts)),
        stored("full"),
        stored("good"),
    ]
    poller.fail = {"full": Refused("OOM", "oom")}
    poller.sweep(0)
    assert poller.until_idle() == ["upcoming", "advance", "advance"]
    assert poller.advanced == ["good"]


def test_after_a_full_page_of_schedules_the_next_page_is_read_at_once(poller: Poller) -> None:
    full = [stored(f"s{number}") for number in range(SCHEDULES_A_PAGE)]
    poller.found, poller.next_found = full, [stored("last")]
    poller.sweep(0)
    assert poller.until_idle().count("upcoming") == 2
    assert poller.advanced[-1] == "last"


def test_after_a_page_of_unreadable_schedules_the_poller_waits_for_a_sweep(poller: Poller) -> None:
    poller.found = [StoredSchedule(f"bad{number}", b"no record") for number in range(SCHEDULES_A_PAGE)]
    poller.sweep(0)
    assert poller.until_idle() == ["upcoming"]


def test_if_redis_is_out_of_memory_schedules_are_retried_after_the_next_sweep(poller: Poller) -> None:
    poller.found, poller.fail = [stored("a"), stored("b")], {"a": PushedBack("OOM", "oom")}
    poller.sweep(0)
    assert poller.until_idle() == ["upcoming", "advance"]
    poller.sweep(0)
    poller.until_idle()
    assert poller.advanced == ["a", "b"]


def test_a_schedule_call_interrupted_by_a_lost_connection_is_repeated(poller: Poller) -> None:
    poller.found, poller.fail = [stored("a")], {"a": ConnectionLost("gone", "network")}
    poller.sweep(0)
    with pytest.raises(ConnectionLost):
        poller.until_idle()
    poller.until_idle()
    assert poller.advanced == ["a"]


def test_a_schedule_that_no_node_declares_is_removed(poller: Poller) -> None:
    poller.sweep(None, "a", "b")
    assert poller.until_idle() == ["remove_schedule", "remove_schedule"]
    assert poller.advanced == ["a", "b"]
