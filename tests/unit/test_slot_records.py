"""Slots of workers that run several tasks. Each task has its own record, and is identified by its index and number."""

import os
import signal
import subprocess
import sys

import pytest

from rota.child.slot_layout import MAX_CONCURRENCY, OUTCOMES_AT, PROCESS_ROW_BYTES, REGION_BYTES
from rota.child.slot_memory import SlotMemory
from rota.child.slot_record import TaskInSlot, TaskTimes
from rota.child.slots import Slot

ENTRY = b"id queue i 1 2 0 0 0 0 -"


def slot_of(concurrency: int) -> Slot:
    slot = Slot(memoryview(bytearray(REGION_BYTES)), memoryview(bytearray(PROCESS_ROW_BYTES)))
    slot.assign(nonce=7, concurrency=concurrency)
    return slot


@pytest.mark.parametrize("concurrency", [1, 2, MAX_CONCURRENCY])
def test_each_concurrent_task_has_its_own_record_in_the_slot(concurrency: int) -> None:
    slot = slot_of(concurrency)
    for task_index in range(concurrency):
        assert (
            slot.record(task_index).start(b"id-%d q" % task_index, f"name-{task_index}", task_index, task_index + 1)
            == 1
        )
    expected = [
        TaskInSlot(b"id-%d q" % at, f"name-{at}", at, at + 1, task_index=at, number=1) for at in range(concurrency)
    ]
    assert slot.running() == expected
    assert slot.running_times() == tuple(TaskTimes(at, at + 1, 0, 1, at) for at in range(concurrency))


def test_a_slot_lists_only_the_tasks_that_are_running() -> None:
    slot = slot_of(5)
    for task_index in (1, 2, 4):
        slot.record(task_index).start(ENTRY, "name", 1, 2)
    slot.record(2).end()
    assert [task.task_index for task in slot.running()] == [1, 4]
    assert slot.numbers() == [0, 1, 2, 0, 1]


@pytest.mark.parametrize("task_index", [0, 1, 4])
def test_a_worker_counts_as_proven_once_any_of_its_tasks_has_ended(task_index: int) -> None:
    slot = slot_of(5)
    seen = [slot.has_worked]
    slot.record(task_index).start(ENTRY, "name", 1, 2)
    seen.append(slot.has_worked)
    slot.record(task_index).end()
    seen.append(slot.has_worked)
    assert seen == [False, False, True]


def test_a_cancellation_affects_only_one_run_of_one_concurrent_task() -> None:
    slot = slot_of(3)
    for task_index in range(3):
        slot.record(task_index).start(ENTRY, "name", 1, 2)
    slot.record(1).cancelled = slot.record(1).number
    assert [slot.record(task_index).is_cancelled() for task_index in range(3)] == [False, True, False]
    slot.record(1).end()
    slot.record(1).start(ENTRY, "name", 1, 2)
    assert not slot.record(1).is_cancelled()


def test_a_new_process_inherits_no_task_and_no_cancellation() -> None:
    slot = slot_of(3)
    for task_index in range(3):
        slot.record(task_index).start(ENTRY, "name", 1, 2)
        slot.record(task_index).cancelled = 1
    slot.assign(nonce=8, concurrency=3)
    assert (slot.running(), slot.has_worked) == ([], False)
    for task_index in range(3):
        slot.record(task_index).start(ENTRY, "name", 1, 2)
    assert not any(slot.record(task_index).is_cancelled() for task_index in range(3))


def test_a_new_process_with_less_concurrency_shows_no_earlier_tasks() -> None:
    slot = slot_of(3)
    for task_index in range(3):
        slot.record(task_index).start(ENTRY, "name", 1, 2)
    slot.assign(nonce=8)
    assert slot.running() == []


def test_a_slot_shows_the_task_whose_coroutine_is_executing() -> None:
    slot = slot_of(3)
    seen = [slot.stepping]
    for task_index in (0, 2):
        slot.record(task_index).enter_step()
        seen.append(slot.stepping)
        slot.record(task_index).leave_step()
    assert [*seen, slot.stepping] == [None, 0, 2, None]


def test_an_invalid_index_of_the_executing_task_is_ignored() -> None:
    slot = slot_of(3)
    slot.record(3).enter_step()  # any code in the worker may write this
    assert slot.stepping is None


def test_only_without_concurrency_a_task_heartbeat_counts_for_the_process() -> None:
    alone, beside = slot_of(1), slot_of(2)
    for slot in (alone, beside):
        slot.heartbeat(5)
        slot.record(0).heartbeat(6)
    assert (alone.heartbeat_ns, beside.heartbeat_ns) == (6, 5)


def test_a_concurrent_worker_reports_no_waiting_prefetched_tasks() -> None:
    slot = slot_of(2)
    slot.add_outcomes(4, b"outcome")
    slot.record(0).start(ENTRY, "name", 1, 2, claimed_ns=1, unstarted=3)
    assert slot.held_up_by == 0


def test_an_overwritten_slot_shows_no_tasks() -> None:
    region = memoryview(bytearray(REGION_BYTES))
    slot = Slot(region, memoryview(bytearray(PROCESS_ROW_BYTES)))
    slot.assign(nonce=7, concurrency=MAX_CONCURRENCY)
    slot.record(9).start(ENTRY, "name", 1, 2)
    region[:] = b"\x77" * REGION_BYTES
    assert (slot.running(), slot.running_times(), slot.numbers(), slot.has_worked) == ([], (), [], False)
    assert (slot.record(9).current(), slot.record(9).number) == (None, 0)


def test_task_records_of_a_slot_take_memory_only_if_used() -> None:
    memory = SlotMemory.create(2)
    memory.slot(0).assign(nonce=1)
    before = os.fstat(memory.fd).st_blocks * 512
    memory.slot(1).assign(nonce=1, concurrency=MAX_CONCURRENCY)
    memory.slot(1).record(100).start(ENTRY, "name", 1, 2)
    assert os.fstat(memory.fd).st_blocks * 512 - before < OUTCOMES_AT + 6 * 4096


_SUICIDE = """
import os, signal, sys
from rota.child.slot_memory import enter_slot
slot = enter_slot(int(sys.argv[1]), 0, nonce=1, pid=os.getpid()).slot
for place in (0, 7, 99):
    slot.record(place).start(b"id-%d mail i" % place, "send", 5, 6)
slot.record(7).end()
slot.record(99).enter_step()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_all_tasks_of_a_killed_concurrent_worker_can_still_be_read() -> None:
    memory = SlotMemory.create(1)
    memory.slot(0).assign(nonce=1, concurrency=100)
    ended = subprocess.run([sys.executable, "-c", _SUICIDE, str(memory.fd)], pass_fds=(memory.fd,), check=False)
    assert ended.returncode == -signal.SIGKILL
    assert [task.id for task in memory.slot(0).running()] == ["id-0", "id-99"]
    assert memory.slot(0).stepping == 99
