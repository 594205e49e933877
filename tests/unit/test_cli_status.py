"""The text output of `rota status`, which has at most 100 columns for any names and any state of the fleet."""

from typing import Any

import pytest

from rota.durations import in_words
from rota_supervisor.cli.status_verb import COLUMNS, put_status

LONG = "a" * 128


def child(**fields: Any) -> dict[str, Any]:
    """Return the row of an idle worker with the given changes."""
    row = {"slot": 8, "role": "worker", "pool": "default", "generation": 1, "pid": 4_194_304, "state": "ready"}
    idle = {
        "quiet": False,
        "ready_seconds": 1.0,
        "beat_age_seconds": 0.1,
        "tasks": [],
    }
    return {**row, **idle, **fields}


def running(name: str, seconds: float = 0.0) -> dict[str, Any]:
    """Return the row of a task that has been running for this number of seconds."""
    task = {"id": "id-1", "name": name, "queue": "mail"}
    return {"place": 0, "task": task, "task_age_seconds": seconds, "progress": None}


def schedule(**fields: Any) -> dict[str, Any]:
    """Return the row of a schedule."""
    row = {"name": "nightly", "task": "report", "when": "0 3 * * * UTC", "state": "waiting", "next_in_seconds": 3.0}
    return {**row, **fields}


def fleet(**fields: Any) -> dict[str, Any]:
    """Return an idle fleet with the given changes."""
    who = {"node": "host.1", "pid": 7, "fleet": "shop", "state": "running", "at": 7380.0, "started_at": 0.0}
    what = {
        "redis": "redis://h:1/0",
        "redis_up": True,
        "redis_refusal": "",
        "redis_round_trip_seconds": 0.0004,
        "evicts_keys": False,
        "listen": "",
        "generation": 1,
        "loading": False,
        "quiet_seconds": 0.0,
    }
    pool = {"name": "default", "state": "running", "desired": 2, "origin": "file", "configured": 2}
    counts = {"workers": {"running": 1}, "busy": 0, "concurrency": 1}
    events: dict[str, Any] = {"last_reload": None, "last_death": None, "held": [], "closed": []}
    events |= {"adopts": None, "consumers": None, "schedules": None}
    return {**who, **what, **events, "pools": [{**pool, **counts}], "processes": [child()], **fields}


def shown(capsys: pytest.CaptureFixture[str], **fields: Any) -> str:
    put_status(fleet(**fields), no_color=True)
    return capsys.readouterr().out


def test_no_line_of_rota_status_is_longer_than_a_hundred_columns(capsys: pytest.CaptureFixture[str]) -> None:
    busy = child(state="registering", pool=LONG, tasks=[running(LONG, 86_399.0)], beat_age_seconds=86_399.0)
    busy["tasks"][0] |= {"progress": {"done": 10**15, "total": 10**15, "note": LONG}}
    busy |= {"shared_mb": 10_240.5, "private_mb": 10_240.5, "slot": 1023, "generation": 99_999}
    held = {"role": "worker", "pool": LONG, "state": "fatal", "failures_in_a_row": 12}
    pool = {"name": LONG, "state": "backoff", "desired": 500, "origin": "operator", "configured": 499}
    said = shown(
        capsys,
        node=LONG,
        fleet=LONG,
        redis=LONG,
        held=[{**held, "next_try_seconds": 3.1, "last_error": LONG * 2}],
        last_reload={"result": "failure", "faults": [LONG, LONG], "at": 0.0},
        last_death={"child": "worker", "slot": 8, "pool": LONG, "words": LONG, "at": 0.0},
        pools=[{**pool, "workers": {"quiet": 500}, "busy": 256_000, "concurrency": 512}],
        processes=[busy],
        adopts=[
            {"key": LONG, "queue": LONG, "task": LONG, "type": "sorted set", "waiting": 10**9, "next_due_at": 9e9},
            {"key": LONG, "queue": "", "task": "", "type": "", "waiting": None, "next_due_at": None, "error": LONG},
        ],
        consumers=[{"owner": LONG, "held": 500, "lease_left_seconds": 86_399.0, "queues": LONG}],
        schedules=[schedule(name=LONG, when=LONG, task=LONG, next_in_seconds=86_399.0)],
    )
    assert max(map(len, said.splitlines())) <= COLUMNS


def test_an_operators_worker_count_is_shown_beside_the_configured_count(capsys: pytest.CaptureFixture[str]) -> None:
    pool = {"name": "mail", "state": "running", "desired": 6, "origin": "operator", "configured": 4}
    counts = {"workers": {"running": 6}, "busy": 0, "concurrency": 1}
    assert "operator (configured: 4)" in shown(capsys, pools=[{**pool, **counts}])


def test_a_pool_of_concurrent_workers_shows_how_many_tasks_may_run(capsys: pytest.CaptureFixture[str]) -> None:
    pool = {"name": "io", "state": "running", "desired": 2, "origin": "file", "configured": 2}
    counts = {"workers": {"running": 1, "quiet": 1}, "busy": 3, "concurrency": 20}
    assert "3 of 40" in shown(capsys, pools=[{**pool, **counts}])


def test_rota_status_describes_pools_in_back_off(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"role": "worker", "pool": "mail", "state": "fatal", "failures_in_a_row": 12, "next_try_seconds": 3.1}
    said = shown(capsys, held=[{**row, "last_error": "exit code 3"}])
    assert (
        "held back    pool mail is in fatal: 12 failures in a row, next try in 3.1 s; last error: exit code 3" in said
    )


def test_control_characters_in_names_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert "\x1b" not in shown(capsys, fleet="\x1b[2J", processes=[child(tasks=[running("\x1b[2J")])])


def test_a_tasks_progress_is_shown_after_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    task = running("resize") | {"progress": {"done": 40, "total": None, "note": "\x1b[2Jpages"}}
    said = shown(capsys, processes=[child(tasks=[task]), child()])
    assert "resize 40 \\u001b[2Jpages  0.0 s" in said


def test_rota_status_shows_consumers_if_there_are_any(capsys: pytest.CaptureFixture[str]) -> None:
    assert "CONSUMER" not in shown(capsys, consumers=[])
    row = {"owner": "consumer-host-7-ab:0:3", "held": 2, "lease_left_seconds": 29.5, "queues": "mail"}
    [header, line] = shown(capsys, consumers=[row]).splitlines()[-2:]
    assert header.split() == ["CONSUMER", "HELD", "LEASE", "LEFT", "QUEUES"]
    assert line.split() == ["consumer-host-7-ab:0:3", "2", "29", "s", "mail"]


def test_upcoming_schedules_are_shown_if_there_are_any(capsys: pytest.CaptureFixture[str]) -> None:
    assert "SCHEDULE" not in shown(capsys, schedules=[])
    rows = [schedule(), schedule(name="tick", state="paused", next_in_seconds=None)]
    [header, first, second] = shown(capsys, schedules=rows).splitlines()[-3:]
    assert header.split() == ["SCHEDULE", "WHEN", "NEXT", "IN", "TASK"]
    assert first.split() == ["nightly", "0", "3", "*", "*", "*", "UTC", "3.0", "s", "report"]
    assert second.split()[-2:] == ["paused", "report"]


def test_rota_status_shows_memory_if_it_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert "PRIVATE" not in shown(capsys)
    assert "PRIVATE MB" in shown(capsys, processes=[child(shared_mb=98.0, private_mb=4.4), child(private_mb=None)])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.0 s"),
        (0, "0.0 s"),
        (0.0042, "4.2 ms"),
        (0.0999, "99.9 ms"),
        (4.25, "4.2 s"),
        (59.9, "59 s"),
        (60, "1 m"),
        (185, "3 m 5 s"),
        (7380, "2 h 3 m"),
        (176_461, "2 d 1 h"),
    ],
)
def test_a_duration_is_shown_in_its_largest_units(seconds: float, text: str) -> None:
    assert in_words(seconds) == text
    assert text.startswith(in_words(seconds, 1))


def test_rota_status_shows_a_closed_queue_with_reason_and_duration(capsys: pytest.CaptureFixture[str]) -> None:
    paused = {"queue": "mail", "condition": "", "error": "", "seconds": 7380.0}
    failing = {"queue": "billing", "condition": "office", "error": "condition:1: no", "seconds": 61.0}
    said = shown(capsys, quiet_seconds=90.0, closed=[paused, failing])
    assert "quiet        for 1 m 30 s" in said
    assert "mail is paused, for 2 h 3 m\n" in said
    assert "billing is closed by its condition office, for 1 m 1 s: condition:1: no" in said
