"""Schedules under faults. Pollers of two nodes are killed and stopped, configuration files are reloaded, and the
server's clock jumps. Every occurrence runs exactly once.
"""

import os
import signal
import time
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from support.fleets import Measure, RunningFleet
from support.server_fixtures import SHORT_LEASE, Shaken
from support.shifted_clock import ShiftedClock
from support.waiting import until

SCHEDULES: Final = 100
OCCURRENCES: Final = 1000
JUMP_SECONDS: Final = 2.5
HOUR: Final = 3600
SECOND_US: Final = 1_000_000
GENEROUS_LAG_SECONDS: Final = 1.0


@pytest.fixture
def clock(tmp_path: Path) -> ShiftedClock:
    return ShiftedClock(tmp_path)


@pytest.fixture
def server_environment(clock: ShiftedClock) -> dict[str, str]:
    return clock.environment


def schedule(number: int, **more: Any) -> dict[str, Any]:
    """Return the settings of a schedule that has an occurrence every second. The occurrences are 0.01 s later than
    those of the schedule with the previous number.
    """
    start = f"2026-01-01T00:00:00.{number * 10:03}Z"
    said = {"task": "note", "args": [f"s{number}"], "every": 1, "start": start, "missed": "all", "overlap": "queue"}
    return said | more


def times_of(fleet: RunningFleet) -> dict[str, list[int]]:
    """Return the times of all occurrences that ran, sorted and in microseconds, by schedule. The times are read from
    the task ids.
    """
    found: dict[str, list[int]] = defaultdict(list)
    for line in fleet.journal("start", name="note"):
        name, _, seconds = line.id.rpartition(":")
        found[name].append(round(float(seconds) * 1_000_000))
    return {name: sorted(times) for name, times in found.items()}


def wait_for_more(fleet: RunningFleet, count: int) -> None:
    wanted = len(fleet.journal("start", name="note")) + count
    fleet.wait_for("start", wanted, name="note")


def harm_pollers(node: RunningFleet, number: int) -> None:
    for pid in node.pids("poller", "ready"):
        os.kill(pid, number)


def test_each_of_a_thousand_occurrences_runs_once(shaken: Shaken, clock: ShiftedClock, measured: Measure) -> None:
    schedules = {f"s{number}": schedule(number) for number in range(SCHEDULES)}
    nodes = [
        shaken.node(name, workers=2, pollers=2, lease=SHORT_LEASE, schedules=schedules).start() for name in ("a", "b")
    ]
    a, b = nodes
    begun = time.time()
    wait_for_more(a, 3 * SCHEDULES)
    lags = sorted(line.at - line.due_at for line in a.journal("start") if line.due_at > begun)
    harm_pollers(a, signal.SIGKILL)
    wait_for_more(a, SCHEDULES)
    clock.shift(JUMP_SECONDS)
    harm_pollers(b, signal.SIGKILL)
    a.edit(schedules=schedules | {"s0": schedule(0, every=2)})
    a.hup()
    wait_for_more(a, SCHEDULES)
    harm_pollers(a, signal.SIGSTOP)  # the master kills the stopped pollers later
    b.edit(schedules=schedules | {"s0": schedule(0, every=2)})
    b.hup()
    clock.shift(0)
    for node in nodes:
        harm_pollers(node, signal.SIGKILL)
    until(lambda: sum(map(len, times_of(a).values())) > OCCURRENCES, "a thousand occurrences")
    wait_until_none_is_missing(a, until_us=max(map(max, times_of(a).values())) - SECOND_US)
    starts = Counter(line.id for line in a.journal("start", name="note"))
    assert {task_id: count for task_id, count in starts.items() if count > 1} == {}
    measured("lag p99 of occurrences in the calm, s", lags[int(len(lags) * 0.99)])
    assert lags[len(lags) // 2] < GENEROUS_LAG_SECONDS


def wait_until_none_is_missing(fleet: RunningFleet, until_us: int) -> None:
    """Wait until every schedule has run once in each second until this time. The schedule `s0` is not checked, because
    the test changes its settings.
    """

    def gaps() -> set[int]:
        times = {name: [time for time in each if time <= until_us] for name, each in times_of(fleet).items()}
        assert len(times) == SCHEDULES
        return {later - time for name, each in times.items() if name != "s0" for time, later in pairwise(each)}

    until(lambda: gaps() == {SECOND_US}, "all occurrences up to now")


def test_schedules_handle_missed_occurrences_as_configured(shaken: Shaken, clock: ShiftedClock) -> None:
    said = {"task": "note", "cron": "* * * * *", "overlap": "queue"}
    schedules = {missed: {**said, "missed": missed} for missed in ("all", "last", "none")}
    # The clock is set to the middle of a minute. Therefore no further occurrence becomes due during the test, and the
    # last occurrence counts as missed.
    offset = 35 - shaken.redis.time()[0] % 60
    clock.shift(offset)
    node = shaken.make(workers=1, lease={"seconds": 1.2, "renew_seconds": 0.3}, schedules=schedules).start()
    until(lambda: has_next_times(shaken, len(schedules)), "a next time for each")
    first = shaken.redis.time()[0] // 60 + 1
    node.term()
    assert node.exit_code() == 0
    clock.shift(offset + HOUR)
    node.start()
    expected = {f"all:{60 * minute}" for minute in range(first, first + 60)} | {f"last:{60 * (first + 59)}"}
    node.wait_for("end", len(expected))
    assert {line.id for line in node.journal("end")} == expected
    assert {(line["schedule"], line["count"]) for line in node.log("schedule.missed")} == {("last", 59), ("none", 60)}
    assert node.metrics().total("rota_schedule_occurrences_total", outcome="missed") == 119
    node.edit(schedules={"all": schedules["all"]})
    node.hup()
    until(lambda: {line["schedule"] for line in node.log("schedule.removed")} == {"last", "none"}, "they are gone")
    assert node.books_balance()


def has_next_times(shaken: Shaken, count: int) -> bool:
    """Whether the pollers have computed the next occurrence of at least this number of schedules."""
    due = f"{{{shaken.namespace}}}:schedules-due"
    return shaken.redis.zcount(due, 1, "+inf") == count
