"""The soft time limit in a worker process: what becomes of the task, and that nothing else is harmed.

The signal is the master's to send; here the test sends it.
"""

import os
import random
import time
from collections.abc import Callable

import pytest

from child_harness import Child, ChildHarness, settings_for
from rota.child.settings import LogSettings, TaskOverride
from rota.child.signals import SOFT_LIMIT_SIGNAL
from rota.child.slots import Phase, boottime_ns
from waiting import DEADLINE_SECONDS, until


def _interrupt(harness: ChildHarness, worker: Child) -> None:
    """As the master does: once the soft deadline in the slot has passed."""
    until(lambda: "staying" in harness.ran())
    task = worker.slot.current_task()
    assert task is not None
    assert 0 < task.soft_deadline_ns - task.started_ns < task.deadline_ns - task.started_ns
    until(lambda: boottime_ns() > task.soft_deadline_ns)
    worker.process.send_signal(SOFT_LIMIT_SIGNAL)


@pytest.mark.parametrize("name", ["overstay", "overstay_in_loop"])
def test_a_task_over_its_soft_limit_has_failed_unless_it_ends_early(harness: ChildHarness, name: str) -> None:
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
    epitaph = harness.epitaph(raising)
    assert (epitaph["reason"], "TimeLimit: the soft time limit has passed" in epitaph["error"]) == ("retries", True)
    assert [line["outcome"] for line in harness.events("task.done")] == ["done"]


def test_a_task_that_beats_is_not_over_its_soft_limit(harness: ChildHarness) -> None:
    worker = harness.start(settings_for(harness.server, harness.namespace)).until_phase(Phase.IDLE)
    task_id = harness.enqueue("beat_on")
    _rain(worker, lambda: harness.state(task_id) == "done")
    assert harness.ran()[-1] == "beaten"
    assert harness.run(harness.store.audit()).done == 1


def test_the_operators_soft_limit_is_in_the_slot_and_a_short_one_rings_the_master(harness: ChildHarness) -> None:
    settings = settings_for(
        harness.server, harness.namespace, overrides={"hold": TaskOverride(soft_time_limit_seconds=0.25)}
    )
    worker = harness.start(settings).until_phase(Phase.IDLE)
    os.eventfd_read(harness.bell)
    harness.enqueue("hold", "a")
    until(lambda: "start a 1" in harness.ran())
    task = worker.slot.current_task()
    assert task is not None
    assert task.soft_deadline_ns - task.started_ns == 250_000_000
    assert os.eventfd_read(harness.bell) == 1
    harness.release()


def _rain(worker: Child, is_over: Callable[[], bool]) -> int:
    """Signals at random times, some thousands a second: more, and the worker would do nothing but hear them."""
    sent, deadline = 0, time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline and (sent % 200 or not is_over()):
        worker.process.send_signal(SOFT_LIMIT_SIGNAL)
        time.sleep(random.random() * 0.0003)
        sent += 1
    return sent


def test_a_rain_of_signals_ends_tasks_and_never_harms_what_the_worker_and_the_client_say_to_the_server(
    harness: ChildHarness,
) -> None:
    worker = harness.start(
        settings_for(harness.server, harness.namespace, "hurried", log=LogSettings(tasks="failures"))
    )
    worker.until_phase(Phase.IDLE)
    harness.start_poller()  # it brings the retries back
    for number in range(400):
        harness.enqueue("hurry", str(number), queue="hurried")
    sent = _rain(worker, lambda: harness.run(harness.store.audit()).done == 400)
    worker.terminate()
    assert worker.exit_code() == 0
    audit = harness.run(harness.store.audit())
    later = harness.connection.execute("LLEN", harness.store.keys.ready_lane("later"))
    assert (audit.missing, audit.accepted, audit.live) == (0, 400 + later, later)
    retried = harness.events("task.retried")
    assert {line["error"].partition(":")[0] for line in retried} == {"TimeLimit"}
    assert len(retried) > 20, sent
    # Neither lost its connection, nor was anything settled twice, or claimed and forgotten.
    assert {line["event"] for line in harness.events() if line["slot"] == 1} == {"worker.started", "task.retried"}
