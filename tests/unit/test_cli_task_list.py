"""The output of `rota task ls`, as text and as JSON."""

from datetime import UTC, datetime
from typing import Any

import pytest

from rota.client.queues import QueuedTask, TasksFound
from rota.client.status import AttemptRecord
from rota.protocol.progress import Progress
from rota.protocol.task_states import State
from rota_supervisor.cli import output
from rota_supervisor.cli.task_verbs import rest_text, table_of
from rota_supervisor.facts import facts_of

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def task(state: State, **changes: Any) -> QueuedTask:
    fields: dict[str, Any] = {
        "id": "a", "state": state, "queue": "mail", "name": "send", "due_at": AT, "due_in_seconds": -185.0,
        "since": AT, "age_seconds": 7380.0, "attempt": 2, "failures": 1, "crashes": 0, "losses": 0,
    }  # fmt: skip
    return QueuedTask(**{**fields, **changes})


@pytest.mark.parametrize(
    ("found", "header", "row"),
    [
        (task(State.READY), "AGE", ["2 h 3 m", 2]),
        (task(State.SCHEDULED, since=None, age_seconds=None), "DUE IN", ["overdue 3 m 5 s", 2]),
        (task(State.SCHEDULED, due_in_seconds=60.0), "DUE IN", ["1 m", 2]),
        (
            task(State.RUNNING, owner="node:8:1", progress=Progress(1, 4, "rows", AT)),
            "AGE",
            ["2 h 3 m", 2, "node:8:1", "1/4 (25 %) rows"],
        ),
        (
            task(State.DEAD, death=AttemptRecord(2, "retries", "e" * 90)),
            "AGE",
            ["2 h 3 m", 2, f"retries: {'e' * 48}..."],
        ),
    ],
)  # fmt: skip
def test_the_columns_of_a_task_list_depend_on_the_state(found: QueuedTask, header: str, row: list[object]) -> None:
    names, [cells] = table_of(found.state, [found])
    assert len(names) == len(cells)
    assert names[4] == header
    assert cells == ["a", "mail", "send", "2026-01-02T03:04:05Z", *row]


def test_unknown_fields_of_a_listed_task_are_shown_as_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    bare = task(State.READY, id="", name="\x1b[2J", due_at=None, due_in_seconds=None, since=None, age_seconds=None)
    header, [cells] = table_of(State.READY, [bare])
    assert cells == ["-", "mail", "\x1b[2J", "-", "-", 2]
    output.put_table(header, [cells], no_color=True)
    assert "\x1b" not in capsys.readouterr().out


def test_the_json_of_a_listed_task_omits_unknown_fields() -> None:
    assert facts_of(task(State.DEAD, since=None, death=AttemptRecord(2, "retries", "bad", AT))) == {
        "id": "a", "state": "dead", "queue": "mail", "name": "send", "due_at": AT.isoformat(), "due_in_seconds": -185.0,
        "age_seconds": 7380.0, "attempt": 2, "failures": 1, "crashes": 0, "losses": 0,
        "death": {
            "attempt": 2, "reason": "retries", "error": "bad", "at": AT.isoformat(), "pid": 0, "run_seconds": 0.0,
        },
    }  # fmt: skip


def test_a_task_search_that_stopped_early_says_so() -> None:
    assert rest_text(TasksFound([], 10_000, more=False), 5) == ""
    assert "these are the first 1" in rest_text(TasksFound([task(State.READY)], 1, more=True), 1)
    assert "searched 10000 tasks and stopped" in rest_text(TasksFound([], 10_000, more=True), 5)
