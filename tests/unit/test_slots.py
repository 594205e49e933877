"""Slots: what one process writes, another reads whole."""

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

from rota.child.slots import NAME_BYTES, OUTCOMES_BYTES, REGION_BYTES, CurrentTask, Phase, Slot, SlotMemory

_NAMES = st.text("abyzABYZ0189_.:-", min_size=1, max_size=128)
_TIMES = st.integers(min_value=0, max_value=2**62)
_TASKS = st.builds(CurrentTask, _NAMES, _NAMES, _NAMES, _TIMES, _TIMES)

DEADLINE_SECONDS = 30.0


def _slot() -> Slot:
    return Slot(memoryview(bytearray(REGION_BYTES)))


def test_a_fresh_slot_is_empty() -> None:
    slot = _slot()
    assert (slot.nonce, slot.pid, slot.phase) == (0, 0, Phase.EMPTY)
    assert slot.current_task() is None
    assert slot.outcomes() == (0, b"")


def test_a_process_enters_only_the_life_it_was_made_for() -> None:
    slot = _slot()
    slot.begin(nonce=7)
    assert not slot.enter(nonce=6, pid=100)
    assert (slot.pid, slot.phase) == (0, Phase.EMPTY)
    assert slot.enter(nonce=7, pid=101)
    assert (slot.pid, slot.phase) == (101, Phase.BOOTING)


def test_a_new_life_inherits_neither_task_nor_outcomes() -> None:
    slot = _slot()
    slot.begin(nonce=1)
    slot.start_task(CurrentTask("id", "name", "queue", 1, 2))
    slot.put_outcomes(4, b"x")
    slot.begin(nonce=2)
    assert slot.current_task() is None
    assert slot.outcomes() == (0, b"")


def test_a_beat_only_moves_forward() -> None:
    slot = _slot()
    slot.beat()
    first = slot.beat_ns
    slot.beat()
    assert slot.beat_ns >= first > 0


def test_the_lease_is_renewed_by_another_word_than_the_beat() -> None:
    slot = _slot()
    slot.beat()
    beat = slot.beat_ns
    slot.renewed_ns = 5
    assert (slot.renewed_ns, slot.beat_ns) == (5, beat)


@given(st.lists(_TASKS, min_size=1, max_size=5))
def test_the_current_task_is_what_was_started_last(tasks: list[CurrentTask]) -> None:
    slot = _slot()
    for task in tasks:
        slot.start_task(task)
        assert slot.current_task() == task
        slot.end_task()
        assert slot.current_task() is None


def test_what_becomes_known_of_a_task_later_is_published_without_a_gap() -> None:
    slot = _slot()
    for number in range(3):
        slot.start_task(CurrentTask(f"id{number}", "_unknown", "queue", 1, 2))
        named = CurrentTask(f"id{number}", "name", "queue", 1, 3)
        slot.start_task(named)
        assert slot.current_task() == named
        slot.end_task()
        assert slot.current_task() is None


def test_a_deadline_can_be_moved_while_the_task_runs() -> None:
    slot = _slot()
    slot.start_task(CurrentTask("id", "name", "queue", 1, 2))
    slot.extend_task(99)
    assert slot.current_task() == CurrentTask("id", "name", "queue", 1, 99)


def test_a_name_of_the_greatest_length_is_kept_whole() -> None:
    slot = _slot()
    task = CurrentTask("i" * NAME_BYTES, "n" * NAME_BYTES, "q" * NAME_BYTES, -1, 2**62)
    slot.start_task(task)
    assert slot.current_task() == task


@given(st.integers(min_value=1, max_value=500), st.binary(max_size=2000))
def test_outcomes_are_read_back_as_they_were_left(count: int, data: bytes) -> None:
    slot = _slot()
    slot.put_outcomes(count, data)
    assert slot.outcomes() == (count, data)


def test_outcomes_that_do_not_fit_leave_none_rather_than_old_ones() -> None:
    slot = _slot()
    slot.put_outcomes(4, b"x" * OUTCOMES_BYTES)
    assert slot.outcomes()[0] == 4
    slot.put_outcomes(8, b"x" * (OUTCOMES_BYTES + 1))
    assert slot.outcomes() == (0, b"")


def test_outcomes_and_metrics_do_not_touch_each_other() -> None:
    slot = _slot()
    slot.metrics[:8] = b"\xff" * 8
    slot.put_outcomes(4, b"x" * OUTCOMES_BYTES)
    assert bytes(slot.metrics[:8]) == b"\xff" * 8
    assert len(slot.metrics) + OUTCOMES_BYTES < REGION_BYTES


def test_slots_are_apart_and_numbered_from_zero() -> None:
    memory = SlotMemory.create(3)
    for number in range(3):
        memory.slot(number).begin(nonce=number + 10)
    assert [memory.slot(number).nonce for number in range(3)] == [10, 11, 12]
    for outside in (-1, 3):
        with pytest.raises(IndexError, match="of 3"):
            memory.slot(outside)


def test_the_memory_cannot_be_shrunk_under_a_reader() -> None:
    memory = SlotMemory.create(2)
    assert fcntl.fcntl(memory.fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
    with pytest.raises(PermissionError):
        os.ftruncate(memory.fd, mmap.PAGESIZE)


def test_untouched_slots_cost_nothing() -> None:
    memory = SlotMemory.create(1024)
    memory.slot(1000).begin(nonce=1)
    assert os.fstat(memory.fd).st_blocks * 512 < REGION_BYTES


# Writes tasks of which every field says the same number, as fast as it can, until it is killed.
_WRITER = """
import itertools, sys
from rota.child.slots import CurrentTask, SlotMemory
slot = SlotMemory.attach(int(sys.argv[1])).slot(1)
assert slot.enter(nonce=9, pid=1)
for n in itertools.count(1):
    text = str(n) * (1 + n % 3)
    slot.start_task(CurrentTask(text, text, text, n, n))
    slot.beat()
    slot.end_task()
"""


def test_a_reader_never_sees_half_of_a_task_while_another_process_writes() -> None:
    memory = SlotMemory.create(2)
    slot = memory.slot(1)
    slot.begin(nonce=9)
    argv = [sys.executable, "-c", _WRITER, str(memory.fd)]
    with subprocess.Popen(argv, pass_fds=(memory.fd,)) as writer:
        try:
            tasks, beats = _read_many(slot, 3_000)
        finally:
            writer.send_signal(signal.SIGKILL)
    for task in tasks:
        assert task.id == task.name == task.queue == str(task.started_ns) * (1 + task.started_ns % 3)
        assert task.started_ns == task.deadline_ns
    assert all(beats)
    assert [task.started_ns for task in tasks] == sorted(task.started_ns for task in tasks)


def _read_many(slot: Slot, wanted: int) -> tuple[list[CurrentTask], list[int]]:
    tasks: list[CurrentTask] = []
    beats: list[int] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(tasks) < wanted:
        assert time.monotonic() < deadline, f"only {len(tasks)} reads found a task"
        task = slot.current_task()
        if task is not None:
            tasks.append(task)
            beats.append(slot.beat_ns)
    return tasks, beats


_SUICIDE = """
import os, signal, sys
from rota.child.slots import CurrentTask, SlotMemory
slot = SlotMemory.attach(int(sys.argv[1])).slot(0)
slot.enter(nonce=1, pid=os.getpid())
slot.put_outcomes(4, b"left")
slot.start_task(CurrentTask("id-1", "send", "mail", 5, 6))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_still_there_to_read() -> None:
    memory = SlotMemory.create(1)
    memory.slot(0).begin(nonce=1)
    ended = subprocess.run([sys.executable, "-c", _SUICIDE, str(memory.fd)], pass_fds=(memory.fd,), check=False)
    assert ended.returncode == -signal.SIGKILL
    assert memory.slot(0).current_task() == CurrentTask("id-1", "send", "mail", 5, 6)
    assert memory.slot(0).outcomes() == (4, b"left")
