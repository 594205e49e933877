"""The schedules that `@rota.task` creates from `cron`, `every` and `schedules`, and the values that it rejects."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import rota
from rota.durations import MICROSECONDS
from rota.schedules.schedule import CronRule, EveryRule, Schedule
from rota.tasks.registry import Registry


@pytest.fixture(autouse=True)
def _fresh_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.client.task.default_registry", Registry())


def test_schedules_have_the_name_and_queue_of_their_task() -> None:
    @rota.task(name="report", queue="mail", cron="*/5 * * * *", timezone="Europe/Zurich")
    def report() -> None: ...

    @rota.task(name="tick", every=timedelta(minutes=1))
    def tick() -> None: ...

    assert report.schedules == (Schedule("report", "report", CronRule("*/5 * * * *", "Europe/Zurich"), "mail"),)
    assert tick.schedules == (Schedule("tick", "tick", EveryRule(60 * MICROSECONDS), "default"),)
    assert tick.options.queue == "default"


def test_several_schedules_of_a_task_are_numbered_or_named() -> None:
    start = datetime(2027, 1, 1, tzinfo=UTC)

    @rota.task(
        name="report",
        cron="0 3 * * *",
        schedules=[
            rota.Every(30, kwargs={"shop": 2}, jitter=5, missed="none", overlap="queue", start=start),
            rota.Cron("0 4 * * *", args=[3], queue="bulk", name="weekly", end=start),
        ],
    )
    def report(shop: int = 1) -> None: ...

    first, second, third = report.schedules
    assert (first.name, first.args) == ("report", ())
    assert (second.name, second.kwargs, second.jitter_us) == ("report:2", {"shop": 2}, 5 * MICROSECONDS)
    assert (second.missed, second.overlap, second.start_us) == ("none", "queue", 1_798_761_600 * MICROSECONDS)
    assert (third.name, third.args, third.queue, third.end_us) == ("weekly", (3,), "bulk", second.start_us)


MISUSES: list[tuple[Any, type[Exception], str]] = [
    ({"cron": "0 25 * * *"}, ValueError, 'cron "0 25 \\* \\* \\*": "25" at character 3 is not a valid hour: expected'),
    ({"cron": "* * * * *", "timezone": "Mars/Olympus"}, ValueError, 'no time zone "Mars/Olympus"'),
    ({"cron": 5}, TypeError, 'expression must be a string such as "0 3 .*", got 5'),
    (
        {"cron": "* * * * *", "every": 5},
        ValueError,
        "pass either cron or every, not both; for several schedules, use schedules",
    ),
    ({"timezone": "UTC"}, ValueError, "timezone has no effect without cron: pass both"),
    ({"every": 0.5}, ValueError, "every must be from 1 second to 100 years, got 0.5 s"),
    ({"every": "30s"}, TypeError, "every must be seconds or a timedelta, got '30s'"),
    ({"schedules": ["* * * * *"]}, TypeError, "schedules takes a list, for example .rota.Cron"),
    ({"schedules": rota.Every(30)}, TypeError, "schedules takes a list"),
]


@pytest.mark.parametrize(("given", "error", "message"), MISUSES)
def test_an_invalid_schedule_option_raises_an_error_in_the_task_decorator(
    given: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        rota.task(**given)


MISUSED_EVERY: list[tuple[Any, type[Exception], str]] = [
    ({"args": "abc"}, rota.InvalidArguments, r"Every: args must be a list or a tuple, got str"),
    ({"args": "abc"}, rota.InvalidArguments, "args must be a list or a tuple"),
    ({"missed": "some"}, ValueError, 'missed must be "last" or "all" or "none", got \'some\''),
    ({"overlap": "kill"}, ValueError, 'overlap must be "skip" or "queue"'),
    ({"jitter": 31}, ValueError, "no longer than the interval"),
    ({"start": datetime(2027, 1, 1)}, ValueError, "start has no time zone"),  # noqa: DTZ001 - on purpose
    ({"start": "2027-01-01"}, TypeError, "start must be a datetime"),
    ({"name": "two words"}, ValueError, "name of a schedule 'two words' is not valid"),
    ({"name": 3}, TypeError, "name must be a string"),
    ({"queue": "mail-delayed"}, ValueError, "may not end in '-delayed'"),
]


@pytest.mark.parametrize(("given", "error", "message"), MISUSED_EVERY)
def test_an_invalid_schedule_raises_an_error_when_it_is_created(
    given: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        rota.Every(30, **given)


def test_the_arguments_of_a_schedule_are_checked_against_the_signature() -> None:
    with pytest.raises(rota.InvalidArguments, match="shop"):

        @rota.task(name="report", every=30)
        def report(shop: int) -> None: ...


def test_two_schedules_with_the_same_name_are_refused() -> None:
    @rota.task(name="report", every=30)
    def report() -> None: ...

    with pytest.raises(rota.DuplicateTask, match="tasks 'report' and 'other' both have a schedule named 'report'"):

        @rota.task(name="other", schedules=[rota.Every(30, name="report")])
        def other() -> None: ...

    with pytest.raises(rota.DuplicateTask, match="two schedules of task 'twice' are named 'x'"):

        @rota.task(name="twice", schedules=[rota.Every(30, name="x"), rota.Every(60, name="x")])
        def twice() -> None: ...


def test_an_application_without_schedules_imports_no_schedule_modules() -> None:
    script = "import sys, rota\n@rota.task(queue='mail')\ndef report(): ...\nrota.Client('redis://h')\n"
    shows = "print([name for name in sys.modules if 'cronsim' in name or 'zoneinfo' in name or 'schedules' in name])"

    found = subprocess.run([sys.executable, "-P", "-c", script + shows], capture_output=True, text=True, check=True)

    assert found.stdout == "[]\n"
