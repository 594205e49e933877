"""Samples as metric families of prometheus_client: names, types and help from `rota.telemetry.metrics`."""

from collections.abc import Iterator
from itertools import accumulate

from rota.printable import printable
from rota.telemetry import metrics as m
from rota.telemetry.metrics import CounterDefinition, Definition, GaugeDefinition, HistogramDefinition
from rota_supervisor.exporter.libraries import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from rota_supervisor.exporter.samples import Labels, Numbers, Samples


def families(samples: Samples) -> Iterator[Metric]:
    """One family a metric that has samples, in the order of the definitions."""
    for definition in m.ALL:
        series = sorted(samples.series(definition))
        if series:
            yield _family(definition, [(tuple(map(printable, labels)), numbers) for labels, numbers in series])


def empty_families() -> Iterator[Metric]:
    """One family a metric, without samples: which names there are."""
    for definition in m.ALL:
        yield _family(definition, [])


def _family(definition: Definition, series: list[tuple[Labels, Numbers]]) -> Metric:
    match definition:
        case CounterDefinition():
            counter = CounterMetricFamily(definition.name, definition.help, labels=definition.labels)
            for labels, numbers in series:
                counter.add_metric(labels, numbers[0])
            return counter
        case GaugeDefinition():
            gauge = GaugeMetricFamily(definition.name, definition.help, labels=definition.labels)
            for labels, numbers in series:
                gauge.add_metric(labels, numbers[0])
            return gauge
        case HistogramDefinition():
            histogram = HistogramMetricFamily(definition.name, definition.help, labels=definition.labels)
            bounds = [*map(str, definition.buckets), "+Inf"]
            for labels, (*counts, total) in series:
                histogram.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
            return histogram
        case _:
            raise TypeError(f"{definition.name} is neither counter, gauge nor histogram")
