"""The wall clock of a node jumps forward and back by an hour while the node's fleet works. This must have no effect."""

import time
from pathlib import Path

import pytest

from support.fleets import Fleets
from support.masters import ON_ONE_SERVER
from support.shifted_clock import ShiftedClock

pytestmark = ON_ONE_SERVER

HOUR = 3600.0
MICROSECONDS = 1_000_000
TASKS = 60
SPREAD_SECONDS = 4.5
RELAY_SECONDS = 1.0
GENEROUS_LAG_SECONDS = 3.0


@pytest.mark.parametrize("hours", [(1, -1), (-1, 1)], ids=["forward, then back", "back, then forward"])
def test_a_jump_of_the_nodes_clock_makes_no_task_early_late_or_lost(
    fleets: Fleets, tmp_path: Path, hours: tuple[int, int]
) -> None:
    clock = ShiftedClock(tmp_path)
    node = fleets.node("a", workers=4, lease={"seconds": 2, "renew_seconds": 0.5}, pollers=2)
    node.environment |= clock.environment
    workers = node.start().workers()
    for number in range(TASKS):
        delay = SPREAD_SECONDS * number / TASKS
        node.client.enqueue("tell_time", args=[f"told {number}"], queue="default", delay=delay)
        node.client.enqueue("relay", args=[f"relayed {number}", RELAY_SECONDS], queue="default", delay=delay)
    for jump in hours:
        time.sleep(SPREAD_SECONDS / 3)
        clock.shift(jump * HOUR)
    node.wait_for("end", 3 * TASKS)
    told = node.journal("time")
    lags = [int(line.label) / MICROSECONDS - line.due_at for line in told]
    assert 0 <= min(lags) <= max(lags) < GENEROUS_LAG_SECONDS
    at_us = {line.id: int(line.label) for line in told}
    for number in range(TASKS):
        assert len(node.journal("end", label=f"told {number}")) == 1
        first, second = (at_us[line.id] for line in node.journal("end", label=f"relayed {number}"))
        assert RELAY_SECONDS <= (second - first) / MICROSECONDS < RELAY_SECONDS + GENEROUS_LAG_SECONDS
    assert node.workers() == workers
    assert [node.log(event) for event in ("worker.lost", "worker.fenced", "task.recovered", "worker.exited")] == [
        []
    ] * 4
    # The times of these log lines are from the clock that jumped.
    assert max(line.at for line in told) - min(line.at for line in told) > HOUR
    assert node.books_balance()
