"""The output of `rota task show`: the fields and the timeline of a task."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota.client.status import AttemptRecord, TaskStatus
from rota.protocol.progress import Progress
from rota.protocol.task_states import State
from rota_supervisor.cli import output
from rota_supervisor.facts import fields_of, task_facts, timeline_of

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FAILED = AttemptRecord(1, "failed", "ValueError: bad", AT + timedelta(seconds=2), "web-1", 7, 0.5)
CRASHED = AttemptRecord(2, "crashed", "killed by SIGKILL", AT + timedelta(seconds=13), "web-2", 8, 1.0)


def status(state: State, **fields: Any) -> TaskStatus:
    return TaskStatus("a", state, "q", "work", **fields)


def lines(found: TaskStatus) -> list[str]:
    """Return the lines of the task's timeline, with times in seconds after AT."""
    return [f"{(each.at - AT).total_seconds():g} {each.what}: {each.detail}" for each in timeline_of(found)]


def test_the_timeline_of_a_task_shows_its_failure_its_crash_and_its_success() -> None:
    found = status(
        State.DONE,
        kind="recovered",
        due_at=AT + timedelta(seconds=13.001),
        ready_at=AT + timedelta(seconds=13.001),
        attempt=3,
        attempts=(FAILED, CRASHED),
        started_at=AT + timedelta(seconds=14),
        ended_at=AT + timedelta(seconds=15),
        node="web-1",
        pid=9,
    )
    assert lines(found) == [
        "1.5 attempt 1 started: on web-1, pid 7",
        "2 attempt 1 failed: ValueError: bad",
        "12 attempt 2 started: on web-2, pid 8",
        "13 attempt 2 crashed: killed by SIGKILL",
        "13.001 given back: attempt 3",
        "14 attempt 3 started: on web-1, pid 9",
        "15 done: ",
    ]


def test_the_timeline_shows_the_time_of_the_enqueue_or_when_a_retry_is_due() -> None:
    assert lines(status(State.READY, kind="immediate", due_at=AT, ready_at=AT, attempt=1)) == [
        "0 enqueued: ",
        "0 ready: ",
    ]
    retry = status(State.SCHEDULED, kind="retry", due_at=AT + timedelta(seconds=60), attempt=2, attempts=(FAILED,))
    assert lines(retry)[-1] == "60 due: attempt 2"


def test_the_error_of_a_dead_task_is_shown_once() -> None:
    last = AttemptRecord(2, "retries", "attempt 2 of 2: ValueError: worse", AT + timedelta(seconds=9), "web-1", 7, 0.5)
    death = {"reason": "retries", "error": last.error}
    dead = status(State.DEAD, attempts=(FAILED, last), death=death, ended_at=last.at)
    assert lines(dead)[-2:] == ["8.5 attempt 2 started: on web-1, pid 7", "9 dead: retries"]
    fields = fields_of(dead)
    assert fields["error"] == last.error
    assert str(fields["timeline"]).count("ValueError: worse") == 0


def test_rota_task_show_omits_unknown_values_and_shows_progress_as_text() -> None:
    running = status(State.RUNNING, owner="web-1:8:1", progress=Progress(1, 4, "rows", AT))
    assert fields_of(running) == {
        "id": "a", "state": "running", "queue": "q", "name": "work", "attempt": 0, "failures": 0, "crashes": 0,
        "losses": 0, "owner": "web-1:8:1", "progress": "1/4 (25 %) rows", "timeline": "",
    }  # fmt: skip


def test_control_characters_in_tasks_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b[2J\n\u202e"
    record = AttemptRecord(1, "failed", hostile, AT, hostile, 7, 1.0)
    found = status(State.RUNNING, attempts=(record,), progress=Progress(1, None, hostile, AT), owner=hostile)
    for key, value in fields_of(found).items():
        output.put_field(key, value)
    output.put_json(task_facts(found))
    assert len(str(fields_of(found)["timeline"]).split("\n")) == len(timeline_of(found))
    shown = capsys.readouterr().out
    assert all(line.isprintable() for line in shown.splitlines())
