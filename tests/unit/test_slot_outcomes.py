"""Outcomes in a slot. A worker appends outcomes one after the other, and drops the oldest ones when replies confirm
them.
"""

from hypothesis import given
from hypothesis import strategies as st

from rota.child.slot_layout import HEADER, METRICS_AT, OUTCOMES_AT, PROCESS_ROW_BYTES, REGION_BYTES
from rota.child.slots import Slot

OUTCOMES_BYTES = METRICS_AT - OUTCOMES_AT


def _slot() -> Slot:
    return Slot(memoryview(bytearray(REGION_BYTES)), memoryview(bytearray(PROCESS_ROW_BYTES)))


@given(st.lists(st.tuples(st.integers(min_value=1, max_value=500), st.binary(max_size=300))))
def test_outcomes_in_a_slot_are_read_back_in_order(added: list[tuple[int, bytes]]) -> None:
    slot = _slot()
    for count, data in added:
        slot.add_outcomes(count, data)
    assert slot.outcomes() == (sum(count for count, _ in added), b"".join(data for _, data in added))
    slot.drop_outcomes(sum(count for count, _ in added), sum(len(data) for _, data in added))
    assert slot.outcomes() == (0, b"")


def test_an_outcome_that_does_not_fit_into_the_slot_leaves_others_unchanged() -> None:
    slot = _slot()
    slot.add_outcomes(4, b"x" * (OUTCOMES_BYTES - 10))
    slot.add_outcomes(4, b"y" * 11)
    slot.add_outcomes(4, b"z" * 10)
    assert slot.outcomes() == (8, b"x" * (OUTCOMES_BYTES - 10) + b"z" * 10)


def test_outcomes_and_metrics_in_a_slot_do_not_overlap() -> None:
    slot = _slot()
    slot.metrics[:8] = b"\xff" * 8
    slot.add_outcomes(4, b"x" * OUTCOMES_BYTES)
    assert bytes(slot.metrics[:8]) == b"\xff" * 8
    assert len(slot.metrics) + OUTCOMES_BYTES < REGION_BYTES


_SIZES = st.integers(1, 3) | st.integers(OUTCOMES_BYTES // 3, OUTCOMES_BYTES)


@given(st.lists(st.tuples(_SIZES, st.integers(0, 4)), max_size=12))
def test_dropping_confirmed_outcomes_leaves_the_others_whole(steps: list[tuple[int, int]]) -> None:
    slot, left = _slot(), list[bytes]()
    for number, (size, dropped) in enumerate(steps):
        data = bytes([number + 1]) * size
        slot.add_outcomes(4, data)
        if sum(map(len, left)) + size <= OUTCOMES_BYTES:
            left.append(data)
        gone, left = left[:dropped], left[dropped:]
        slot.drop_outcomes(4 * len(gone), sum(map(len, gone)))
        assert slot.outcomes() == (4 * len(left), b"".join(left))
        assert slot.has_outcomes == bool(left)


def test_dropping_confirmed_outcomes_keeps_those_added_later() -> None:
    slot = _slot()
    slot.add_outcomes(4, b"told")
    assert not slot.add_outcomes(4, b"x" * OUTCOMES_BYTES)
    earlier = slot.outcomes_left
    slot.add_outcomes(4, b"later")
    slot.drop_outcomes(*earlier)
    assert (earlier, slot.outcomes()) == ((4, 4), (4, b"later"))


def test_outcomes_at_the_end_of_their_area_do_not_overwrite_metrics() -> None:
    slot = _slot()
    slot.metrics[:8] = b"\xff" * 8
    slot.add_outcomes(1, b"x" * (OUTCOMES_BYTES - 1))
    slot.add_outcomes(1, b"y")
    slot.drop_outcomes(1, OUTCOMES_BYTES - 1)
    slot.add_outcomes(1, b"z" * (OUTCOMES_BYTES - 1))
    assert slot.outcomes() == (2, b"y" + b"z" * (OUTCOMES_BYTES - 1))
    assert bytes(slot.metrics[:8]) == b"\xff" * 8


def test_a_corrupt_outcome_counter_is_repaired_by_the_next_outcome() -> None:
    region = memoryview(bytearray(REGION_BYTES))
    slot = Slot(region, memoryview(bytearray(PROCESS_ROW_BYTES)))
    slot.add_outcomes(4, b"before")
    region.cast("q")[HEADER.outcomes] = -1 << 63
    slot.drop_outcomes(4, len(b"before"))
    slot.add_outcomes(4, b"behind")
    assert slot.outcomes() == (4, b"behind")
