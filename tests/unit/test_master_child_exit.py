"""The consequences of a child's death: the log lines, the task for which a crash is counted, and the return of held
tasks.
"""

import os
from typing import Any

import pytest

from rota.child.child_process import EXIT_DRAINED
from rota.child.slot_record import TaskInSlot
from rota.protocol.entry import parse_entry
from rota.protocol.keys import UNKNOWN_TASK
from rota.protocol.replies import Reaped
from rota.protocol.store import ALL_HELD, FIRST_HELD
from rota.protocol.wire import pack
from rota.telemetry import log_events
from rota.telemetry import metrics as m
from rota_supervisor.config.model import Config
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import Child, ChildState
from rota_supervisor.master.core.effects import AddToCounter, FreeSlot, ReapOwner
from rota_supervisor.master.core.master_events import Died, OwnerReaped, ProcessEnd, Ticked
from rota_supervisor.master.core.reasons import Reason
from support.cores import Core

TASK = TaskInSlot(b"id mail i 1 1 0 0 0 0 -", "send", 1_000_000_000, 0)
RAN, WAITED = (parse_entry(text) for text in (TASK.entry, b"other mail i 1 1 0 0 0 0 -"))
KILLED = ProcessEnd(9)
LEFT = ProcessEnd(EXIT_DRAINED << 8)


@pytest.fixture
def core() -> Core:
    return Core(Config(imports=("code",)))


@pytest.fixture
def worker(core: Core) -> Child:
    child = core.child(Role.WORKER, 8)
    child.owner = "node:8:1"
    child.pid = 77
    child.ready_at = 0.0
    return child


def _reap_after_death(core: Core, worker: Child, ending: ProcessEnd = KILLED, **seen: Any) -> ReapOwner:
    core.take(Died(worker.slot, worker.nonce, ending)._replace(**seen))
    (reap,) = core.done(ReapOwner)
    return reap


def test_when_a_worker_dies_its_running_task_is_charged_and_others_are_settled(core: Core, worker: Child) -> None:
    outcomes = pack(["done"])
    reap = _reap_after_death(core, worker, tasks=(TASK,), outcomes=outcomes)
    assert (reap.owner, reap.names, reap.settlements) == ("node:8:1", {"id": "send"}, outcomes)
    assert [task_id for task_id, _ in reap.blame.ran] == ["id"]
    assert worker.state is ChildState.EXITED
    assert core.done(FreeSlot) == []  # the slot is freed only after its owner has been reaped


def test_first_attempts_that_crash_are_counted_by_pool(core: Core, worker: Child) -> None:
    again = TASK._replace(entry=b"id mail r 1 1 0 1 0 0 -", number=3)
    core.take(Died(worker.slot, worker.nonce, KILLED, (TASK, again)))
    assert core.state.first_crashes == {"default": 1}


def test_after_a_death_with_a_corrupt_slot_the_first_held_task_is_charged(core: Core, worker: Child) -> None:
    reap = _reap_after_death(core, worker, slot_is_intact=False)
    assert [task_id for task_id, _ in reap.blame.ran] == [FIRST_HELD]
    assert reap.name_of("any") == UNKNOWN_TASK


def test_after_a_death_with_a_corrupt_slot_all_concurrent_tasks_are_charged(core: Core, worker: Child) -> None:
    worker.concurrency = 3
    reap = _reap_after_death(core, worker, slot_is_intact=False)
    assert [task_id for task_id, _ in reap.blame.ran] == [ALL_HELD]
    assert reap.name_of("any") == UNKNOWN_TASK


def test_no_task_is_charged_if_none_ran(core: Core, worker: Child) -> None:
    assert _reap_after_death(core, worker).blame.ran == ()


def test_reaping_the_owner_frees_the_slot_and_logs_each_task(core: Core, worker: Child) -> None:
    reap = _reap_after_death(core, worker, tasks=(TASK,))
    core.take(OwnerReaped(reap, Reaped(False, 0, (WAITED,), (RAN,))))
    assert core.done(FreeSlot) == [FreeSlot(8)]
    told = {event: fields for event, fields in core.logged if event.startswith("task.")}
    assert told[log_events.TASK_RECOVERED]["task_id"] == "other"
    assert (told[log_events.TASK_DEAD]["task_id"], told[log_events.TASK_DEAD]["task"]) == ("id", "send")
    counted = {effect.counter for effect in core.done(AddToCounter)}
    assert counted >= {m.TASKS_RECOVERED, m.TASKS_DEAD, m.TASKS_PROCESSED, m.PROCESS_RESTARTS}


def test_tasks_of_a_drained_worker_are_released_and_not_recovered(core: Core, worker: Child) -> None:
    worker.state = ChildState.DRAINING
    worker.why = Reason.SURPLUS
    reap = _reap_after_death(core, worker, LEFT)
    core.take(OwnerReaped(reap, Reaped(False, 0, (WAITED,), ())))
    names = [event for event, _ in core.logged if event.startswith("task.")]
    assert names == [log_events.TASK_RELEASED]
    assert m.TASKS_RECOVERED not in {effect.counter for effect in core.done(AddToCounter)}


def test_a_dead_child_that_held_no_tasks_is_replaced_at_once(core: Core) -> None:
    exporter = core.child(Role.EXPORTER, 1, "exporter")
    exporter.ready_at = 0.0
    core.take(Died(1, exporter.nonce, KILLED))
    assert core.done(FreeSlot) == [FreeSlot(1)]
    core.take(Ticked())
    assert [child.slot for child in core.state.children.of(Role.EXPORTER)] == [1]


def test_the_death_of_an_unknown_process_is_ignored(core: Core) -> None:
    assert core.take(Died(8, 99, KILLED)) == []


def test_the_status_shows_the_last_unexpected_death(core: Core, worker: Child) -> None:
    core.now = 5.0
    _reap_after_death(core, worker, ProcessEnd(os.EX_SOFTWARE << 8))
    kept = core.state.last_death
    assert kept is not None
    assert (kept["reason"], kept["at"]) == ("crash", 5.0)
