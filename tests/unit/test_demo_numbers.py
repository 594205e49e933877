"""Reading the fleet's metrics, as the demo does."""

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from rota_supervisor.demo.numbers import LagNumbers, Numbers, RecentLag, lag_of, read_numbers, since

from rota.telemetry import metrics as m
from rota.telemetry.definition import LAG_BUCKETS, GaugeDefinition

QUEUES = ("mail", "reports")


class Exporter:
    """A few of the fleet's metrics, by the library that writes them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.lag = Histogram(m.TASK_LAG.name, "-", ("queue", "kind"), buckets=LAG_BUCKETS, registry=self.registry)
        self.processed = Counter(m.TASKS_PROCESSED.name, "-", m.TASKS_PROCESSED.labels, registry=self.registry)
        self.restarts = Counter(m.PROCESS_RESTARTS.name, "-", m.PROCESS_RESTARTS.labels, registry=self.registry)
        self.workers = Gauge(m.WORKERS.name, "-", m.WORKERS.labels, registry=self.registry)
        for queue in QUEUES:
            self.lag.labels(queue, "immediate")

    def gauge(self, definition: GaugeDefinition, value: float, *labels: str) -> None:
        gauge = Gauge(definition.name, "-", definition.labels, registry=self.registry)
        (gauge.labels(*labels) if labels else gauge).set(value)

    def read(self) -> Numbers:
        return read_numbers(generate_latest(self.registry).decode(), QUEUES)


def test_counts_are_summed_over_what_is_not_asked_for() -> None:
    exporter = Exporter()
    exporter.processed.labels("mail", "a", "done").inc(2)
    exporter.processed.labels("mail", "b", "done").inc(3)
    exporter.processed.labels("mail", "b", "retry").inc(9)
    exporter.restarts.labels("worker", "signal").inc()
    exporter.restarts.labels("worker", "oom").inc(0)
    exporter.workers.labels("default", "running").set(4)
    exporter.workers.labels("default", "draining").set(2)
    numbers = exporter.read()

    assert numbers.queues["mail"].done == 5
    assert numbers.done == 5
    assert numbers.restarts == {("worker", "signal"): 1}
    assert numbers.running == 4


def test_what_redis_did_not_say_is_unknown_and_not_zero() -> None:
    exporter = Exporter()
    assert exporter.read().missing is None
    assert exporter.read().queues["mail"].ready is None
    assert not exporter.read().is_idle

    exporter.gauge(m.AUDIT_MISSING, 0)
    exporter.gauge(m.QUEUE_READY, 7, "mail")
    assert exporter.read().missing == 0
    assert exporter.read().queues["mail"].ready == 7


def test_a_fleet_is_idle_when_nothing_waits_or_runs() -> None:
    exporter = Exporter()
    gauges = [
        Gauge(definition.name, "-", definition.labels, registry=exporter.registry)
        for definition in (m.QUEUE_READY, m.QUEUE_SCHEDULED, m.QUEUE_INFLIGHT)
    ]
    for gauge in gauges:
        for queue in QUEUES:
            gauge.labels(queue).set(0)
    assert exporter.read().is_idle

    gauges[2].labels("reports").set(1)
    assert not exporter.read().is_idle


def test_quantiles_are_of_all_kinds_of_a_queue_together() -> None:
    exporter = Exporter()
    for _ in range(98):
        exporter.lag.labels("mail", "immediate").observe(0.003)
    for _ in range(2):
        exporter.lag.labels("mail", "delayed").observe(0.7)
    histogram = exporter.read().queues["mail"].lag

    assert sum(histogram[:-1]) == 100
    assert histogram[-1] == pytest.approx(98 * 0.003 + 2 * 0.7)
    lag = lag_of(histogram)
    assert lag.p50 is not None
    assert 0.0025 < lag.p50 < 0.005
    assert lag.p99 == pytest.approx(0.75)  # the middle of its bucket, from 0.5 to 1


def test_without_starts_there_is_no_lag() -> None:
    exporter = Exporter()

    assert lag_of(exporter.read().queues["reports"].lag) == LagNumbers(None, None)
    assert lag_of(()) == LagNumbers(None, None)


def test_recent_lag_forgets_what_is_older_than_its_window() -> None:
    exporter = Exporter()
    recent = RecentLag()
    assert recent.by_queue() == {}
    exporter.lag.labels("mail", "immediate").observe(100)
    recent.add(0.0, exporter.read())
    slow = recent.by_queue()["mail"].p99
    assert slow is not None
    assert slow > 60

    for second in range(1, 9):
        exporter.lag.labels("mail", "immediate").observe(0.003)
        recent.add(float(second), exporter.read())
    fast = recent.by_queue()["mail"].p99
    assert fast is not None
    assert fast < 0.005
    assert recent.by_queue()["reports"] == LagNumbers(None, None)


def test_a_difference_of_histograms_is_what_came_between() -> None:
    assert since((3.0, 5.0, 1.5), (1.0, 5.0, 0.5)) == (2.0, 0.0, 1.0)


@pytest.mark.parametrize("text", ["", "# HELP other_total -\n# TYPE other_total counter\nother_total 1.0\n"])
def test_an_answer_without_our_queues_is_no_reading(text: str) -> None:
    with pytest.raises(ValueError, match="no rota_task_lag_seconds"):
        read_numbers(text, QUEUES)
