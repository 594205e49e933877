"""Soft time limits and cancellations in a worker process. They end the task and have no other effect. The test sends
the signal in place of the master.
"""

import os
import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from rota.child.child_process import SOFT_LIMIT_SIGNAL
from rota.child.child_settings import LogSettings, TaskOverride
from rota.child.slots import Phase, boottime_ns
from rota.protocol.replies import CancelStatus
from support.child_harness import Child, ChildHarness, settings_for
from support.waiting import DEADLINE_SECONDS, until


def _interrupt(harness: ChildHarness, worker: Child) -> None:
    """Wait until the task has exceeded its soft deadline, which is in the worker's slot. Then send the worker the
    signal that the master would send.
    """
    until(lambda: "staying" in harness.ran())
    task = worker.slot.record(0).current()
    assert task is not None
    assert 0 < task.soft_deadline_ns - task.started_ns < task.deadline_ns - task.started_ns
    until(lambda: boottime_ns() > task.soft_deadline_ns)
    worker.process.send_signal(SOFT_LIMIT_SIGNAL)


@pytest.mark.parametrize("name", ["overstay", "overstay_in_loop"])
def test_a_task_over_its_soft_limit_is_done_if_it_returns_and_else_fails(harness: ChildHarness, name: str) -> None:
    worker = harness.start(settings_for(harness.server, harness.namespace)).until_phase(Phase.IDLE)
    ending = harness.enqueue(name, "ends")
    _interrupt(harness, worker)
    until(lambda: harness.state(ending) == "done")
    assert harness.ran()[1:] == ["staying", "told", "ended early"]
    harness.connection.execute("DEL", f"{harness.namespace}:ran")
    raising = harness.enqueue(name, "raises")
    _interrupt(harness, worker)
    until(lambda: harness.state(raising) == "dead")
    assert harness.ran()[:2] == ["staying", "told"]
    record = harness.death_record(raising)
    assert (record["reason"], "TimeLimit: the soft time limit has passed" in record["error"]) == ("retries", True)
    assert [line["outcome"] for line in harness.events("task.done")] == ["done"]


def test_a_task_that_sends_heartbeats_is_not_interrupted_by_signals(harness: ChildHarness) -> None:
    worker = harness.start(settings_for(harness.server, harness.namespace)).until_phase(Phase.IDLE)
    task_id = harness.enqueue("beat_on")
    _rain(worker, lambda: harness.state(task_id) == "done")
    assert harness.ran()[-1] == "beaten"
    assert harness.run(harness.store.audit()).ended["done"] == 1


def test_a_short_soft_time_limit_wakes_the_master_when_the_task_starts(harness: ChildHarness) -> None:
    settings = settings_for(
        harness.server, harness.namespace, overrides={"hold": TaskOverride(soft_time_limit_seconds=0.25)}
    )
    worker = harness.start(settings).until_phase(Phase.IDLE)
    os.eventfd_read(harness.bell)
    harness.enqueue("hold", "a")
    until(lambda: "start a 1" in harness.ran())
    task = worker.slot.record(0).current()
    assert task is not None
    assert task.soft_deadline_ns - task.started_ns == 250_000_000
    assert os.eventfd_read(harness.bell) == 1
    harness.release()


def _rain(worker: Child, is_over: Callable[[], bool], cancel: Callable[[], None] = lambda: None) -> int:
    """Send a few thousand signals per second, at random times, until `is_over` returns true. If there were more
    signals, the worker could do nothing else. Returns the number of signals that were sent.
    """
    sent, deadline = 0, time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline and (sent % 200 or not is_over()):
        cancel()
        worker.process.send_signal(SOFT_LIMIT_SIGNAL)
        time.sleep(random.random() * 0.0003)
        sent += 1
    return sent


def _check_cancels(answers: dict[str, CancelStatus], ended: int, cancelled: list[dict[str, Any]]) -> None:
    """Check how the cancelled tasks ended. A task that was running must have ended with an attempt, and a task that was
    waiting must have ended without one.
    """
    named, waited = _ids_with(answers, CancelStatus.RUNNING), _ids_with(answers, CancelStatus.CANCELLED)
    assert len(waited) <= ended <= len(waited) + len(named)
    # If a claim drops a cancelled task, the log line about the task has no attempt.
    attempts = [line for line in cancelled if "attempt" in line]
    assert {line["task_id"] for line in attempts} <= named
    assert {line["task_id"] for line in cancelled if line not in attempts} <= waited
    assert any(line["error"].startswith("Cancelled") for line in attempts)


def _ids_with(answers: Mapping[str, CancelStatus], word: CancelStatus) -> set[str]:
    return {task_id for task_id, answer in answers.items() if answer is word}


# Cancellation


@pytest.mark.parametrize("name", ["linger", "linger_in_loop"])
def test_cancelled_running_task_does_not_affect_the_next_one(harness: ChildHarness, name: str) -> None:
    worker = harness.start(settings_for(harness.server, harness.namespace)).until_phase(Phase.IDLE)
    for number in range(3):
        task_id = harness.enqueue(name, str(number))
        until(lambda label=number: f"lingering {label}" in harness.ran())  # type: ignore[misc]  # a default
        harness.run(harness.store.cancel(task_id))
        worker.slot.record(0).cancelled = worker.slot.record(0).number
        worker.process.send_signal(SOFT_LIMIT_SIGNAL)
        harness.enqueue("note", f"after {number}")
        until(lambda done=number + 1: harness.run(harness.store.audit()).ended["done"] == done)  # type: ignore[misc]
    audit = harness.run(harness.store.audit())
    assert (audit.ended["cancelled"], audit.live, audit.missing) == (3, 0, 0)
    assert sum(line.startswith("lingering") for line in harness.ran()) == 3


# Thousands of interrupts per second


def test_many_signals_end_tasks_but_never_corrupt_connections(
    harness: ChildHarness,
) -> None:
    worker = harness.start(
        settings_for(harness.server, harness.namespace, "hurried", log=LogSettings(tasks="failures"))
    )
    worker.until_phase(Phase.IDLE)
    harness.start_poller()  # the poller promotes the tasks that wait for their next attempt
    ids = [harness.enqueue("hurry", str(number), queue="hurried") for number in range(400)]
    answers: dict[str, CancelStatus] = {}

    def cancel_some() -> None:
        """Cancel every fifth task while it runs, as the master does. When the call arrives, the task may already be
        done, or may wait for its next attempt. A waiting task ends at once.
        """
        running = worker.slot.held_up()
        if running is None or running.task.id in answers or ids.index(running.task.id) % 5:
            return
        answer = answers[running.task.id] = harness.run(harness.store.cancel(running.task.id))
        if answer is CancelStatus.RUNNING:
            worker.slot.record(0).cancelled = running.task.number

    def ended() -> int:
        audit = harness.run(harness.store.audit())
        return audit.ended["done"] + audit.ended["cancelled"]

    sent = _rain(worker, lambda: ended() == 400, cancel_some)
    worker.terminate()
    assert worker.exit_code() == 0
    audit = harness.run(harness.store.audit())
    later = harness.connection.execute("LLEN", harness.store.keys.ready_lane("later"))
    assert (audit.missing, audit.accepted, audit.live) == (0, 400 + later, later)
    retried = harness.events("task.retried")
    assert {line["error"].partition(":")[0] for line in retried} == {"TimeLimit"}
    assert len(retried) > 20, sent
    _check_cancels(answers, audit.ended["cancelled"], harness.events("task.cancelled"))
    # There are no other events, because the worker lost no connection, settled no task twice, and forgot no claimed
    # task.
    said = {line["event"] for line in harness.events() if line["slot"] == 1}
    assert said == {"worker.started", "task.retried", "task.cancelled"}
