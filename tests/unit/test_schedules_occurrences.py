"""The times at which a schedule is due. Every table was computed by hand from the calendar and the law on daylight
saving time.
"""

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.durations import MICROSECONDS, unix_microseconds
from rota.schedules.occurrences import MOST_MISSED, Occurrence, Reckoning, next_occurrence, occurrences, reckon
from rota.schedules.schedule import CronRule, EveryRule, Missed, Schedule

HOUR_US = 3600 * MICROSECONDS


def cron(expression: str, timezone: str = "UTC", missed: Missed = "last") -> Schedule:
    return Schedule("nightly", "report", CronRule(expression, timezone), "default", missed=missed)


def us(text: str) -> int:
    """Return the Unix time of a time in UTC, for example "2026-03-29 01:00"."""
    return unix_microseconds(datetime.fromisoformat(text).replace(tzinfo=UTC), "text")


def shown(at_us: int) -> str:
    return f"{datetime.fromtimestamp(at_us // MICROSECONDS, UTC):%Y-%m-%d %H:%M}"


def table(schedule: Schedule, after: str, count: int) -> list[str]:
    return [shown(each.at_us) for each in islice(occurrences(schedule, us(after)), count)]


class Row(NamedTuple):
    what: str
    timezone: str
    expression: str
    after: str  # in UTC, like all other times
    expected: tuple[str, ...]


# In parentheses: the local time to which the clocks are changed. Zurich is 1 h ahead of UTC, and 2 h from 2026-03-29
# 02:00 (03:00) to 2026-10-25 03:00 (02:00). New York is 5 h behind UTC, and 4 h from 2026-03-08 02:00 (03:00) to
# 2026-11-01 02:00 (01:00). Sydney is 10 h ahead of UTC, and 11 h until 2026-04-05 03:00 (02:00) and from 2026-10-04
# 02:00 (03:00). Santiago is 4 h behind UTC until 2026-09-06 00:00 (01:00), then 3 h, so midnight itself is skipped
# there.
DAYLIGHT_SAVING = [
    Row(
        *("a time that is left out is the first moment behind the gap", "Europe/Zurich", "30 2 * * *"),
        *("2026-03-28 00:00", ("2026-03-28 01:30", "2026-03-29 01:00", "2026-03-30 00:30")),
    ),
    Row(
        *("two times of one gap are one occurrence", "Europe/Zurich", "0,30 2,3 * * *"),
        *("2026-03-29 00:00", ("2026-03-29 01:00", "2026-03-29 01:30", "2026-03-30 00:00", "2026-03-30 00:30")),
    ),
    Row(
        *("a time that comes twice counts the first time", "Europe/Zurich", "30 2 * * *"),
        *("2026-10-24 00:00", ("2026-10-24 00:30", "2026-10-25 00:30", "2026-10-26 01:30")),
    ),
    Row(
        *("also when it is asked for in the second hour", "Europe/Zurich", "50 2 * * *"),
        *("2026-10-25 01:45", ("2026-10-26 01:50", "2026-10-27 01:50")),
    ),
    Row(
        *("what is frequent goes on through the gap", "Europe/Zurich", "*/30 * * * *"),
        *("2026-03-29 00:00", ("2026-03-29 00:30", "2026-03-29 01:00", "2026-03-29 01:30")),
    ),
    Row(
        *("what is frequent comes in both hours", "Europe/Zurich", "*/30 * * * *"),
        *("2026-10-25 00:00", ("2026-10-25 00:30", "2026-10-25 01:00", "2026-10-25 01:30", "2026-10-25 02:00")),
    ),
    Row(
        *("every hour is every hour", "Europe/Zurich", "0 * * * *"),
        *("2026-10-24 23:30", ("2026-10-25 00:00", "2026-10-25 01:00", "2026-10-25 02:00")),
    ),
    Row(
        *("spring", "America/New_York", "0 2 * * *"),
        *("2026-03-07 00:00", ("2026-03-07 07:00", "2026-03-08 07:00", "2026-03-09 06:00")),
    ),
    Row(
        *("autumn", "America/New_York", "30 1 * * *"),
        *("2026-10-31 00:00", ("2026-10-31 05:30", "2026-11-01 05:30", "2026-11-02 06:30")),
    ),
    Row(
        *("autumn of the south, in April", "Australia/Sydney", "15 2 * * *"),
        *("2026-04-03 00:00", ("2026-04-03 15:15", "2026-04-04 15:15", "2026-04-05 16:15")),
    ),
    Row(
        *("spring of the south, in October", "Australia/Sydney", "15 2 * * *"),
        *("2026-10-02 00:00", ("2026-10-02 16:15", "2026-10-03 16:00", "2026-10-04 15:15")),
    ),
    Row(
        *("a day without a midnight", "America/Santiago", "0 0 * * *"),
        *("2026-09-05 00:00", ("2026-09-05 04:00", "2026-09-06 04:00", "2026-09-07 03:00")),
    ),
]
CALENDAR = [
    Row(
        *("a leap day is a day", "UTC", "0 12 * * *"),
        *("2028-02-28 00:00", ("2028-02-28 12:00", "2028-02-29 12:00", "2028-03-01 12:00")),
    ),
    Row(
        *("yearly on a leap day is every four years", "UTC", "0 12 29 2 *"),
        *("2026-01-01 00:00", ("2028-02-29 12:00", "2032-02-29 12:00")),
    ),
    Row("and eight around 2100", "UTC", "0 12 29 2 *", "2096-03-01 00:00", ("2104-02-29 12:00",)),
    Row(
        *("the last day of a month", "UTC", "0 0 L * *"),
        *("2027-02-01 00:00", ("2027-02-28 00:00", "2027-03-31 00:00", "2027-04-30 00:00")),
    ),
    Row(
        *("the 13th and every Friday", "UTC", "0 0 13 * FRI"),
        *("2026-11-12 12:00", ("2026-11-13 00:00", "2026-11-20 00:00", "2026-11-27 00:00", "2026-12-04 00:00")),
    ),
]


@pytest.mark.parametrize("row", [*DAYLIGHT_SAVING, *CALENDAR], ids=lambda row: f"{row.timezone} {row.what}")
def test_schedule_occurrences_match_those_computed_by_hand(row: Row) -> None:
    assert tuple(table(cron(row.expression, row.timezone), row.after, len(row.expected))) == row.expected


def test_a_sixth_field_in_front_of_a_cron_expression_sets_the_seconds() -> None:
    found = islice(occurrences(cron("*/20 30 9 * * *"), us("2026-11-22 09:30")), 3)

    assert [each.at_us - us("2026-11-22 09:30") for each in found] == [
        20 * MICROSECONDS,
        40 * MICROSECONDS,
        24 * HOUR_US,
    ]


def every(seconds: float, start: str | None = None, end: str | None = None) -> Schedule:
    return Schedule(
        *("tick", "report", EveryRule(round(seconds * MICROSECONDS)), "default"),
        start_us=None if start is None else us(start),
        end_us=None if end is None else us(end),
    )


def test_an_interval_schedule_counts_from_1970_or_from_its_start() -> None:
    assert table(every(3600), "2026-11-22 09:30", 2) == ["2026-11-22 10:00", "2026-11-22 11:00"]
    started = every(3600, start="2026-11-22 09:10")
    assert table(started, "2026-11-22 09:30", 2) == ["2026-11-22 10:10", "2026-11-22 11:10"]
    assert table(started, "2026-11-20 00:00", 2) == ["2026-11-22 09:10", "2026-11-22 10:10"]


def test_the_start_of_a_schedule_is_included_and_its_end_is_excluded() -> None:
    schedule = every(3600, start="2026-11-22 09:00", end="2026-11-22 11:00")
    assert table(schedule, "2026-01-01 00:00", 5) == ["2026-11-22 09:00", "2026-11-22 10:00"]
    assert next_occurrence(schedule, us("2026-11-22 10:00")) is None

    daily = Schedule("d", "t", CronRule("0 9 * * *"), "default", start_us=us("2026-11-22 09:00"))
    assert table(daily, "2026-01-01 00:00", 2) == ["2026-11-22 09:00", "2026-11-23 09:00"]


# A node is down from 12:00, when nothing was left to do, and back at 13:03. Computed by hand, 12:10, 12:20, 12:30,
# 12:40, 12:50 and 13:00 were missed, and 13:10 is next. A node that is back at 13:00:20 is late for 13:00, but 13:00 is
# not missed.
MISSED: list[tuple[Missed, str, tuple[str, ...], int]] = [
    ("last", "13:03:00", ("13:00",), 5),
    ("all", "13:03:00", ("12:10", "12:20", "12:30", "12:40", "12:50", "13:00"), 0),
    ("none", "13:03:00", (), 6),
    ("last", "13:00:20", ("13:00",), 5),
    ("all", "13:00:20", ("12:10", "12:20", "12:30", "12:40", "12:50", "13:00"), 0),
    ("none", "13:00:20", ("13:00",), 5),
    ("none", "12:04:00", (), 0),
]


@pytest.mark.parametrize(("missed", "back_at", "expected", "left_out"), MISSED)
def test_missed_occurrences_follow_the_rule_of_the_schedule(
    missed: Missed, back_at: str, expected: tuple[str, ...], left_out: int
) -> None:
    found = reckon(cron("*/10 * * * *", missed=missed), us("2026-11-22 12:00"), us(f"2026-11-22 {back_at}"))

    assert tuple(shown(each.at_us)[-5:] for each in found.enqueue) == expected
    assert found.left_out == left_out
    assert found.following is not None
    assert shown(found.following.at_us)[-5:] == ("12:10" if back_at < "12:10" else "13:10")
    assert found.passed_us == (us(f"2026-11-22 {expected[-1]}") if expected else None)


@pytest.mark.parametrize("rule", [CronRule("* * * * * *", "Europe/Zurich"), EveryRule(MICROSECONDS)])
def test_at_most_the_last_thousand_missed_occurrences_are_enqueued(rule: CronRule | EveryRule) -> None:
    now_us = us("2026-11-22 12:00")
    schedule = Schedule("tick", "report", rule, "default", missed="all")

    found = reckon(schedule, us("2016-01-01 00:00"), now_us)

    assert [each.at_us for each in found.enqueue] == [now_us - n * MICROSECONDS for n in range(MOST_MISSED - 1, -1, -1)]


def test_jitter_delays_an_occurrence_equally_for_every_poller() -> None:
    plain = Schedule("nightly", "t", EveryRule(60 * MICROSECONDS), "default")
    shaken = Schedule("nightly", "t", EveryRule(60 * MICROSECONDS), "default", jitter_us=10 * MICROSECONDS)
    after_us = us("2026-11-22 12:00")

    found = list(islice(occurrences(shaken, after_us), 200))

    assert found == list(islice(occurrences(shaken, after_us), 200))
    assert [each.at_us for each in found] == [each.at_us for each in islice(occurrences(plain, after_us), 200)]
    delays = [each.due_us - each.at_us for each in found]
    assert all(0 <= delay < 10 * MICROSECONDS for delay in delays)
    assert max(delays) - min(delays) > 5 * MICROSECONDS
    other = Schedule("hourly", "t", EveryRule(60 * MICROSECONDS), "default", jitter_us=10 * MICROSECONDS)
    assert [each.due_us for each in islice(occurrences(other, after_us), 200)] != [each.due_us for each in found]


def test_an_occurrence_with_pending_jitter_is_not_missed() -> None:
    rule = EveryRule(3600 * MICROSECONDS)
    schedule = Schedule("nightly", "t", rule, "default", missed="none", jitter_us=3600 * MICROSECONDS)
    [ahead] = islice(occurrences(schedule, us("2026-11-22 11:30")), 1)

    found = reckon(schedule, us("2026-11-22 11:30"), ahead.due_us - 1)

    assert found.enqueue == (ahead,)


ZONES = ("UTC", "Europe/Zurich", "America/New_York", "Australia/Sydney", "America/Santiago", "Australia/Lord_Howe")
EXPRESSIONS = ("30 2 * * *", "0,20,40 1-3 * * *", "*/7 * * * *", "0 */2 * * *", "*/15 0-3 * * 0", "0 0 1 * *")
INSTANTS = st.integers(us("2026-01-01 00:00"), us("2027-01-01 00:00"))


@settings(max_examples=25, deadline=None)
@given(zone=st.sampled_from(ZONES), expression=st.sampled_from(EXPRESSIONS), after_us=INSTANTS, later_us=INSTANTS)
def test_the_next_occurrence_does_not_depend_on_where_the_search_starts(
    zone: str, expression: str, after_us: int, later_us: int
) -> None:
    schedule = cron(expression, zone)
    first, second = sorted((after_us, min(later_us, after_us + 48 * HOUR_US)))
    walked = [each for each in _up_to(schedule, first, second + 48 * HOUR_US) if each.at_us > second]

    assert list(_up_to(schedule, second, second + 48 * HOUR_US)) == walked


@settings(max_examples=10, deadline=None)
@given(zone=st.sampled_from(ZONES), expression=st.sampled_from(("* * * * *", "*/5 * * * *")), now_us=INSTANTS)
def test_the_last_thousand_missed_occurrences_match_an_exhaustive_search(
    zone: str, expression: str, now_us: int
) -> None:
    schedule = cron(expression, zone, missed="all")
    begin_us = now_us - int(timedelta(days=4).total_seconds()) * MICROSECONDS

    found = reckon(schedule, begin_us, now_us)

    assert found == Reckoning(
        tuple(_up_to(schedule, begin_us, now_us))[-MOST_MISSED:], 0, next_occurrence(schedule, now_us)
    )


def _up_to(schedule: Schedule, after_us: int, until_us: int) -> list[Occurrence]:
    found = []
    for each in occurrences(schedule, after_us):
        if each.at_us > until_us:
            break
        found.append(each)
    return found
