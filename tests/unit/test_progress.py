"""The text of a progress report. Its size is bounded, and readers ignore a text that is not valid."""

import math
from datetime import UTC, datetime
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.protocol.progress import LONGEST, NOTE_BYTES, Progress, progress_row, progress_summary, progress_text
from rota.protocol.progress import read_progress as read

AT_US = 1_767_323_045_000_000
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NUMBERS = st.floats(0, 9e15) | st.integers(0, 9 * 10**15)


@given(NUMBERS, st.none() | NUMBERS, st.text())
def test_progress_text_is_bounded_and_can_be_read_back(done: float, total: float | None, note: str) -> None:
    text = progress_text(done, total, note, AT_US)
    assert len(text) <= LONGEST
    progress = read(text)
    assert progress is not None
    assert (progress.done, progress.total, progress.at) == (done, total, AT)
    assert note.encode("utf-8", "replace").startswith(progress.note.encode())
    assert len(progress.note.encode()) > NOTE_BYTES - 4 or progress.note == note.encode("utf-8", "replace").decode()


def test_progress_in_whole_numbers_is_shown_without_a_fraction() -> None:
    progress = read(progress_text(40.0, Fraction(100), "rows", AT_US))  # type: ignore[arg-type]  # that is the claim
    assert progress == Progress(40, 100, "rows", AT)
    assert progress_summary(progress_row(progress)) == "40/100 (40 %) rows"
    assert progress_summary(progress_row(read(progress_text(0.5, None, "", AT_US)))) == "0.5"
    assert progress_summary(progress_row(read(progress_text(0, 0, "", AT_US)))) == "0/0"
    assert progress_summary(None) == ""


@pytest.mark.parametrize("number", [-1, math.nan, math.inf, 1e16, 10**400, "many", None, [1]])
def test_progress_with_an_invalid_number_is_refused_with_a_message(number: float) -> None:
    with pytest.raises(ValueError, match="`done` of progress must be a number from 0 to 9e15, not"):
        progress_text(number, None, "", AT_US)


@pytest.mark.parametrize(
    "raw",
    [b"", b"5", b"5 10 1", b"x 10 1 note", b"5 nan 1 note", b"5 10 inf note", b"-5 10 1 n", b"5 10 -1 n",
     b"1e300 - 1 n", b"5 10 1 " + b"n" * LONGEST, b"\xff \xff \xff \xff", b"5 10 99999999999999999 n"],
)  # fmt: skip
def test_invalid_text_in_the_slot_is_not_read_as_progress(raw: bytes) -> None:
    assert read(raw) is None
