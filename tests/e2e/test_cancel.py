"""Running tasks are cancelled from outside. Cancelled is raised in the task at once, or its process is killed."""

import functools
import statistics
import time

import pytest
import redis

import rota
from support.fleets import Fleets, Measure, RunningFleet
from support.waiting import until

ROUNDS = 100


@pytest.fixture
def fleet(fleets: Fleets) -> RunningFleet:
    return fleets.start()


def _start(fleet: RunningFleet, label: str, task: str = "linger", how: str = "ends") -> rota.Handle[None]:
    args = [label] if task == "linger_in_loop" else [label, how]
    handle = fleet.client.enqueue(task, args=args, queue="default")
    fleet.wait_for("start", label=label)
    return handle


def _until_ended(handle: rota.Handle[None]) -> None:
    until(lambda: handle.status().state not in ("running", "ready", "scheduled"), "its end")


def test_a_running_task_is_cancelled_at_once_and_not_retried(fleet: RunningFleet, measured: Measure) -> None:
    took = []
    for number in range(ROUNDS):
        handle = _start(fleet, f"task{number}", "linger_in_loop" if number % 4 == 0 else "linger")
        requested_at = time.time()
        assert handle.cancel() == "running"
        [line] = fleet.wait_for("cancelled", label=f"task{number}")
        took.append(line.at - requested_at)
        _until_ended(handle)
    measured("seconds from cancel() to Cancelled in the task, median", statistics.median(took))
    measured("seconds from cancel() to Cancelled in the task, p99", sorted(took)[ROUNDS * 99 // 100 - 1])
    until(lambda: fleet.metrics().total("rota_tasks_processed_total", outcome="cancelled") == ROUNDS)
    assert len(fleet.journal("start")) == ROUNDS
    assert fleet.books_balance()


def test_a_cancelled_task_may_still_return_and_frees_its_key(fleet: RunningFleet) -> None:
    unique = functools.partial(fleet.client.enqueue, "linger", args=["unique"], queue="default", unique=True)
    first = unique()
    fleet.wait_for("start", label="unique")
    assert unique().duplicate
    first.cancel()
    _until_ended(first)
    second = unique()
    assert not second.duplicate
    second.cancel()
    _until_ended(second)
    handles = {how: _start(fleet, how, how=how) for how in ("fails", "returns")}
    for how, handle in handles.items():
        handle.cancel()
        fleet.wait_for("cancelled", label=how)
        _until_ended(handle)
    audit = fleet.rota_json("audit")
    assert (audit["cancelled"], audit["done"], audit["live"]) == (3, 1, 0)
    assert all(len(fleet.journal("start", label=how)) == 1 for how in handles)


def test_a_task_that_ignores_its_cancellation_is_killed(fleet: RunningFleet) -> None:
    handle = _start(fleet, "stubborn", how="goes on")
    before = fleet.workers()
    handle.cancel()
    fleet.wait_for("cancelled", label="stubborn")
    requested_at = time.time()
    result = fleet.rota("task", "cancel", handle.id, "--kill-after", "0.5")
    assert result.returncode == 0, result.stderr
    assert "killed if it has not ended 0.5 s later" in result.stderr
    _until_ended(handle)
    assert time.time() - requested_at > 0.5
    [killed] = until(lambda: fleet.log("worker.killed"))
    assert (killed["reason"], killed["limit"], killed["limit_value"]) == ("cancelled", "kill_after", 0.5)
    assert "linger (" in killed["stack"]
    until(lambda: fleet.is_whole() and fleet.workers() != before, "another worker in its place")
    assert fleet.metrics().total("rota_process_restarts_total", role="worker", reason="cancelled") == 1
    assert len(fleet.journal("start", label="stubborn")) == 1
    assert len(fleet.log("task.cancel_requested")) == 1
    audit = fleet.rota_json("audit")
    assert (audit["cancelled"], audit["live"], audit["missing"]) == (1, 0, 0)


def test_cancelling_a_task_does_not_affect_the_next_one_of_its_worker(fleets: Fleets) -> None:
    fleet = fleets.start(workers=1)
    for number in range(20):
        handle = _start(fleet, f"first{number}")
        handle.cancel()
        handle.cancel()
        fleet.client.enqueue("spin", args=[f"next{number}", 0.02], queue="default")
        fleet.wait_for("end", label=f"next{number}")


# Lost orders


def _kill_connections(client: redis.Redis, name: str) -> int:
    """Close the server's connections to the clients with this name. Returns how many connections were closed."""
    named = [each["id"] for each in client.client_list() if each["name"] == name]
    return sum(client.client_kill_filter(_id=number) for number in named)


def test_a_cancel_during_a_lost_connection_arrives_after_reconnecting(
    fleet: RunningFleet, redis_client: redis.Redis
) -> None:
    for number in range(5):
        handle = _start(fleet, f"task{number}", how="goes on")
        until(lambda: _kill_connections(redis_client, "rota:orders") == 1)
        handle.cancel(kill_after=0.1)
        fleet.wait_for("cancelled", label=f"task{number}")
        _until_ended(handle)  # the task is killed as `kill_after` requests
    until(lambda: not redis_client.keys(f"{{{fleet.namespace}}}:orders:*"), "no order is left")
    until(fleet.is_whole)


def test_a_lost_cancel_order_takes_effect_at_the_next_renewal(fleets: Fleets, redis_client: redis.Redis) -> None:
    fleet = fleets.start(lease={"seconds": 4, "renew_seconds": 0.5})
    node = fleet.status()["node"]
    redis_client.set(f"{{{fleet.namespace}}}:orders:{node}", "no list, so that no order reaches the master")
    handle = _start(fleet, "task")
    assert handle.cancel() == "running"
    fleet.wait_for("cancelled", label="task")
    _until_ended(handle)
    redis_client.delete(f"{{{fleet.namespace}}}:orders:{node}")
    later = _start(fleet, "later", how="goes on")
    later.cancel(kill_after=0.1)
    _until_ended(later)
    until(fleet.is_whole)


def test_a_cancel_order_for_a_dead_node_expires(fleets: Fleets, redis_client: redis.Redis) -> None:
    fleet = fleets.start(lease={"seconds": 4, "renew_seconds": 1})
    handle = _start(fleet, "task")
    fleet.kill_all()
    assert handle.cancel() == "running"
    [orders] = redis_client.keys(f"{{{fleet.namespace}}}:orders:*")
    assert 0 < redis_client.ttl(orders) <= 60
