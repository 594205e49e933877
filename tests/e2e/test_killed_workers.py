"""Workers that are killed with SIGKILL during a task. The tasks start again, the pool recovers, and the counters are
correct.
"""

import functools
import os
import signal
import statistics
import time

from support.fleets import Fleets, Measure
from support.waiting import seconds_until, until

ROUNDS = 3


def test_a_task_and_its_pool_recover_within_a_second_after_a_worker_is_killed(
    fleets: Fleets, measured: Measure
) -> None:
    fleet = fleets.start(workers=4)
    to_start, to_be_whole = [], []
    for number in range(ROUNDS):
        first = fleet.hold(f"task{number}")
        killed_at = time.time()
        os.kill(first.pid, signal.SIGKILL)
        to_be_whole.append(seconds_until(functools.partial(fleet.is_whole_without, first.pid), "a whole pool"))
        _, second = fleet.wait_for("start", 2, label=f"task{number}")
        to_start.append(second.at - killed_at)
        assert (second.id, second.crashes) == (first.id, 1)
        fleet.release(f"task{number}")
        fleet.wait_for("end", label=f"task{number}")
    measured("seconds from SIGKILL to the task's next start, longest", max(to_start))
    measured("seconds from SIGKILL to a whole pool, longest", max(to_be_whole))
    assert statistics.median(to_start) < 1
    assert statistics.median(to_be_whole) < 1
    until(lambda: fleet.metrics().total("rota_tasks_recovered_total", reason="child_exit") == ROUNDS)
    assert fleet.metrics().total("rota_process_restarts_total", role="worker", reason="signal") == ROUNDS
    assert fleet.books_balance()


def test_the_run_time_of_a_killed_attempt_does_not_count_as_lag(fleets: Fleets) -> None:
    fleet = fleets.start(metrics={"lag_objective_seconds": 1})
    first = fleet.hold("task")
    until(lambda: time.time() - first.at > 2 * 1, "an attempt of twice the objective")
    os.kill(first.pid, signal.SIGKILL)
    fleet.wait_for("start", 2, label="task")
    fleet.release("task")
    until(lambda: fleet.client.status(first.id).state == "done", "its end")
    found = fleet.metrics()
    of_kind = {"queue": "default", "kind": "recovered"}
    assert found.total("rota_task_lag_seconds_count", **of_kind) == 1
    assert found.total("rota_task_lag_seconds_sum", **of_kind) < 1
    assert found.total("rota_queue_wait_seconds_sum", **of_kind) < 1
    assert found.total("rota_task_lag_objective_misses_total") == 0


def test_a_task_that_kills_its_worker_three_times_is_dead(fleets: Fleets) -> None:
    fleet = fleets.start()
    task_id = fleet.client.enqueue("kill_worker", queue="default").id
    until(lambda: fleet.client.status(task_id).state == "dead", "its death")
    assert len(fleet.journal("start", id=task_id)) == 3
    [dead] = fleet.rota_json("dead", "ls")
    assert (dead["id"], dead["task"]) == (task_id, "kill_worker")
    assert dead["death"]["reason"] == "crashed"
    assert "SIGKILL" in dead["death"]["error"]
    assert "SIGKILL" in fleet.rota("dead", "ls").stdout
    fleet.until_workers(2)
    fleet.client.enqueue("note", args=["after"], queue="default")
    fleet.wait_for("end", label="after")
    assert fleet.books_balance()
