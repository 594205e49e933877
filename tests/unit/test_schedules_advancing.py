"""The next step that a poller takes for a schedule. No occurrence is enqueued twice or skipped by mistake, and each
step is bounded.
"""

import dataclasses
import json

import pytest

from rota.protocol.schedule_store import OCCURRENCES_A_CALL, ScheduleRecord, occurrence_id, read_schedule_record
from rota.schedules.occurrences import Advance, advance
from rota.schedules.schedule import EveryRule, Schedule

SECOND_US = 1_000_000
AHEAD_US = 8 * SECOND_US
MINUTE_US = 60 * SECOND_US
NOW_US = 1_795_252_620 * SECOND_US
TICK = Schedule("tick", "work", EveryRule(SECOND_US), "q", args=(7,), kwargs={"to": "a"}, missed="all", overlap="queue")
MINUTELY = dataclasses.replace(TICK, rule=EveryRule(MINUTE_US))
FRESH = ScheduleRecord(NOW_US, 0, 0, 0, 0, (), b"{}")


def occurrence_times(advanced: Advance) -> list[int]:
    return [int(each.id.rpartition(":")[2]) * SECOND_US for each in advanced.occurrences]


def test_advancing_a_schedule_enqueues_the_next_seconds_and_stores_the_next() -> None:
    advanced = advance(TICK, FRESH, NOW_US, AHEAD_US)
    assert occurrence_times(advanced) == [NOW_US + second * SECOND_US for second in range(1, 9)]
    first = advanced.occurrences[0]
    assert (first.id, first.due_us) == ("tick:1795252621", NOW_US + SECOND_US)
    assert json.loads(first.body) == [first.id, "q", "work", [7], {"kwargs": {"to": "a"}}]
    record = advanced.record
    assert (record.passed_us, record.next_us) == (NOW_US + AHEAD_US, NOW_US + AHEAD_US + SECOND_US)
    assert list(record.ahead_us) == occurrence_times(advanced)


def test_advancing_a_schedule_continues_after_its_last_occurrence() -> None:
    before = advance(TICK, FRESH, NOW_US, AHEAD_US).record
    later_us = NOW_US + 3 * SECOND_US
    advanced = advance(TICK, before, later_us, AHEAD_US)
    assert occurrence_times(advanced) == [NOW_US + second * SECOND_US for second in (9, 10, 11)]
    assert advanced.record.last_us == later_us
    assert min(advanced.record.ahead_us) == later_us + SECOND_US


def test_no_occurrence_is_enqueued_twice_if_the_clock_goes_back() -> None:
    before = advance(TICK, FRESH, NOW_US, AHEAD_US).record
    advanced = advance(TICK, before, NOW_US - 3600 * SECOND_US, AHEAD_US)
    assert (advanced.occurrences, advanced.record) == ((), before)


def test_many_missed_occurrences_are_enqueued_in_batches() -> None:
    record, found = dataclasses.replace(FRESH, passed_us=NOW_US - 250 * MINUTE_US), list[int]()
    for expected in (OCCURRENCES_A_CALL, OCCURRENCES_A_CALL, 50):
        advanced = advance(MINUTELY, record, NOW_US, AHEAD_US)
        assert (len(advanced.occurrences), advanced.missed) == (expected, 0)
        record, found = advanced.record, found + occurrence_times(advanced)
    assert found == [NOW_US - minute * MINUTE_US for minute in range(249, -1, -1)]
    assert record.next_us == NOW_US + MINUTE_US


def test_missed_occurrences_of_a_schedule_are_counted_once() -> None:
    schedule = dataclasses.replace(MINUTELY, missed="none")
    away = dataclasses.replace(FRESH, passed_us=NOW_US - 250 * MINUTE_US)
    first = advance(schedule, away, NOW_US + 40 * SECOND_US, 0)
    assert (first.occurrences, first.missed) == ((), 250)
    assert advance(schedule, first.record, NOW_US + 41 * SECOND_US, 0).missed == 0


def test_an_occurrence_delayed_by_jitter_stays_recorded_until_it_is_due() -> None:
    schedule = dataclasses.replace(MINUTELY, jitter_us=MINUTE_US)
    put_off = advance(schedule, FRESH, NOW_US, MINUTE_US)
    [occurrence] = put_off.occurrences
    assert NOW_US + MINUTE_US <= occurrence.due_us < NOW_US + 2 * MINUTE_US
    waiting = advance(schedule, put_off.record, NOW_US + MINUTE_US + SECOND_US, 0)
    assert waiting.record.ahead_us == (NOW_US + MINUTE_US,)


def test_a_schedule_past_its_end_is_not_checked_again() -> None:
    schedule = dataclasses.replace(TICK, end_us=NOW_US + 2 * SECOND_US)
    advanced = advance(schedule, FRESH, NOW_US, AHEAD_US)
    assert occurrence_times(advanced) == [NOW_US + SECOND_US]
    assert (advanced.record.next_us, advanced.record.check_at_us) == (None, b"+inf")


@pytest.mark.parametrize(
    ("at_us", "expected"),
    [(1_795_252_600_000_000, "a:1795252600"), (1_795_252_600_250_000, "a:1795252600.25"), (1, "a:0.000001")],
)
def test_the_id_of_an_occurrence_names_its_time_in_seconds(at_us: int, expected: str) -> None:
    assert occurrence_id("a", at_us) == expected


@pytest.mark.parametrize("record", [FRESH, ScheduleRecord(5, 4, None, 3, 2, (7, 8), b'{"a":"\n"}')])
def test_a_schedule_record_is_read_as_it_was_written(record: ScheduleRecord) -> None:
    assert read_schedule_record(record.to_bytes()) == record


@pytest.mark.parametrize(
    "raw",
    [b"", b"1 2 3\n{}", b"a b c d e f\n{}", b"1 2 x 4 5 -\n{}", b"9" * 17 + b" 0 0 0 0 -\n{}", b"-1 0 0 0 0 -\n{}"],
)
def test_an_invalid_record_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the kind of fault does not matter
        read_schedule_record(raw)
