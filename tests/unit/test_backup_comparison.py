"""The reading of logs and task events, with which the contents of a restored server are compared."""

import io
import json

import pytest

from rota_supervisor.backup.comparison import LIVE, Evidence, KnownFate, read_file
from rota_supervisor.backup.file_check import FileFault


def test_the_newest_log_line_or_event_of_a_task_decides_its_known_state() -> None:
    lines = [
        {"event": "task.done", "timestamp": "2026-11-02T09:30:05.000000Z", "task_id": "a"},
        {"event": "task.retried", "timestamp": "2026-11-02T09:30:04.000000Z", "task_id": "a"},
        {"event": "dead", "at": "2026-11-02T09:30:04.000+00:00", "task_id": "b"},
        {"event": "worker.started", "timestamp": "2026-11-02T09:30:09.000000Z"},
        {"event": "task.done", "timestamp": "never", "task_id": "c"},
    ]
    evidence = Evidence()
    read_file(io.BytesIO(b"\n".join([*(json.dumps(line).encode() for line in lines), b"no JSON\n"])), evidence)
    assert evidence.fates == {"a": KnownFate(1793611805.0, "done"), "b": KnownFate(1793611804.0, LIVE)}
    assert (evidence.newest, evidence.oldest_export) == (1793611805.0, None)


def test_a_log_file_without_task_events_is_refused() -> None:
    with pytest.raises(FileFault, match="none of its lines is a task event"):
        read_file(io.BytesIO(b"12:00:00 task.done\n"), Evidence())
