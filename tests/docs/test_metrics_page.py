"""docs/metrics.md matches the code in the labels, the buckets and the cost of every metric."""

import re
from collections.abc import Iterable
from dataclasses import replace

import pytest

import metrics_page
from rota.child.slots import Phase
from rota.protocol.views import Consumers, QueueState
from rota.telemetry import metrics as m
from rota.telemetry.metrics import LAG_BUCKETS
from rota_supervisor.exporter.observer import (
    CpuTotals,
    put_processes,
    put_reading,
    put_running,
    put_settings,
    put_usage,
)
from rota_supervisor.exporter.queue_watch import Largest, QueueReading
from rota_supervisor.exporter.series import Samples, exposed_series, zeroes
from rota_supervisor.fleet_snapshot import Member
from rota_supervisor.layout import Role
from rota_supervisor.master.core.scaling_reason import CAUSES
from rota_supervisor.process import Usage
from support.child_settings import queue_settings
from support.prose import ROOT

PAGE = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
QUEUE = QueueState("q", 0, 0, 0, 0, 0, 0, 0, 0, paused=False, served=True)
READING = QueueReading(Largest(["q"], 1).choose([QUEUE], all_seen=True), 0, 0.0, Consumers(0, ()))
OF_A_PATTERN = replace(READING, shown=Largest(["q*"], 1).choose([QUEUE], all_seen=True))


def test_metric_tables_are_up_to_date() -> None:
    assert metrics_page.page(PAGE) == PAGE, "run `make docs`, which writes the tables of docs/metrics.md again"
    rows = [line.split("`")[1] for line in PAGE.splitlines() if line.startswith("| `rota_")]
    assert rows == [definition.name for definition in m.ALL]


@pytest.mark.parametrize("buckets", [LAG_BUCKETS, m.RUNTIME_BUCKETS, m.COMMAND_BUCKETS])
def test_the_metrics_page_names_the_buckets_of_every_histogram(buckets: tuple[float, ...]) -> None:
    assert f": {' '.join(f'{bound:g}'.removeprefix('0') for bound in buckets)}" in PAGE


def cost(what: str) -> int:
    """Return the number of series that the table of costs on the page gives in the row that begins with `what`."""
    found = re.search(rf"^\| {what}[^|]*\| (?:up to )?(\d+) \|$", PAGE, re.MULTILINE)
    assert found, what
    return int(found[1])


def total(samples: Samples) -> int:
    return sum(1 for definition in m.ALL for _ in samples.series(definition))


def by_redis(reading: QueueReading = READING) -> int:
    samples = Samples()
    put_reading(samples, reading)
    return sum(1 for definition in m.ALL for labels, _ in samples.series(definition) if "q" in labels)


def test_the_metrics_page_states_how_many_series_a_queue_adds() -> None:
    samples = Samples()
    put_settings(samples, (queue_settings("q"),), "1", 0.0)
    put_running(samples, (), (queue_settings("q"),))
    configured = sum(1 for definition in m.ALL for labels, _ in samples.series(definition) if labels == ("q",))
    recorded = sum(exposed_series(definition) for definition, labels in zeroes(["q"]) if "q" in labels)
    assert cost("configured queue") == recorded + configured + by_redis()
    of_a_start = exposed_series(m.TASK_LAG) + exposed_series(m.QUEUE_WAIT)
    assert cost("queue and kind with a started task") == of_a_start
    assert cost("queue with a task that waited for its due time") == exposed_series(m.PROMOTION_LAG)
    assert cost("queue with a throttled task, and once more for one with a recovered task") == sum(
        exposed_series(each) for each in m.ALL if "kind" in each.labels
    )
    assert cost("queue in Redis that is not configured") == by_redis()
    assert cost("queue of a pattern that is among the largest") == by_redis(OF_A_PATTERN)


def test_the_metrics_page_states_how_many_series_a_process_adds() -> None:
    samples = Samples()
    member = Member(8, Role.WORKER, 1, Phase.IDLE, 0.0)
    put_processes(samples, (member,))
    put_usage(samples, {member: Usage(1, 1.0, 1)})
    CpuTotals().put(samples, {member: Usage(1, 1.0, 1)})
    assert cost("living process") == total(samples)


def test_the_metrics_page_states_how_many_series_tasks_and_pools_add() -> None:
    values = {"outcome": 6, "reason": 10, "state": len(m.WORKER_STATES), "count": 4, "cause": len(CAUSES)}
    of_a_range = {m.FLEET_WORKERS_WANTED, m.POOL_WORKERS, m.SCALING_LIMITED}

    def costs(definitions: Iterable[m.Definition]) -> int:
        return sum(
            exposed_series(definition) * max(values.get(label, 1) for label in definition.labels)
            for definition in definitions
        )

    assert cost("queue and task that ran") == costs(each for each in m.ALL if "task" in each.labels)
    of_pools = {each for each in m.ALL if "pool" in each.labels}
    assert cost("pool") == costs(of_pools - of_a_range)
    assert cost("pool with a range of workers, beyond that") == costs(of_a_range)
