"""The parsing of attempt records that Rota or another program has written."""

from datetime import UTC, datetime

import pytest

from rota.client.status import AttemptRecord, attempts_of, last_crash_in, status_of
from rota.protocol.outcome import FAILED, FailureRecord, read_attempt_records
from rota.protocol.views import TaskState

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FAILURE = FailureRecord(FAILED, "ValueError: bad", 1, "", "web-1:blue:3:17", 77, 0.25).to_json(AT)
CRASH = b'{"reason":"crashed","error":"killed by SIGKILL","cause":"signal","owner":"web-2:4:9","pid":78}'
END = FailureRecord("retries", "attempt 2 of 2: ValueError: bad", 3, "Traceback", "web-1:3:17", 79, 0.5).to_json(AT)


def test_an_attempt_record_is_read_with_its_reason_node_and_duration() -> None:
    failure, crash, end = attempts_of(read_attempt_records(b"\n".join([FAILURE, CRASH, END]), "why"))
    assert failure == AttemptRecord(1, "failed", "ValueError: bad", AT, "web-1:blue", 77, 0.25, 0.0)
    assert (crash.attempt, crash.reason, crash.node, crash.pid, crash.lag_seconds) == (2, "crashed", "web-2", 78, None)
    assert (end.attempt, end.reason, end.node) == (3, "retries", "web-1")


def test_a_live_task_shows_its_last_crash_and_a_dead_task_its_death() -> None:
    living = status_of("a", TaskState("ready", failures=1, crashes=1, attempt_records=b"\n".join([CRASH, FAILURE])))
    assert living.last_crash is not None
    assert (living.last_crash["cause"], living.death, len(living.attempts)) == ("signal", None, 2)
    dead = status_of("a", TaskState("dead", failures=2, crashes=1, attempt_records=b"\n".join([CRASH, END])))
    assert dead.death is not None
    assert (dead.death["reason"], dead.last_crash) == ("retries", None)


def test_a_task_that_only_failed_has_no_last_crash() -> None:
    assert last_crash_in(read_attempt_records(FAILURE, "why")) is None


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff\xfe",
        b"[1]",
        b'{"attempt":"1","reason":7,"error":null,"at":"2026","owner":[],"pid":-1,"elapsed_seconds":true}',
        b'{"elapsed_seconds":1e999,"at":"9999-99-99"}',
        b'{"attempt":true,"at":"2026-01-02T03:04:05","owner":"x"}',
    ],
)
def test_an_invalid_attempt_record_is_read_as_an_empty_one(raw: bytes) -> None:
    assert attempts_of(read_attempt_records(raw, "why")) == (AttemptRecord(0, "", ""),)
