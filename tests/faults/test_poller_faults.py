"""Pollers are killed or stopped. In a separate test, a hundred thousand tasks become due at the same instant."""

import os
import signal
import time
from datetime import UTC, datetime, timedelta

import pytest
import redis

from rota import Call
from support.fleets import Fleets, Measure, RunningFleet
from support.masters import ON_ONE_SERVER
from support.slow_calls import calls_over_a_millisecond
from support.waiting import seconds_until, until

TASKS = 300
SPREAD_SECONDS = 4.0
LAG_SECONDS = 3.0
MANY = 100_000
SHORT_CALL_SECONDS = 0.010
# A generous limit, because a script seems slow while the kernel does not schedule the server.
GENEROUS_CALL_SECONDS = 0.25
DRAIN_SECONDS = 90.0


def pollers(fleet: RunningFleet) -> set[int]:
    return fleet.pids("poller", "ready")


@ON_ONE_SERVER
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_failed_pollers_are_replaced_and_due_tasks_still_start_on_time(
    fleets: Fleets, measured: Measure, number: signal.Signals
) -> None:
    fleet = fleets.start(workers=4, pollers=2)
    for task in range(TASKS):
        delay = 0.2 + SPREAD_SECONDS * task / TASKS
        fleet.client.enqueue("note", args=[f"{task}"], queue="default", delay=delay)
    until(lambda: len(fleet.journal("start")) > TASKS / 10, "they are on their way")
    before = until(lambda: pollers(fleet) if len(pollers(fleet)) == 2 else set(), "both pollers")
    for pid in before:
        os.kill(pid, number)
    took = seconds_until(lambda: len(pollers(fleet) - before) == 2, "both are replaced")
    fleet.wait_for("end", TASKS)
    lags = [line.at - line.due_at for line in fleet.journal("start")]
    measured(f"seconds until two pollers that got {number.name} are replaced", took)
    measured(f"most lag in seconds after {number.name}", max(lags))
    assert len({line.id for line in fleet.journal("start")}) == len(lags) == TASKS
    assert min(lags) >= 0
    assert max(lags) < LAG_SECONDS
    assert fleet.metrics().total("rota_task_early_starts_total") == 0
    assert fleet.metrics().total("rota_poller_promoted_total") <= TASKS
    assert fleet.books_balance()


def test_100_000_simultaneous_tasks_all_start_once_on_time(
    fleets: Fleets, redis_client: redis.Redis, measured: Measure
) -> None:
    fleet = fleets.start(workers=2)
    due = datetime.now(UTC) + timedelta(seconds=5 + 2 * seconds_to_enqueue_many(fleet))
    fleet.client.enqueue_many(Call("note", queue="default", at=due, id=f"many-{number}") for number in range(MANY))
    assert datetime.now(UTC) < due, "enqueueing took too long"
    with calls_over_a_millisecond(redis_client) as calls:
        until(lambda: fleet.journal("start", label=""), "the first start", DRAIN_SECONDS)
        left = backlogs(fleet)
    starts = fleet.journal("start", label="")
    assert len({line.id for line in starts}) == len(starts) == MANY
    assert min(line.at for line in starts) >= due.timestamp()
    measured("last of 100,000 started in s", max(line.at for line in starts) - due.timestamp())
    longest_seconds = max((call.seconds for call in calls), default=0.0)
    measured("longest script call in ms", longest_seconds * 1000)
    measured("script calls over 10 ms", sum(call.seconds > SHORT_CALL_SECONDS for call in calls))
    assert longest_seconds < GENEROUS_CALL_SECONDS
    assert left == sorted(left, reverse=True), "at no second was there more left than at the one before"
    assert fleet.metrics().total("rota_task_early_starts_total") == 0
    assert fleet.books_balance()


def seconds_to_enqueue_many(fleet: RunningFleet) -> float:
    """Estimate the number of seconds that it currently takes on this machine to enqueue MANY tasks. For the estimate, a
    fiftieth of this number is enqueued and run.
    """
    began = time.monotonic()
    fleet.client.enqueue_many(Call("note", ["rehearsal"], queue="default") for _ in range(MANY // 50))
    took = time.monotonic() - began
    fleet.wait_for("end", MANY // 50)
    return took * 50


def backlogs(fleet: RunningFleet) -> list[int]:
    """Count once per second how many tasks have not ended, until all of them have ended. Returns these counts."""
    left = [MANY]
    deadline = time.monotonic() + DRAIN_SECONDS
    while left[-1] and time.monotonic() < deadline:
        time.sleep(1)
        left.append(MANY - len(fleet.journal("end", label="")))
    assert not left[-1]
    return left
