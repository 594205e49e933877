"""The report of a worker, which counts all attempts: which of them it logs."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.child.child_settings import LogSettings
from rota.child.slot_layout import PROCESS_ROW_BYTES, REGION_BYTES
from rota.child.slots import Slot
from rota.protocol.entry import Entry, parse_entry
from rota.protocol.outcome import DONE, Outcome, RetryOutcome
from rota.protocol.turns import Claim, TurnReply, TurnStatus
from rota.telemetry import log
from rota.telemetry.metrics import (
    CLAIMS,
    CLAIMS_EMPTY,
    TASK_LAG,
    TASK_LAG_OBJECTIVE_MISSES,
    TASK_LAG_WORST,
    TASKS_PROCESSED,
    QueueLabels,
)
from rota.telemetry.recorder import Recorder, recent_peak
from rota.worker.attempt import Attempt
from rota.worker.redis_times import Times
from rota.worker.worker_report import Report
from support.child_settings import worker_settings
from support.region_reading import read_region

ENTRY = parse_entry(b"id-1 mail i 1000 1000 0 0 0 0 -")
NOW_NS = 90 * 10**9
TIMES = Times(2000, 0.001, None, 0.001, early=False, start_ns=NOW_NS)

NO_PATTERNS = QueueLabels()


class Bench:
    """A worker's report that is written to a separate slot."""

    def __init__(self, settings: LogSettings, labels: QueueLabels = NO_PATTERNS, **changes: Any) -> None:
        self.slot = Slot(memoryview(bytearray(REGION_BYTES)), memoryview(bytearray(PROCESS_ROW_BYTES)))
        recorder = Recorder(self.slot.metrics, label_of_queue=labels.of)
        self.report = Report(worker_settings(log=settings, **changes), recorder)

    def end(self, outcome: Outcome) -> None:
        self.report.attempt(ended_attempt(ENTRY, self.slot, outcome))

    def numbers(self, name: str) -> dict[tuple[str, ...], tuple[float, ...]]:
        found = read_region(self.slot.metrics)
        return {labels: numbers for definition, labels, numbers in found if definition.name == name}


def ended_attempt(entry: Entry, slot: Slot, outcome: Outcome) -> Attempt:
    return Attempt(entry, "send", 1, slot.record(0), 1, None, times=TIMES, runtime_seconds=0.5, outcome=outcome)


@pytest.fixture
def log_fd(tmp_path: Path) -> Iterator[int]:
    """Yield a file descriptor to which a test may log. Afterwards, the log settings are reset."""
    fd = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    yield fd
    log.configure(LogSettings())
    os.close(fd)


def events_in(fd: int) -> list[str]:
    return [json.loads(line)["event"] for line in os.pread(fd, 1 << 20, 0).splitlines()]


@pytest.mark.parametrize(
    ("settings", "events"),
    [
        (LogSettings(format="json", tasks="all"), ["task.done", "task.done", "task.retried"]),
        (LogSettings(format="json", tasks="sample"), ["task.done", "task.retried"]),
        (LogSettings(format="json", tasks="failures"), ["task.retried"]),
        (LogSettings(format="json", level="warning", tasks="all"), ["task.retried"]),
        (LogSettings(format="json", level="error", tasks="all"), []),
    ],
)
def test_only_the_successes_that_the_settings_select_are_logged(
    log_fd: int, settings: LogSettings, events: list[str]
) -> None:
    log.configure(settings, log_fd)
    bench = Bench(settings)
    for outcome in (DONE, DONE, RetryOutcome(1)):
        bench.end(outcome)
    assert events_in(log_fd) == events


def test_metrics_count_every_attempt_whether_or_not_it_is_logged() -> None:
    bench = Bench(LogSettings(tasks="failures", level="error"))
    for outcome in (DONE, DONE, RetryOutcome(1)):
        bench.end(outcome)
    bench.report.started(ENTRY, TIMES)
    assert bench.numbers(TASKS_PROCESSED.name) == {("mail", "send", "done"): (2.0,), ("mail", "send", "retry"): (1.0,)}
    assert sum(bench.numbers(TASK_LAG.name)["mail", "immediate"][:-1]) == 1


@pytest.mark.parametrize(("objective", "expected"), [(0.0005, ["task.done", "task.retried"]), (0.01, ["task.retried"])])
def test_tasks_that_succeed_late_are_logged_if_the_settings_require_it(
    log_fd: int, objective: float, expected: list[str]
) -> None:
    log.configure(LogSettings(format="json", tasks="late"), log_fd)
    bench = Bench(LogSettings(tasks="late"), lag_objectives={"mail": objective})
    bench.end(DONE)
    bench.end(RetryOutcome(1))
    assert events_in(log_fd) == expected


def test_the_metric_of_the_worst_lag_excludes_throttled_tasks() -> None:
    bench = Bench(LogSettings())
    for letter, seconds in (("i", 1.0), ("r", 3.0), ("d", 2.0), ("t", 9.0)):
        entry = parse_entry(f"id mail {letter} 1000 1000 0 0 0 0 -".encode())
        bench.report.started(entry, TIMES._replace(lag_seconds=seconds))
    (numbers,) = bench.numbers(TASK_LAG_WORST.name).values()
    assert recent_peak(numbers, NOW_NS) == (3.0,)


def test_metrics_count_claims_by_queue() -> None:
    bench = Bench(LogSettings())
    claims = tuple(Claim(parse_entry(f"{n} {queue} i 1 1 0 0 0 0 -".encode()), b"") for n, queue in enumerate("aab"))
    bench.report.turn(TurnReply(TurnStatus.AGAIN, 0, 0, (), claims, ()), 1)
    assert bench.numbers(CLAIMS.name) == {("a",): (2.0,), ("b",): (1.0,)}


def test_claims_that_a_later_reply_repeats_are_not_counted_twice() -> None:
    bench = Bench(LogSettings())
    claim = Claim(parse_entry(b"id a i 1 1 0 0 0 0 -"), b"")
    bench.report.turn(TurnReply(TurnStatus.OK, 0, 0, (), (claim,), ()), 1, counts_claims=False)
    assert not bench.numbers(CLAIMS.name)
    assert not any(map(any, bench.numbers(CLAIMS_EMPTY.name).values()))


def test_queues_of_a_pattern_share_counters_and_the_lag_objective() -> None:
    bench = Bench(LogSettings(tasks="failures"), QueueLabels(["tenant-*"]), lag_objectives={"tenant-*": 0.0005})
    for number in range(1000):
        entry = parse_entry(f"id-1 tenant-{number} i 1000 1000 0 0 0 0 -".encode())
        bench.report.turn(TurnReply(TurnStatus.OK, 0, 0, (), (Claim(entry, b""),), ()), 1)
        bench.report.started(entry, TIMES)
        bench.report.attempt(ended_attempt(entry, bench.slot, DONE))

    assert bench.numbers(CLAIMS.name) == {("tenant-*",): (1000.0,)}
    assert bench.numbers(TASKS_PROCESSED.name) == {("tenant-*", "send", "done"): (1000.0,)}
    assert bench.numbers(TASK_LAG_OBJECTIVE_MISSES.name) == {("tenant-*", "immediate"): (1000.0,)}
    assert list(bench.numbers(TASK_LAG.name)) == [("tenant-*", "immediate")]
