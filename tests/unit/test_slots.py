"""Slots. Another process reads the data in a slot exactly as the child wrote it."""

import array
import fcntl
import mmap
import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.child.slot_layout import HEADER, METRICS_AT, NAME_BYTES, OUTCOMES_AT, PROCESS_ROW_BYTES, REGION, REGION_BYTES
from rota.child.slot_memory import SlotMemory, enter_slot
from rota.child.slot_record import TaskInSlot, TaskRecord, TaskTimes
from rota.child.slots import Phase, RecycleReason, Slot, pids_in
from rota.protocol.keys import UNKNOWN_TASK

_NAMES = st.text("abyzABYZ0189_.:-", min_size=1, max_size=128)
_TIMES = st.integers(min_value=0, max_value=2**62)
_ENTRIES = st.builds("{} {} d 1 2 0 0 0 0 -".format, _NAMES, _NAMES).map(str.encode)
_TASKS = st.builds(
    TaskInSlot, _ENTRIES, _NAMES, _TIMES, _TIMES, _TIMES, st.integers(0, 127), _TIMES, _TIMES, st.just(0)
)
_ENTRY = b"id queue i 1 2 0 0 0 0 -"

DEADLINE_SECONDS = 30.0
OUTCOMES_BYTES = METRICS_AT - OUTCOMES_AT


def _slot() -> Slot:
    return Slot(memoryview(bytearray(REGION_BYTES)), memoryview(bytearray(PROCESS_ROW_BYTES)))


def _start(record: TaskRecord, task: TaskInSlot) -> int:
    """Write a running task into the slot. Return its task number, which no other task in this slot gets."""
    return record.start(*task[:8])


def test_a_fresh_slot_is_empty() -> None:
    slot = _slot()
    assert (slot.nonce, slot.pid, slot.phase) == (0, 0, Phase.EMPTY)
    assert slot.record(0).current() is None
    assert slot.outcomes() == (0, b"")


def test_a_process_can_enter_only_the_slot_with_its_nonce() -> None:
    slot = _slot()
    slot.assign(nonce=7)
    assert not slot.enter(nonce=6, pid=100)
    assert (slot.pid, slot.phase) == (0, Phase.EMPTY)
    assert slot.enter(nonce=7, pid=101)
    assert (slot.pid, slot.phase) == (101, Phase.BOOTING)


def test_a_new_process_in_a_slot_inherits_neither_task_nor_outcomes() -> None:
    slot = _slot()
    slot.assign(nonce=1)
    slot.record(0).start(_ENTRY, "name", 1, 2)
    slot.add_outcomes(4, b"x")
    assert slot.request_watch()
    assert slot.grant_watch()
    slot.quiet_requested = True
    slot.recycle_reason = RecycleReason.MAX_RSS
    slot.assign(nonce=2)
    assert (slot.quiet_requested, slot.recycle_reason) == (False, RecycleReason.NONE)
    assert slot.record(0).current() is None
    assert slot.outcomes() == (0, b"")
    assert slot.request_watch()


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=REGION.record, max_size=REGION.record))
def test_a_slot_with_arbitrary_contents_can_be_read(words: list[int]) -> None:
    region = memoryview(bytearray(REGION_BYTES))
    region.cast("q")[: REGION.record] = memoryview(array.array("q", words))
    slot = Slot(region, memoryview(bytearray(PROCESS_ROW_BYTES)))
    assert (slot.phase in Phase, slot.recycle_reason in RecycleReason) == (True, True)


def _overwritten_slot() -> Slot:
    """Return the slot of a worker with a running task and unconfirmed outcomes. The whole slot has been overwritten."""
    region = memoryview(bytearray(REGION_BYTES))
    slot = Slot(region, memoryview(bytearray(PROCESS_ROW_BYTES)))
    slot.assign(nonce=7)
    slot.record(0).start(_ENTRY, "name", 1, 2, claimed_ns=1, unstarted=3)
    slot.add_outcomes(4, b"outcome")
    slot.held_lines.add(b"line\n")
    region[:] = b"\x77" * REGION_BYTES
    return slot


def test_nothing_is_read_from_an_overwritten_slot() -> None:
    slot = _overwritten_slot()
    assert not slot.is_intact
    assert (slot.record(0).current(), slot.record(0).times(), slot.has_worked) == (None, None, False)
    assert (slot.outcomes(), slot.held_up_by, slot.held_up()) == ((0, b""), 0, None)


def test_an_overwritten_slot_is_usable_by_the_next_process() -> None:
    slot = _overwritten_slot()
    slot.assign(nonce=8)
    assert slot.is_intact
    assert (slot.record(0).current(), slot.outcomes(), slot.recycle_reason) == (None, (0, b""), RecycleReason.NONE)
    assert slot.held_lines.left_behind() == b""
    assert slot.request_watch()
    assert slot.grant_watch()


@given(st.integers(-20, 20) | st.integers(-(2**63), 2**63 - 1))
def test_only_whole_held_log_lines_of_a_dead_process_are_read(size: int) -> None:
    slot = _slot()
    for _ in range(3):
        slot.held_lines.add(b"line\n")
    slot._words[HEADER.held_lines] = size
    left = slot.held_lines.left_behind()
    assert left == b"line\n" * min(max(0, size) // 5, 3)


class _Restless(TaskRecord):
    """A record in which another task seems to have started each time the task number is read."""

    looks = 1

    @property
    def number(self) -> int:
        self.looks += 2
        return self.looks


def test_reading_a_constantly_changing_task_gives_up_after_some_tries() -> None:
    region = memoryview(bytearray(REGION_BYTES))
    record = _Restless(0, region, region.cast("q"), memoryview(bytearray(PROCESS_ROW_BYTES)).cast("q"))
    assert (record.current(), record.times()) == (None, None)


def test_an_invalid_task_name_is_read_as_unknown() -> None:
    slot = _slot()
    slot.record(0).start(_ENTRY, "a\x1b[31m", 1, 2)
    assert slot.record(0).current() == TaskInSlot(_ENTRY, UNKNOWN_TASK, 1, 2, number=1)


def test_outcomes_read_from_a_slot_never_exceed_its_size() -> None:
    region = memoryview(bytearray(REGION_BYTES))
    region.cast("q")[0] = (1 << 62) - 1
    assert len(Slot(region, memoryview(bytearray(PROCESS_ROW_BYTES))).outcomes()[1]) == OUTCOMES_BYTES


def test_a_child_can_read_the_process_table_but_not_write_it() -> None:
    memory = SlotMemory.create(2)
    memory.slot(1).assign(nonce=3)
    assert enter_slot(memory.fd, 1, nonce=2, pid=77) is None
    entered = enter_slot(memory.fd, 1, nonce=3, pid=77)
    assert entered is not None
    memory.slot(1).renewed_ns = 5
    assert (entered.slot.renewed_ns, entered.slot.pid, memory.slot(1).pid) == (5, 77, 77)
    assert pids_in(entered.process_table)[:3] == [0, 77, 0]
    with pytest.raises(TypeError, match="read-only"):
        entered.slot.vacate()
    with pytest.raises(TypeError, match="read-only"):
        entered.slot.renewed_ns = 6


def test_the_heartbeat_of_a_slot_never_moves_backwards() -> None:
    slot = _slot()
    slot.heartbeat()
    first = slot.heartbeat_ns
    slot.heartbeat()
    assert slot.heartbeat_ns >= first > 0


def test_a_lease_renewal_does_not_change_the_heartbeat_in_the_slot() -> None:
    slot = _slot()
    slot.heartbeat()
    before = slot.heartbeat_ns
    slot.renewed_ns = 5
    assert (slot.renewed_ns, slot.heartbeat_ns) == (5, before)


@given(st.lists(_TASKS, min_size=1, max_size=5))
def test_the_current_task_of_a_slot_is_the_last_started_one(tasks: list[TaskInSlot]) -> None:
    slot = _slot()
    for task in tasks:
        number = _start(slot.record(0), task)
        assert slot.record(0).current() == task._replace(number=number)
        slot.record(0).end()
        assert slot.record(0).current() is None


def test_a_task_in_a_slot_is_shown_as_unknown_until_its_name_is_written() -> None:
    record = _slot().record(0)
    for task_index in range(3):
        entry = f"id{task_index} queue i 1 2 0 0 0 0 -".encode()
        number = record.start(entry, "", 1, 2)
        assert record.current() == TaskInSlot(entry, UNKNOWN_TASK, 1, 2, number=number)
        record.name("name")
        assert record.current() == TaskInSlot(entry, "name", 1, 2, number=number)
        record.end()
        assert record.current() is None


def test_the_id_and_the_queue_of_a_running_task_are_read_from_its_entry() -> None:
    task = TaskInSlot(_ENTRY, "name", 1, 2)
    assert (task.id, task.queue) == ("id", "queue")
    assert (TaskInSlot(b"torn", "", 1, 2).id, TaskInSlot(b"torn", "", 1, 2).queue) == ("torn", "")


def test_the_soft_and_hard_deadline_of_a_running_task_can_be_extended() -> None:
    record = _slot().record(0)
    for _ in range(3):  # a record has two copies, and three starts use both of them
        number = record.start(_ENTRY, "name", 1, 2)
        assert record.times() == TaskTimes(1, 2, 0, number)
        record.extend(99, 98)
        assert record.times() == TaskTimes(1, 99, 98, number)
        record.end()


def test_changing_the_quiet_request_does_not_change_the_recycle_reason() -> None:
    slot = _slot()
    slot.assign(nonce=3)
    seen = [(slot.quiet_requested, slot.recycle_reason)]
    slot.quiet_requested = True
    seen.append((slot.quiet_requested, slot.recycle_reason))
    slot.recycle_reason = RecycleReason.MAX_TASKS
    slot.quiet_requested = False
    seen.append((slot.quiet_requested, slot.recycle_reason))
    assert seen == [(False, RecycleReason.NONE), (True, RecycleReason.NONE), (False, RecycleReason.MAX_TASKS)]
    assert (slot.nonce, slot.phase, slot.prefetch_returned, slot.outcomes()) == (3, Phase.EMPTY, 0, (0, b""))


def test_task_names_and_entries_of_the_maximum_length_are_stored_whole() -> None:
    slot = _slot()
    number = "9" * 16
    entry = f"{'i' * 128} {'q' * 128} d {' '.join([number] * 6)} u".encode()
    task = TaskInSlot(entry, "n" * NAME_BYTES, -1, 2**62, 3, 127, 2**61, 2**60, number=1)
    _start(slot.record(0), task)
    assert slot.record(0).current() == task


def test_a_slot_shows_that_a_task_delays_prefetched_tasks_or_outcomes() -> None:
    slot = _slot()
    seen = [slot.held_up_by]
    slot.record(0).start(_ENTRY, "name", 1, 2, claimed_ns=1, unstarted=3)
    seen.append(slot.held_up_by)
    slot.record(0).end()
    seen.append(slot.held_up_by)
    slot.record(0).start(_ENTRY, "name", 1, 2, claimed_ns=1, unstarted=0)
    seen.append(slot.held_up_by)
    slot.record(0).end()
    slot.add_outcomes(4, b"outcome")
    slot.record(0).start(_ENTRY, "name", 1, 2, claimed_ns=1, unstarted=0)
    seen.append(slot.held_up_by)
    assert seen == [0, 1, 0, 0, 5]


def test_a_slot_with_delayed_work_shows_the_running_task_and_outcomes() -> None:
    slot = _slot()
    assert slot.held_up() is None
    task = TaskInSlot(_ENTRY, "name", 1, 2, claimed_ns=1, unstarted=3, number=1)
    slot.add_outcomes(4, b"outcome")
    _start(slot.record(0), task)
    assert slot.held_up() == (task, (4, b"outcome"))


def test_a_request_for_monitoring_is_repeated_until_it_is_granted() -> None:
    slot = _slot()
    assert not slot.grant_watch()
    assert [slot.request_watch(), slot.request_watch()] == [True, True]
    assert [slot.grant_watch(), slot.grant_watch()] == [True, False]
    assert not slot.request_watch()
    slot.end_watch()
    assert slot.request_watch()


def test_slots_do_not_share_data_and_are_numbered_from_zero() -> None:
    memory = SlotMemory.create(3)
    for number in range(3):
        memory.slot(number).assign(nonce=number + 10)
    assert [memory.slot(number).nonce for number in range(3)] == [10, 11, 12]
    for outside in (-1, 3):
        with pytest.raises(IndexError, match="of 3"):
            memory.slot(outside)


def test_the_shared_memory_of_slots_cannot_be_shrunk() -> None:
    memory = SlotMemory.create(2)
    assert fcntl.fcntl(memory.fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
    with pytest.raises(PermissionError):
        os.ftruncate(memory.fd, mmap.PAGESIZE)


def test_slots_that_were_never_used_take_no_memory() -> None:
    memory = SlotMemory.create(1024)
    memory.slot(1000).assign(nonce=1)
    assert os.fstat(memory.fd).st_blocks * 512 < REGION_BYTES


# Until it is killed, this program writes tasks as fast as possible. All fields of a task contain the same number.
_WRITER = """
import itertools, sys
from rota.child.slot_memory import enter_slot
from rota.child.slot_record import TaskInSlot
slot = enter_slot(int(sys.argv[1]), 1, nonce=9, pid=1).slot
record = slot.record(0)
for n in itertools.count(1):
    text = str(n) * (1 + n % 3)
    record.start(f"{text} {text} i".encode(), "", n, n)
    record.name(text)
    slot.heartbeat()
    record.end()
"""


def test_a_reader_of_a_slot_never_sees_a_half_written_task() -> None:
    memory = SlotMemory.create(2)
    slot = memory.slot(1)
    slot.assign(nonce=9)
    argv = [sys.executable, "-c", _WRITER, str(memory.fd)]
    with subprocess.Popen(argv, pass_fds=(memory.fd,)) as writer:
        try:
            tasks, beats = _read_many(slot, 3_000)
        finally:
            writer.send_signal(signal.SIGKILL)
    for task in tasks:
        assert task.id == task.queue == str(task.started_ns) * (1 + task.started_ns % 3)
        assert task.name in (task.id, UNKNOWN_TASK)
        assert task.started_ns == task.deadline_ns
    assert all(beats)
    assert [task.started_ns for task in tasks] == sorted(task.started_ns for task in tasks)


def _read_many(slot: Slot, wanted: int) -> tuple[list[TaskInSlot], list[int]]:
    tasks: list[TaskInSlot] = []
    beats: list[int] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(tasks) < wanted:
        assert time.monotonic() < deadline, f"only {len(tasks)} reads found a task"
        task = slot.record(0).current()
        if task is not None:
            tasks.append(task)
            beats.append(slot.heartbeat_ns)
    return tasks, beats


_SUICIDE = """
import os, signal, sys
from rota.child.slot_memory import enter_slot
from rota.child.slot_record import TaskInSlot
slot = enter_slot(int(sys.argv[1]), 0, nonce=1, pid=os.getpid()).slot
slot.add_outcomes(4, b"left")
slot.record(0).start(b"id-1 mail i", "send", 5, 6)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_task_and_outcomes_of_a_killed_process_can_still_be_read() -> None:
    memory = SlotMemory.create(1)
    memory.slot(0).assign(nonce=1)
    ended = subprocess.run([sys.executable, "-c", _SUICIDE, str(memory.fd)], pass_fds=(memory.fd,), check=False)
    assert ended.returncode == -signal.SIGKILL
    assert memory.slot(0).record(0).current() == TaskInSlot(b"id-1 mail i", "send", 5, 6, number=1)
    assert memory.slot(0).outcomes() == (4, b"left")
