"""The text in which Redis stores a schedule, and the refusal of schedules that are not valid."""

import json
from typing import Any

import pytest

from rota.durations import MICROSECONDS
from rota.schedules.schedule import BadSchedule, CronRule, EveryRule, Rule, Schedule, decode_schedule, encode_schedule

PLAIN = Schedule("nightly", "report", CronRule("0 3 * * *"), "default")
FULL = Schedule(
    name="hourly",
    task="shop.report",
    rule=EveryRule(3600 * MICROSECONDS),
    queue="mail",
    args=(1, "ä", None, [2.5, {"a": True}]),
    kwargs={"to": "all"},
    missed="all",
    overlap="queue",
    jitter_us=5 * MICROSECONDS,
    start_us=1,
    end_us=2,
    source="client",
)


@pytest.mark.parametrize("schedule", [PLAIN, FULL])
def test_a_schedule_is_read_as_it_was_written(schedule: Schedule) -> None:
    assert decode_schedule(schedule.name, encode_schedule(schedule)) == schedule


def test_default_values_are_omitted_from_the_stored_schedule() -> None:
    assert encode_schedule(PLAIN) == b'{"task":"report","queue":"default","cron":"0 3 * * *"}'
    spelt_out = Schedule("x", "report", CronRule("0 3 * * *", "UTC"), "default", (), {}, "last", "skip", 0, None, None)
    assert encode_schedule(spelt_out) == encode_schedule(PLAIN)


FOREIGN: list[tuple[Any, str]] = [
    ("[]", "it is not an object"),
    ("", "Expecting value"),
    ("[" * 100_000, "too deeply"),
    ({"task": "t", "queue": "q"}, "either cron or every_us"),
    ({"task": "t", "queue": "q", "cron": "* * * * *", "every_us": 1_000_000}, "either cron or every_us"),
    ({"queue": "q", "every_us": 1_000_000}, "task is missing"),
    ({"task": "t", "queue": "q", "every_us": 1.5}, "every_us is of the wrong type"),
    ({"task": "t", "queue": "q", "every_us": True}, "every_us is of the wrong type"),
    ({"task": "t", "queue": "q", "every_us": 1}, "every must be from 1 second"),
    ({"task": "t", "queue": "q", "every_us": 1_000_000, "args": {}}, "args is of the wrong type"),
    ({"task": "t", "queue": "q", "every_us": 1_000_000, "missed": "some"}, "missed must be"),
    ({"task": "t", "queue": "q", "every_us": 1_000_000, "colour": "red"}, "unknown key 'colour'"),
    ({"task": "t t", "queue": "q", "every_us": 1_000_000}, "task name 't t'"),
    ({"task": "t", "queue": "q-delayed", "every_us": 1_000_000}, "may not end in"),
    ({"task": "t", "queue": "q", "cron": "0 25 * * *"}, '"25" at character 3 is not a valid hour'),
    ({"task": "t", "queue": "q", "cron": "0 2 * * *", "timezone": "../etc"}, "there is no time zone"),
    ('{"task":"t","queue":"q","every_us":NaN}', "NaN"),
    ('{"task":"t","queue":"q","every_us":1000000,"args":[1e999]}', "Out of range"),
    ('{"task":"t","queue":"q","every_us":1000000,"args":["\\ud800"]}', "surrogates not allowed"),
]


@pytest.mark.parametrize(("values", "fault"), FOREIGN)
def test_an_invalid_stored_schedule_is_refused_with_the_reason(values: Any, fault: str) -> None:
    text = values if isinstance(values, str) else json.dumps(values)

    with pytest.raises(ValueError, match=fault):
        decode_schedule("nightly", text.encode())


BAD_CRON = [
    ("* * * *", "it has 4 fields; expected 5"),
    ("", "it has 0 fields; expected 5"),
    ("60 * * * *", '"60" at character 1 is not a valid minute: expected * or 0 to 59'),
    ("0 8-25 * * *", '"8-25" at character 3 is not a valid hour: expected * or 0 to 23'),
    ("0  0   0 * *", '"0" at character 8 is not a valid day of the month: expected * or 1 to 31'),
    ("0 0 1,2,32 * *", '"32" at character 9 is not a valid day of the month'),
    ("0 0 * FOO *", '"FOO" at character 7 is not a valid month: expected * or 1 to 12 or JAN to DEC'),
    ("0 0 * * MON,TEU", '"TEU" at character 13 is not a valid day of the week: expected * or 0 to 7'),
    ("0 0 * * FRI-MON", '"FRI-MON" at character 9 is not a valid day of the week'),
    ("*/0 * * * *", '"*/0" at character 1 is not a valid minute'),
    ("99 * * * * *", '"99" at character 1 is not a valid second: expected * or 0 to 59'),
    ("@daily", "it has 1 field; expected 5"),
    ("0 0 30 2 *", "it never occurs"),
    ("* * */20 * 1L", "it never occurs"),
    ("* " * 200, "it has 400 characters, but the limit is 250"),
    ("9" * 240 + " * * * *", "is not a valid minute"),
]


@pytest.mark.parametrize(("expression", "fault"), BAD_CRON)
def test_an_invalid_cron_expression_is_refused_with_position_and_valid_values(expression: str, fault: str) -> None:
    with pytest.raises(BadSchedule) as caught:
        Schedule("nightly", "report", CronRule(expression), "default")

    assert fault in str(caught.value)


BAD: list[tuple[Rule, dict[str, Any], str]] = [
    (EveryRule(MICROSECONDS), {"name": "n" * 101}, "a name has 1 to 100 of the characters"),
    (EveryRule(MICROSECONDS), {"jitter_us": 2 * MICROSECONDS}, "no longer than the interval"),
    (CronRule("0 3 * * *"), {"jitter_us": 2 * 86_400 * MICROSECONDS}, "jitter must be from 0 seconds to one day"),
    (CronRule("0 3 * * *"), {"start_us": 5, "end_us": 5}, "end must be after start"),
    (CronRule("0 3 * * *"), {"end_us": -1}, "between the years"),
    (CronRule("0 3 * * *", "Europe"), {}, 'there is no time zone "Europe"'),
    (CronRule("0 3 * * *", ""), {}, "there is no time zone"),
]


@pytest.mark.parametrize(("rule", "changes", "fault"), BAD)
def test_an_invalid_schedule_is_refused_with_the_reason(rule: Rule, changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(BadSchedule, match=fault):
        Schedule(**{"name": "nightly", "task": "report", "queue": "default", "rule": rule, **changes})


def test_all_faults_of_a_schedule_are_reported_at_once() -> None:
    with pytest.raises(BadSchedule) as caught:
        Schedule("nightly", "t", CronRule("0 25 * * *", "Mars"), "default", jitter_us=-1)

    assert [what for what, _ in caught.value.faults] == ["cron", "timezone", "jitter"]
