"""The conditions that users write: the accepted texts, the reported positions of faults, and the times at which a queue
is open, including weeks in which the clocks change. The expected times were computed by hand.
"""

import re
from datetime import UTC, datetime, timedelta

import pytest

from rota.protocol.tiers import MOST_CONDITION_CHARACTERS
from rota_supervisor.config.conditions import Hours, OpenTimes, check_chunk, intervals, longest_closed, parse_hours

WEEK = tuple(range(7))
OFFICE = (0, 1, 2, 3, 4)


def open_around(text: str, now: str) -> list[str]:
    """Return the start and the end of each period in which the queue is open, as a text in UTC."""
    at = datetime.fromisoformat(now).replace(tzinfo=UTC)
    known_us, found = intervals(parse_hours(text), round(at.timestamp() * 1_000_000))
    assert known_us == round((at + timedelta(days=8)).timestamp() * 1_000_000)
    moments = [[datetime.fromtimestamp(us / 1_000_000, UTC) for us in each] for each in found]
    return [f"{start:%m-%d %H:%M} {end:%m-%d %H:%M}" for start, end in moments]


# Parsing of hours


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("Mon-Fri 08:00-18:00 Europe/Zurich", (OpenTimes(OFFICE, 480, 1080),)),
        ("08:00-18:00 Europe/Zurich", (OpenTimes(WEEK, 480, 1080),)),
        ("fri-mon 8:00-9:30 UTC", (OpenTimes((4, 5, 6, 0), 480, 570),)),
        (
            "Mon, Wed Fri 08:00-12:00, 13:00-17:00 UTC",
            (OpenTimes((0, 2, 4), 480, 720), OpenTimes((0, 2, 4), 780, 1020)),
        ),
        ("Mon 08:00-12:00, Sat 22:00-06:00 UTC", (OpenTimes((0,), 480, 720), OpenTimes((5,), 1320, 1800))),
        ("00:00-24:00 UTC", (OpenTimes(WEEK, 0, 1440),)),
    ],
)
def test_opening_hours_are_parsed_into_times_and_a_time_zone(text: str, times: tuple[OpenTimes, ...]) -> None:
    assert parse_hours(text) == Hours(times, text.rpartition(" ")[2])


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", 'expected a time zone at the end, as in "Mon-Fri 08:00-18:00 Europe/Zurich"'),
        ("Mon-Fri 08:00-18:00", 'expected a time zone at the end, as in "Mon-Fri 08:00-18:00 Europe/Zurich"'),
        ("Europe/Zurich", "character 1: expected times before the time zone"),
        ("Mon UTC", 'character 1: expected a time after "Mon"'),
        ("Mon 08:00-09:00 Tue UTC", 'character 17: expected a time after "Tue"'),
        ("Mno 08:00-18:00 UTC", 'character 1: expected one of Mon, Tue, Wed, Thu, Fri, Sat, Sun, got "Mno"'),
        ("Mon 08:00 UTC", 'character 5: expected times as in "08:00-18:00", got "08:00"'),
        ("Mon-Fri 8-18", 'character 9: expected times as in "08:00-18:00", got "8-18"'),
        ("Mon 08:00-18:60 UTC", 'character 5: expected a time from 00:00 to 24:00, got "08:00-18:60"'),
        ("Mon 24:00-02:00 UTC", "character 5: expected a time from 00:00 to 24:00"),
        ("Mon 08:00-25:00 UTC", "character 5: expected a time from 00:00 to 24:00"),
        (
            "Mon 08:00-08:00 UTC",
            'character 5: 08:00-08:00 is an empty span of time; to mean the whole day, write "00:00-24:00"',
        ),
        ("08:00-18:00 Europe/Zurick", 'has no time zone "Europe/Zurick", did you mean "Europe/Zurich"?'),
        ("08:00-18:00 Europe", 'character 13: this machine has no time zone "Europe"'),
        ("08:00-18:00 ../../etc/passwd", "character 13: this machine has no time zone"),
        ("08:00-18:00 \x1b[2J", 'has no time zone "\\u001b[2J"'),
        ("00:00-00:01 " * 51 + "UTC", "expected at most 50 times, got 51"),
    ],
)
def test_an_error_in_opening_hours_states_its_position(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=re.escape(fault)):
        parse_hours(text)


# Times at which a queue is open


def test_office_hours_follow_daylight_saving_time_of_their_zone() -> None:
    """In this week, the clocks in Zurich go forward at 01:00 UTC on Sunday the 29th."""
    found = open_around("Mon-Fri 08:00-18:00 Europe/Zurich", "2026-03-26 12:00")
    assert found == [
        *("03-25 07:00 03-25 17:00", "03-26 07:00 03-26 17:00", "03-27 07:00 03-27 17:00"),
        *("03-30 06:00 03-30 16:00", "03-31 06:00 03-31 16:00", "04-01 06:00 04-01 16:00"),
        *("04-02 06:00 04-02 16:00", "04-03 06:00 04-03 16:00"),
    ]


@pytest.mark.parametrize(
    ("times", "open_on_the_day"),
    [
        ("02:10-02:50", []),  # on that day, the clocks skip from 02:00 to 03:00
        ("02:30-03:30", ["03-29 01:00 03-29 01:30"]),
        ("01:30-02:30", ["03-29 00:30 03-29 01:00"]),
        ("01:30-03:30", ["03-29 00:30 03-29 01:30"]),
    ],
)
def test_a_local_time_skipped_by_daylight_saving_means_the_clock_change(times: str, open_on_the_day: list[str]) -> None:
    found = open_around(f"Sun {times} Europe/Zurich", "2026-03-28 12:00")
    assert [each for each in found if each.startswith("03-29")] == open_on_the_day


@pytest.mark.parametrize(
    ("times", "open_on_the_day"),
    [
        ("01:00-02:30", ["10-24 23:00 10-25 00:30"]),
        ("02:30-04:00", ["10-25 00:30 10-25 03:00"]),
        ("01:00-02:30 02:30-04:00", ["10-24 23:00 10-25 03:00"]),
        ("01:00-04:00", ["10-24 23:00 10-25 03:00"]),
    ],
)
def test_a_local_time_repeated_by_daylight_saving_means_its_first_occurrence(
    times: str, open_on_the_day: list[str]
) -> None:
    found = open_around(f"Sun {times} Europe/Zurich", "2026-10-25 12:00")
    assert [each for each in found if "10-25" in each] == open_on_the_day


def test_hours_over_midnight_belong_to_the_day_on_which_they_begin() -> None:
    assert open_around("Fri 22:00-06:00 UTC", "2028-02-26 03:00") == [
        "02-25 22:00 02-26 06:00",
        "03-03 22:00 03-04 06:00",
    ]


def test_adjacent_opening_hours_are_merged() -> None:
    assert open_around("00:00-24:00 UTC", "2026-06-03 12:00") == ["06-01 00:00 06-13 00:00"]
    assert longest_closed(parse_hours("00:00-12:00 12:00-24:00 UTC")) == timedelta(0)


def test_the_longest_closed_period_may_span_a_weekend() -> None:
    assert longest_closed(parse_hours("Mon-Fri 08:00-18:00 Europe/Zurich")) == timedelta(hours=62)
    assert longest_closed(parse_hours("Mon 08:00-09:00 UTC")) == timedelta(hours=167)


# Lua


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("running < 2", "return running < 2"),
        ("return not (ready + delayed >= 1e3)", "return not ( ready + delayed >= 1e3 )"),
        ("-- a note\nlocal a = -now % 86400; return a < 1", "\nlocal a = - now % 86400 ; return a < 1"),
        ("if queue == 'ab' then return true elseif nil then return 1.5 else return ready end", None),
        ("math.max(1, ready)", "return math . max ( 1 , ready )"),
        ("if true then local a = 1 return a == 1 end\nreturn false", None),
    ],
)
def test_a_lua_condition_loses_its_comments_but_keeps_its_line_numbers(text: str, sent: str | None) -> None:
    assert check_chunk(text).split() == (sent or text).split()
    assert check_chunk(text).count("\n") == text.rstrip().count("\n")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "line 1, character 1: expected a value, got the end"),
        ("return", "line 1, character 7: expected a value, got the end"),
        ("while true do end", 'line 1, character 1: "while" is not allowed in a condition'),
        ("if true then\n  for i = 1, 9 do end\nend", 'line 2, character 3: "for" is not allowed'),
        ("repeat until false", '"repeat" is not allowed'),
        ("::top:: goto top", 'line 1, character 1: ":" is not allowed'),
        ("goto top", '"goto" is not allowed'),
        ("local f = function() end", '"function" is not allowed'),
        ("redis.call('FLUSHALL')", '"redis" is unknown here'),
        ("return redis", '"redis" is unknown here'),
        ("return _G", '"_G" is unknown here'),
        ("return getfenv(1)", '"getfenv" is unknown here'),
        ("setfenv(1, ready)", '"setfenv" is unknown here'),
        ("setmetatable(queue, queue)", '"setmetatable" is unknown here'),
        ("error('x')", '"error" is unknown here'),
        ("return pcall(error)", '"pcall" is unknown here'),
        ("return string.rep('x', 1e9)", '"string" is unknown here'),
        ("return ('x'):rep(1e9)", 'line 1, character 13: ":" is not allowed'),
        ("queue.rep > 3", 'line 1, character 6: the expression is already complete here, got "."'),
        ("return queue.rep", 'no statement may follow return in a block, got "."'),
        ("return queue .. queue", 'line 1, character 14: "." is not allowed'),
        ("return 2 ^ 1e9", '"^" is not allowed'),
        ("return #queue", '"#" is not allowed'),
        ("return {}", '"{" is not allowed'),
        ("return queue[1]", '"[" is not allowed'),
        ("return [[x]]", '"[" is not allowed'),
        ("return 'a\\065'", '"\'" is not allowed'),
        ("--[[ a ]] return 1", '"[" is not allowed'),
        ("return 0x10", '"0" is not allowed'),
        ("return math", 'expected ".", got the end'),
        ("return math.huge", 'expected one of floor, ceil, min, max, abs of math, got "huge"'),
        ("return math.random(1)", 'got "random"'),
        ("return math.floor", 'expected "(", got the end'),
        ("local math = 1 return 1", 'expected a name, got "math"'),
        ("local a, b = 1, 2", 'expected "=", got ","'),
        ("other = 1", '"other" is unknown here'),
        ("local a = 1 a = 2 return a", '"a" is unknown here'),
        ("if true then local redis = 1 end return redis", 'character 41: "redis" is unknown here'),
        ("return 1 return 2", 'no statement may follow return in a block, got "return"'),
        ("if true then return 1", 'expected "end", got the end'),
        ("return " + "(" * 40 + "1" + ")" * 40, "more than 20 nested levels"),
        ("return " + "not " * 40 + "1", "more than 20 nested levels"),
        ("if true then " * 40 + "end " * 40, "more than 20 nested levels"),
        ("local a = 1 " * 101, "expected at most 100 locals"),
        ("return math.max(" + "1, " * 60 + "1)", "expected at most 50 arguments, got 61"),
        ("return 1" + " + 1" * MOST_CONDITION_CHARACTERS, f"expected at most {MOST_CONDITION_CHARACTERS} characters"),
        ("return \x1b1", '"\\u001b" is not allowed'),
    ],
)
def test_lua_conditions_that_are_unsafe_or_slow_are_refused_with_position(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=re.escape(fault)):
        check_chunk(text)
