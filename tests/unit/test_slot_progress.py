"""Progress in a slot. A reader gets a text completely or not at all, whichever thread or forked copy of a task writes
it.
"""

import os
import signal
import subprocess
import sys
import time

import pytest

from rota.child.slot_layout import (
    MAX_CONCURRENCY,
    PROCESS_ROW_BYTES,
    PROGRESS_BYTES,
    RECORD,
    REGION_BYTES,
    WORD,
    record_at,
)
from rota.child.slot_memory import SlotMemory
from rota.child.slot_record import TaskRecord
from rota.child.slots import Slot
from rota.protocol.progress import LONGEST

ENTRY = b"a queue i 1 2 0 0 0 0 -"
NEXT = b"b queue i 1 2 0 0 0 0 -"
DEADLINE_SECONDS = 30.0


class Place:
    """The record of a running task, and the slot that contains the record."""

    def __init__(self, task_index: int = 0, entry: bytes = ENTRY) -> None:
        self.region = memoryview(bytearray(REGION_BYTES))
        self.slot = Slot(self.region, memoryview(bytearray(PROCESS_ROW_BYTES)))
        self.slot.assign(nonce=7, concurrency=task_index + 1)
        self.record = self.slot.record(task_index)
        self.record.start(entry, "name", 1, 2)


@pytest.fixture(params=[0, 1, MAX_CONCURRENCY - 1])
def place(request: pytest.FixtureRequest) -> Place:
    return Place(request.param)


def test_the_latest_progress_of_a_task_is_read(place: Place) -> None:
    record = place.record
    assert (record.has_progress, record.progress_of(ENTRY)) == (False, b"")
    for text in (b"first", b"x" * LONGEST, b"last"):
        record.report_progress(ENTRY, text)
        assert (record.has_progress, record.progress_of(ENTRY)) == (True, text)


def test_progress_does_not_carry_over_to_the_next_attempt(place: Place) -> None:
    record = place.record
    record.report_progress(ENTRY, b"5")
    record.end()
    assert record.progress_of(ENTRY) == b""
    record.start(NEXT, "name", 1, 2)
    assert (record.progress_of(ENTRY), record.progress_of(NEXT)) == (b"", b"")
    record.end()
    place.slot.assign(nonce=8, concurrency=place.slot.concurrency)
    # The first task of the next process has the same number as the first task of the previous process.
    record.start(ENTRY, "name", 1, 2)
    record.report_progress(ENTRY, b"6")
    place.slot.assign(nonce=9, concurrency=place.slot.concurrency)
    record.start(ENTRY, "name", 1, 2)
    assert record.progress_of(ENTRY) == b""


def test_a_finished_task_cannot_report_progress_for_the_next() -> None:
    record = Place(entry=NEXT).record
    record.report_progress(NEXT, b"5")
    record.report_progress(ENTRY, b"99")
    assert record.progress_of(NEXT) == b"5"
    record.end()
    record.report_progress(NEXT, b"6")
    record.start(ENTRY, "name", 1, 2)
    assert record.progress_of(ENTRY) == b""


@pytest.mark.parametrize("byte", [b"\x00", b"\x77", b"\xff"])
def test_corrupt_progress_in_a_slot_is_read_as_none(place: Place, byte: bytes) -> None:
    record = place.record
    record.report_progress(ENTRY, b"5")
    at = (record_at(record.task_index) + RECORD.progress) * WORD
    for length in (1, 9, PROGRESS_BYTES):
        place.region[at : at + length] = byte * length
        assert record.progress_of(ENTRY) == b""
        record.report_progress(ENTRY, b"5")
    place.region[:] = byte * REGION_BYTES
    assert record.progress_of(ENTRY) == b""


# Until it is killed, this program writes texts as fast as possible from three threads and a forked copy of the process.
# Each text consists of one repeated letter.
_WRITER = f"""
import os, sys, threading
from rota.child.slot_memory import enter_slot
from rota.child.slot_record import TaskInSlot
record = enter_slot(int(sys.argv[1]), 1, nonce=9, pid=1).slot.record(0)
record.start({ENTRY!r}, "name", 1, 2)
def write(letters):
    while True:
        for place, letter in enumerate(letters):
            record.report_progress({ENTRY!r}, letter * (20 + place * 50))
if os.fork():
    for letters in ((b"a", b"b", b"c"), (b"d", b"e", b"f")):
        threading.Thread(target=write, args=(letters,), daemon=True).start()
    write((b"g", b"h", b"i"))
write((b"j", b"k", b"l"))
"""


def test_a_reader_never_sees_half_written_progress() -> None:
    memory = SlotMemory.create(2)
    memory.slot(1).assign(nonce=9)
    record = memory.slot(1).record(0)
    argv = [sys.executable, "-c", _WRITER, str(memory.fd)]
    with subprocess.Popen(argv, pass_fds=(memory.fd,), process_group=0) as writer:
        try:
            texts = _read_many(record, 30_000)  # without the checksum, about a dozen of these texts would be torn
        finally:
            _kill_group(writer)
    assert all(len(set(text)) == 1 and len(text) in (20, 70, 120) for text in texts), texts


def _read_many(record: TaskRecord, wanted: int) -> set[bytes]:
    """Read the progress at least this many times, and return the texts. Continue until texts from at least three of the
    four writers have been read.
    """
    texts: set[bytes] = set()
    reads, deadline = 0, time.monotonic() + DEADLINE_SECONDS
    while reads < wanted or len({(text[0] - ord("a")) // 3 for text in texts}) < 3:
        assert time.monotonic() < deadline, f"{reads} reads found progress, of these writers: {texts}"
        if text := record.progress_of(ENTRY):
            texts.add(text)
            reads += 1
    return texts


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    os.killpg(process.pid, signal.SIGKILL)
