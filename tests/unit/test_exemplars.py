"""The exemplars of the buckets of the lag histogram. An exemplar names a running task whose lag is in the bucket.
Running tasks are found in the slots.
"""

import math

import pytest

from rota.child.slot_record import TaskInSlot
from rota.child.slots import Phase
from rota.telemetry.metrics import TASK_LAG, QueueLabels
from rota_supervisor.exporter.exposition import Exemplars
from rota_supervisor.fleet_snapshot import Member, MemberTask
from rota_supervisor.layout import Role

NOW_SECONDS = 1_000_000.0
SHOWN = (("mail", "delayed"), ("tenant-*", "retry"))


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: NOW_SECONDS)


def running(entry: bytes, age_seconds: float) -> Member:
    task = MemberTask(TaskInSlot(entry, "send", 1, 0), age_seconds, math.inf)
    return Member(8, Role.WORKER, 1, Phase.BUSY, 0.0, (task,))


def entry(task_id: str, queue: str, kind: str, due_seconds: float) -> bytes:
    return f"{task_id} {queue} {kind} {due_seconds * 1e6:.0f} {due_seconds * 1e6:.0f} 0 0 0 0 -".encode()


def test_a_running_task_is_the_exemplar_of_its_lag_bucket() -> None:
    exemplars = Exemplars(QueueLabels(["mail"]).of)
    due = NOW_SECONDS + 100.0 - 3.0 - 0.03  # Redis is 100 s ahead; the task began 3 s ago and was 30 ms late
    exemplars.take([running(entry("id-1", "mail", "d", due), 3.0)], 100.0, SHOWN)
    (place, found), *others = exemplars.by_series[TASK_LAG.name, ("mail", "delayed")].items()
    assert (TASK_LAG.buckets[place - 1], TASK_LAG.buckets[place]) == (0.025, 0.05)
    assert (found.labels, found.timestamp) == ({"task_id": "id-1"}, NOW_SECONDS - 3.0)
    assert found.value == pytest.approx(0.03)
    assert not others


def test_a_task_is_the_exemplar_of_only_one_lag_bucket() -> None:
    exemplars = Exemplars(QueueLabels(["mail"]).of)
    for clock_offset in (0.03, 0.2):
        exemplars.take([running(entry("id-1", "mail", "d", NOW_SECONDS), 0.0)], clock_offset, SHOWN)
    [found] = exemplars.by_series[TASK_LAG.name, ("mail", "delayed")].values()
    assert found.value == pytest.approx(0.03)


def test_the_exemplar_of_a_queue_of_a_pattern_is_labelled_with_the_pattern() -> None:
    exemplars = Exemplars(QueueLabels(["tenant-*"]).of)
    exemplars.take([running(entry("id-1", "tenant-7", "r", NOW_SECONDS), 0.0)], 0.0, SHOWN)
    assert list(exemplars.by_series) == [(TASK_LAG.name, ("tenant-*", "retry"))]


@pytest.mark.parametrize(
    "text",
    [
        b"\xff",
        b"id-1 mail d",
        b"id-1 mail ? 1 1 0 0 0 0 -",
        b"id-1 mail d " + b"9" * 400 + b" 1 0 0 0 0 -",
        b'"} 1 mail d 1 1 0 0 0 0 -',
        b"a" * 120 + b" mail d 1 1 0 0 0 0 -",
        b"id-1 unknown d 1 1 0 0 0 0 -",
    ],
)
def test_invalid_text_in_a_slot_makes_no_exemplar(text: bytes) -> None:
    exemplars = Exemplars(QueueLabels(["mail"]).of)
    exemplars.take([running(text, 0.0)], 0.0, SHOWN)
    assert exemplars.by_series == {}
