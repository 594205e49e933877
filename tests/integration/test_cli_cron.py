"""`rota cron` on a real server: its output, its effects and its exit codes."""

import json
from functools import partial
from pathlib import Path

import pytest

import rota
from rota.client.blocking.client import Client
from support.command_line import Rota, rota_in, write_configuration
from support.servers import Server


@pytest.fixture
def cron(
    server: Server,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Rota:
    """Return a function that runs `rota cron` in this process."""
    write_configuration(tmp_path, server, namespace)
    return partial(rota_in(tmp_path, monkeypatch, capsys), "cron")


@pytest.fixture
def schedules(client: Client) -> rota.Client:
    """Create the schedules `nightly`, which is due once a year, and `tick`, which is due every 30 seconds. Returns a
    client.
    """
    client.schedules.put("nightly", "report", rota.Cron("30 2 1 1 *", timezone="Europe/Zurich", queue="q", args=[7]))
    client.schedules.put("tick", "work", rota.Every(30, queue="q", jitter=5))
    return client


def test_schedules_are_listed_with_their_next_times(cron: Rota, schedules: rota.Client) -> None:
    header, *lines = cron("ls", "--next", "2").out.splitlines()

    assert header.split() == ["NAME", "TASK", "QUEUE", "WHEN", "NEXT", "LAST", "SOURCE"]
    assert sorted(line.split()[0] for line in lines if not line.startswith(" ")) == ["nightly", "tick"]
    [nightly] = [line for line in lines if line.startswith("nightly")]
    assert "30 2 1 1 * Europe/Zurich" in nightly
    assert "-01-01 02:30:00 CET" in nightly
    assert sum("-01-01 02:30:00 CET" in line for line in lines) == 2

    found = {each["name"]: each for each in json.loads(cron("ls", "--json", "--next", "3").out)}
    expected = [each.isoformat() for each in schedules.schedules.upcoming("nightly", 3)]
    assert found["nightly"]["next"] == expected
    assert (found["nightly"]["args"], found["tick"]["every"], found["tick"]["source"]) == ([7], 30, "client")


@pytest.mark.usefixtures("schedules")
def test_show_prints_a_schedule_with_its_details(cron: Rota) -> None:
    shown = cron("show", "nightly").out

    assert "cron:              30 2 1 1 *" in shown
    assert shown.count("-01-01 02:30:00 CET") == 5
    assert json.loads(cron("show", "tick", "--json").out)["jitter"] == 5


@pytest.mark.usefixtures("schedules")
def test_pause_and_resume_report_what_changed(cron: Rota) -> None:
    assert cron("pause", "tick").err == 'rota: schedule "tick" is paused\n'
    assert cron("pause", "tick").err == 'rota: schedule "tick" was paused already\n'
    [line] = [line for line in cron("ls").out.splitlines() if line.startswith("tick")]
    assert "paused" in line
    assert json.loads(cron("show", "tick", "--json").out)["next"] == []
    assert cron("resume", "tick", "nightly").err == (
        'rota: schedule "tick" is resumed\nrota: schedule "nightly" was resumed already\n'
    )


def test_cron_run_enqueues_the_task_unless_an_earlier_run_has_not_ended(cron: Rota, schedules: rota.Client) -> None:
    first = cron("run", "nightly")
    assert (first.code, schedules.status(first.out.strip()).kind) == (0, "periodic")

    second = cron("run", "nightly", "--json")
    assert (second.code, json.loads(second.out)) == (1, {"id": first.out.strip(), "overlaps": True})
    assert "has not ended" in second.err


@pytest.mark.usefixtures("schedules")
@pytest.mark.parametrize("verb", ["show", "run", "pause", "resume"])
def test_unknown_and_invalid_schedule_names_are_errors(cron: Rota, verb: str) -> None:
    unknown = cron(verb, "nope")
    assert (unknown.code, unknown.err) == (
        1,
        "rota: error: there is no schedule 'nope': `rota cron ls` lists all schedules\n",
    )
    assert "did you mean 'nightly'?" in cron(verb, "nihtly").err
    assert cron(verb, "two words").code == 2
