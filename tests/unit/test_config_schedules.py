"""`[schedules.NAME]` in `rota.toml`: the accepted and the rejected values, and the schedules that a node then
declares.
"""

import json
import tomllib
from pathlib import Path

import pytest

from rota.durations import MICROSECONDS
from rota.schedules.schedule import CronRule, Schedule
from rota_supervisor.config.errors import ConfigError
from rota_supervisor.config.loader import Loaded, Sources, as_toml, load_config
from rota_supervisor.config.resolution import schedules_in_force
from rota_supervisor.config.rules import schedules_of_unknown_tasks, schedules_without_queue
from rota_supervisor.master.core.generations import change_between
from rota_supervisor.master.shell.loop import as_json
from support.replaying import value_of

FULL = """
tiers = [["default"], ["mail"]]
[schedules.nightly]
task = "report"
cron = "0 3 * * *"
timezone = "Europe/Zurich"
args = [1, "x", {a = [true]}]
kwargs = {to = "all"}
queue = "mail"
missed = "all"
overlap = "queue"
jitter = 60
start = 2027-01-01T00:00:00+01:00
end = 2028-01-01T00:00:00+01:00
"""
NIGHTLY = Schedule(
    name="nightly",
    task="report",
    rule=CronRule("0 3 * * *", "Europe/Zurich"),
    queue="mail",
    args=(1, "x", {"a": [True]}),
    kwargs={"to": "all"},
    missed="all",
    overlap="queue",
    jitter_us=60 * MICROSECONDS,
    start_us=1_798_758_000 * MICROSECONDS,
    end_us=1_830_294_000 * MICROSECONDS,
    source="file",
)


def loaded(folder: Path, text: str, environment: dict[str, str] | None = None) -> Loaded:
    file = folder / "rota.toml"
    file.write_text(text)
    return load_config(Sources(file, True, environment or {}))


def test_a_schedule_of_the_file_supports_every_option(tmp_path: Path) -> None:
    assert schedules_in_force(loaded(tmp_path, FULL).config, {}) == (NIGHTLY,)


def test_printed_schedules_are_read_again_unchanged(tmp_path: Path) -> None:
    first = loaded(tmp_path, FULL)

    printed = as_toml(first, origins=False)

    assert tomllib.loads(printed)["schedules"]["nightly"]["args"] == [1, "x", {"a": [True]}]
    assert loaded(tmp_path, printed).config == first.config


def test_a_configuration_with_schedules_survives_json_encoding(tmp_path: Path) -> None:
    config = loaded(tmp_path, FULL).config

    assert value_of(json.loads(json.dumps(as_json(config)))) == config


def test_an_environment_variable_can_change_a_schedule_of_the_file(tmp_path: Path) -> None:
    environment = {
        "ROTA_SCHEDULES__NIGHTLY__CRON": "0 4 * * *",
        "ROTA_SCHEDULES__NIGHTLY__ARGS": "[2]",
        "ROTA_SCHEDULES__NIGHTLY__START": "2027-01-01T00:00:00Z",
    }

    [schedule] = schedules_in_force(loaded(tmp_path, FULL, environment).config, {})

    assert schedule.rule == CronRule("0 4 * * *", "Europe/Zurich")
    assert (schedule.args, schedule.start_us) == ((2,), 1_798_761_600 * MICROSECONDS)


FAULTS = {
    "every = 30": "schedules.n.task: is missing: set it to the name of the task to enqueue",
    'task = "t"': 'schedules.n: set cron, as in "0 3 * * *", or every, in seconds',
    'task = "t"\ncron = "* * * * *"\nevery = 3': "schedules.n: set either cron or every, not both",
    'task = "t"\nevery = 3\ntimezone = "UTC"': "schedules.n.timezone: applies only to cron: set cron",
    'task = "t"\ncron = "0 25 * * *"': 'schedules.n.cron: cron "0 25 * * *": "25" at character 3 is not a valid hour',
    'task = "t"\ncron = "0 2 * * *"\ntimezone = "Mars"': 'schedules.n.timezone: there is no time zone "Mars"',
    'task = "t"\ncron = "0 2 * * *"\ntimezone = "Europe/Zurch"': (
        "schedules.n.timezone: there is no time zone \"Europe/Zurch\", did you mean 'Europe/Zurich'?"
    ),
    'task = "t"\nevery = 5\nstart = 2027-01-31T08:00:00': (
        "schedules.n.start: expected a date and time with its offset, as in 2027-01-31T08:00:00+01:00, got 2027-01-31T"
    ),
    'task = "t t"\nevery = 3': "schedules.n.task: task name 't t' is not valid",
    'task = "t"\nevery = 0.5': "schedules.n.every: expected a number >= 1, got 0.5",
    'task = "t"\nevery = "3"': 'schedules.n.every: expected a number >= 1, got "3"',
    'task = "t"\nevery = 3\njitter = 4': "schedules.n.jitter: jitter must be no longer than the interval",
    'task = "t"\nevery = 3\nmised = "all"': 'schedules.n.mised: unknown key, did you mean "missed"?',
    'task = "t"\nevery = 3\nmissed = "some"': 'schedules.n.missed: expected one of "all", "last", "none", got "some"',
    'task = "t"\nevery = 3\nargs = "x"': 'schedules.n.args: expected a list of values, got "x"',
    'task = "t"\nevery = 3\nargs = [2027-01-01]': "schedules.n: arguments: args[0] is of type date (pass its .isoforma",
    'task = "t"\nevery = 3\nargs = [nan]': "schedules.n: arguments: args[0] is nan, not a finite number",
    'task = "t"\nevery = 3\nstart = 2027-01-01T00:00:00': "schedules.n.start: expected a date and time with its offset",
    'task = "t"\nevery = 3\nstart = "soon"': "schedules.n.start: expected a date and time with its offset, as in",
    'task = "t"\nevery = 3\nstart = 2027-01-01T00:00:00Z\nend = 2026-01-01T00:00:00Z': (
        "schedules.n.end: end must be after start"
    ),
    'task = "t"\nevery = 3\nqueue = "defalt"': 'schedules.n.queue: queue "defalt" is in no tier, did you mean "de',
    'task = "t"\nevery = 3\nargs = ["redis://u:secret@h"]': "schedules.n.args[0]: looks like a URL or like credentials",
    'task = "t"\nevery = 3\nkwargs = {a = [{b = "redis://u:secret@h"}]}': "schedules.n.kwargs.a[0].b: looks like a URL",
}


@pytest.mark.parametrize("text", FAULTS)
def test_an_error_in_a_schedule_of_the_file_names_the_schedule_and_the_key(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, f"[schedules.n]\n{text}")

    [fault] = map(str, caught.value.faults)
    assert fault.startswith(FAULTS[text])
    assert "secret" not in fault


def test_all_errors_in_all_schedules_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    first = '[schedules.a]\ntask = "t"\ncron = "0 25 * * *"\ntimezone = "Mars"\n'
    second = f'[schedules.{"b" * 101}]\ntask = "t"\nevery = 3\n'

    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, first + second)

    assert [fault.path for fault in caught.value.faults] == [
        "schedules.a.cron",
        "schedules.a.timezone",
        f"schedules.{'b' * 101}",
    ]


def test_the_queue_of_a_schedule_may_be_served_by_a_pattern(tmp_path: Path) -> None:
    text = 'tiers = [["default", "tenant-*"]]\n[schedules.n]\ntask = "t"\nevery = 3\nqueue = "tenant-7"'
    assert schedules_in_force(loaded(tmp_path, text).config, {})[0].queue == "tenant-7"


def test_a_schedule_may_use_an_unserved_queue_if_these_only_warn(tmp_path: Path) -> None:
    text = 'unserved_queues = "warn"\n[schedules.n]\ntask = "t"\nevery = 3\nqueue = "elsewhere"'

    assert schedules_in_force(loaded(tmp_path, text).config, {})[0].queue == "elsewhere"


def test_a_schedule_without_a_queue_uses_that_of_its_task(tmp_path: Path) -> None:
    config = loaded(tmp_path, '[schedules.n]\ntask = "t"\nevery = 3\n[schedules.m]\ntask = "tt"\nevery = 3').config

    assert [(each.name, each.queue) for each in schedules_in_force(config, {"t": "mail"})] == [("n", "mail")]
    [fault] = schedules_without_queue(config, {"t": "mail"})
    assert fault.path == "schedules.m.task"
    assert fault.message.startswith('no imported module defines the task "tt", did you mean "t"? If another fleet has')
    assert schedules_of_unknown_tasks(config, {"t": "mail"}) == []


def test_a_reload_reports_that_schedules_have_changed(tmp_path: Path) -> None:
    before = loaded(tmp_path, FULL).config
    after = loaded(tmp_path, FULL.replace("0 3 *", "0 4 *")).config

    assert change_between(before, after).changed_parts == ["schedules"]
    assert not change_between(before, after).code
