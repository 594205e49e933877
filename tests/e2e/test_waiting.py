"""Programs, tasks and commands that wait until tasks of a real fleet have ended."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

import rota
from support.fleet_process import DEADLINE_SECONDS
from support.fleets import Fleets, RunningFleet
from support.waiting import until

SECONDS = DEADLINE_SECONDS


def waits_end_with_the_task_that_another_worker_recovers(fleet: RunningFleet) -> None:
    with ThreadPoolExecutor(2) as threads:
        handle = fleet.client.enqueue("hold", args=["killed"], queue="default")
        started = threads.submit(handle.wait_started, SECONDS)
        ended = threads.submit(handle.wait, SECONDS)
        [first] = fleet.wait_for("start", label="killed")
        assert started.result(SECONDS).state == "running"
        os.kill(first.pid, signal.SIGKILL)
        fleet.wait_for("start", 2, label="killed")
        assert not ended.done()
        fleet.release("killed")
        status = ended.result(SECONDS)
    assert (status.state, status.crashes) == ("done", 1)


def a_wait_inside_a_task_ends_with_its_soft_limit(fleet: RunningFleet) -> None:
    handle = fleet.client.enqueue("wait_inside", args=["inner"], queue="default")
    fleet.wait_for("limit", label="inner")
    assert handle.wait(SECONDS).state == "done"
    fleet.release("inner")
    fleet.wait_for("end", label="inner")


def a_result_is_returned_unchanged(fleet: RunningFleet) -> None:
    assert fleet.client.enqueue("judge", args=[4], queue="default").result(SECONDS) == 12
    with pytest.raises(rota.TaskDead, match="ArithmeticError: 5 is odd") as raised:
        fleet.client.enqueue("judge", args=[5], queue="default").result(SECONDS)
    assert "ArithmeticError" in raised.value.death["traceback"]
    with pytest.raises(rota.ResultNotStored, match="the task does not store its result"):
        fleet.client.enqueue("note", queue="default").result(SECONDS)


def the_command_line_waits(fleet: RunningFleet) -> None:
    done = fleet.rota("task", "enqueue", "judge", "4", "--queue", "default", "--wait")
    assert (done.returncode, done.stdout) == (0, "12\n")
    output = json.loads(fleet.rota("--json", "task", "enqueue", "note", "--queue", "default", "--wait").stdout)
    assert output == {"id": output["id"], "duplicate": False, "state": "done"}
    dead = fleet.rota("task", "enqueue", "judge", "5", "--queue", "default", "--wait", "--timeout", "60")
    assert (dead.returncode, dead.stdout) == (1, "")
    assert "is dead: attempt 1 of 1: ArithmeticError: 5 is odd" in dead.stderr
    late = fleet.rota("task", "enqueue", "note", "--queue", "default", "--delay", "600", "--wait", "--timeout", "0.1")
    assert (late.returncode, late.stdout) == (1, "")
    assert "has not ended within 0.1 s" in late.stderr
    assert fleet.rota("task", "enqueue", "note", "--queue", "default", "--timeout", "1").returncode == 2


def test_a_wait_ends_with_the_task_in_a_worker_a_task_and_the_command_line(fleets: Fleets) -> None:
    fleet = fleets.start()
    waits_end_with_the_task_that_another_worker_recovers(fleet)
    until(fleet.is_whole, "both workers")
    a_wait_inside_a_task_ends_with_its_soft_limit(fleet)
    a_result_is_returned_unchanged(fleet)
    the_command_line_waits(fleet)
    assert fleet.books_balance()
