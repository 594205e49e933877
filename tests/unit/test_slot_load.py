"""The load in a slot: the counts that a worker writes, and the values that a reader accepts."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.child.slot_layout import HEADER, LOAD, LOAD_WORDS, PROCESS_ROW_BYTES, REGION_BYTES, WORD
from rota.child.slot_load import Load
from rota.child.slots import Slot
from rota.durations import NANOSECONDS

SECOND = NANOSECONDS
LOAD_AT = HEADER.load * WORD


def new_slot(region: bytearray | None = None) -> Slot:
    slot = Slot(memoryview(region or bytearray(REGION_BYTES)), memoryview(bytearray(PROCESS_ROW_BYTES)))
    slot.assign(nonce=1, concurrency=4)
    return slot


def occupied_seconds(slot: Slot, at_ns: int) -> float:
    load = slot.load.read(4, at_ns)
    assert load is not None
    return load.occupied_seconds


def test_the_occupied_time_of_a_worker_grows_while_a_task_runs() -> None:
    slot = new_slot()
    slot.load.occupy(1, 10 * SECOND)
    assert [occupied_seconds(slot, at * SECOND) for at in (10, 12, 13)] == [0, 2, 3]


def test_time_without_a_task_does_not_count_as_occupied() -> None:
    slot = new_slot()
    slot.load.occupy(1, 10 * SECOND)
    slot.load.occupy(0, 12 * SECOND)
    assert occupied_seconds(slot, 60 * SECOND) == 2
    slot.load.occupy(1, 70 * SECOND)
    assert occupied_seconds(slot, 71 * SECOND) == 3


def test_each_concurrent_task_adds_to_the_occupied_time() -> None:
    slot = new_slot()
    slot.load.occupy(4, 10 * SECOND)
    slot.load.occupy(2, 11 * SECOND)
    assert occupied_seconds(slot, 13 * SECOND) == 8


def test_a_clock_reading_from_the_past_does_not_reduce_the_occupied_time() -> None:
    slot = new_slot()
    slot.load.occupy(1, 10 * SECOND)
    slot.load.occupy(0, 9 * SECOND)
    assert occupied_seconds(slot, 20 * SECOND) == 0


def test_the_load_of_a_worker_sums_run_times_and_their_squares() -> None:
    slot = new_slot()
    for seconds in (1, 3):
        slot.load.ran(seconds * SECOND)
    slot.load.started = 5
    slot.load.later_attempts = 1
    slot.load.first_failures = 1
    slot.load.show()
    assert slot.load.read(4, 0) == Load(5, 0, 0.0, 2, 4.0, 10.0, 1, 1)


def test_a_run_time_of_a_year_does_not_overflow_the_load_counters() -> None:
    slot = new_slot()
    slot.load.ran(365 * 86_400 * SECOND)
    slot.load.show()
    load = slot.load.read(4, 0)
    assert load is not None
    assert load.squares == pytest.approx((365 * 86_400) ** 2)


def test_a_task_that_is_starting_is_included_in_the_shown_starts() -> None:
    slot = new_slot()
    slot.load.started = 3
    slot.load.show_started(also=1)
    load = slot.load.read(4, 0)
    assert load is not None
    assert load.started == 4


def test_the_load_of_a_new_process_begins_at_zero() -> None:
    region = bytearray(REGION_BYTES)
    slot = new_slot(region)
    slot.load.started = 3
    slot.load.ran(SECOND)
    slot.load.occupy(1, SECOND)
    slot.load.show()
    assert new_slot(region).load.read(4, 5 * SECOND) == Load()


@pytest.mark.parametrize(
    ("word", "value"),
    [
        (LOAD.started, -1),
        (LOAD.started, 1 << 62),
        (LOAD.occupied, 5),
        (LOAD.occupied, -1),
        (LOAD.since_ns, -1),
        (LOAD.run_ns, -(1 << 63)),
        (LOAD.first_failures, 1),
        (LOAD.squares, struct.unpack("q", struct.pack("d", float("nan")))[0]),
        (LOAD.squares, struct.unpack("q", struct.pack("d", float("inf")))[0]),
        (LOAD.squares, struct.unpack("q", struct.pack("d", -1.0))[0]),
    ],
)
def test_a_load_with_impossible_numbers_is_not_read(word: int, value: int) -> None:
    region = bytearray(REGION_BYTES)
    slot = new_slot(region)
    memoryview(region).cast("q")[HEADER.load + word] = value
    assert slot.load.read(4, SECOND) is None


@given(st.binary(min_size=LOAD_WORDS * WORD, max_size=LOAD_WORDS * WORD))
def test_any_bytes_in_a_slot_are_read_as_a_load_or_as_none(raw: bytes) -> None:
    region = bytearray(REGION_BYTES)
    slot = new_slot(region)
    region[LOAD_AT : LOAD_AT + len(raw)] = raw
    load = slot.load.read(4, SECOND)
    assert load is None or all(part >= 0 for part in load)
