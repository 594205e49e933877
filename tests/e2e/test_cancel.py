"""A task that runs is cancelled from outside: raised inside it at once, over the whole fleet, or its process is killed."""

import statistics
import time

import pytest

import rota
from fleets import Fleets, Measure, RunningFleet
from waiting import until

ROUNDS = 100


@pytest.fixture
def fleet(fleets: Fleets) -> RunningFleet:
    return fleets.start()


def _start(fleet: RunningFleet, label: str, task: str = "linger", how: str = "ends") -> rota.Handle[None]:
    args = [label] if task == "linger_in_loop" else [label, how]
    handle = fleet.client.enqueue(task, args=args, queue="default")
    fleet.wait_for("start", label=label)
    return handle


def _until_ended(fleet: RunningFleet, handle: rota.Handle[None]) -> None:
    until(lambda: handle.status().state not in ("running", "ready", "scheduled"), "its end")


def test_a_running_task_is_told_at_once_and_ends_as_cancelled_without_a_retry(
    fleet: RunningFleet, measured: Measure
) -> None:
    took = []
    for number in range(ROUNDS):
        handle = _start(fleet, f"task{number}", "linger_in_loop" if number % 4 == 0 else "linger")
        asked_at = time.time()
        assert handle.cancel() == "running"
        [told] = fleet.wait_for("cancelled", label=f"task{number}")
        took.append(told.at - asked_at)
        _until_ended(fleet, handle)
    measured("seconds from cancel() to Cancelled in the task, median", statistics.median(took))
    measured("seconds from cancel() to Cancelled in the task, p99", sorted(took)[ROUNDS * 99 // 100 - 1])
    until(lambda: fleet.metrics().total("rota_tasks_processed_total", outcome="cancelled") == ROUNDS)
    assert len(fleet.journal("start")) == ROUNDS
    assert fleet.books_balance()
