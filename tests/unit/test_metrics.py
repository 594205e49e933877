"""The definitions of metrics. Prometheus and its linter accept the names, and each label has the same meaning
everywhere.
"""

import re

import pytest

from rota.telemetry import metrics as m
from rota.telemetry.metrics import LAG_BUCKETS, CounterDefinition, Definition, HistogramDefinition

LABELS = {
    "queue",
    "cause",
    "count",
    "kind",
    "task",
    "outcome",
    "reason",
    "pool",
    "state",
    "role",
    "slot",
    "result",
    "command",
    "pattern",
    "schedule",
    "source",
}
BUILD_LABELS = {"version", "protocol", "fleet"}


@pytest.mark.parametrize("definition", m.ALL, ids=lambda d: d.name)
def test_each_metric_definition_follows_the_naming_conventions(definition: Definition) -> None:
    assert re.fullmatch(r"rota_[a-z_]+", definition.name)
    assert definition.name.endswith("_total") == isinstance(definition, CounterDefinition)
    assert definition.help.endswith((".", '"_other".'))
    assert set(definition.labels) <= (BUILD_LABELS if definition is m.BUILD_INFO else LABELS)
    assert definition.writers
    if isinstance(definition, HistogramDefinition):
        assert definition.name.endswith("_seconds")
        assert list(definition.buckets) == sorted(set(definition.buckets))


def test_every_metric_definition_is_listed_once() -> None:
    names = [definition.name for definition in m.ALL]
    assert len(names) == len(set(names)) == len(m.BY_NAME)
    assert {value for value in vars(m).values() if isinstance(value, Definition)} == set(m.ALL)


def test_the_histogram_buckets_are_the_documented_ones() -> None:
    assert LAG_BUCKETS[:6] == (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05)
    assert LAG_BUCKETS[-4:] == (300, 600, 1800, 3600)
    assert len(LAG_BUCKETS) == 20
    assert m.RUNTIME_BUCKETS[-4:] == (60, 300, 900, 3600)
    assert len(m.RUNTIME_BUCKETS) == 17
    for histogram in (m.TASK_LAG, m.PROMOTION_LAG, m.QUEUE_WAIT):
        assert histogram.buckets == LAG_BUCKETS
    assert m.TASK_RUNTIME.buckets == m.RUNTIME_BUCKETS
