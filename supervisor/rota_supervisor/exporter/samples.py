"""Samples: the numbers of one scrape, by metric and label values; and as metric families of prometheus_client."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add

from rota.printable import printable
from rota.telemetry import metrics as m
from rota_supervisor.exporter import libraries

Labels = tuple[str, ...]
Numbers = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Samples:
    """What is known of each series: as many numbers as `Definition.numbers` says."""

    _by_name: dict[str, dict[Labels, Numbers]] = field(default_factory=dict)

    def put(self, definition: m.Definition, labels: Labels, *numbers: float) -> None:
        """Know this series, whatever was known of it."""
        self._by_name.setdefault(definition.name, {})[labels] = numbers

    def add(self, definition: m.Definition, labels: Labels, numbers: Numbers) -> None:
        """Add numbers to a series, from 0."""
        series = self._by_name.setdefault(definition.name, {})
        known = series.get(labels)
        series[labels] = numbers if known is None else tuple(map(add, known, numbers))

    def series(self, definition: m.Definition) -> Iterator[tuple[Labels, Numbers]]:
        """Yield the series of a metric."""
        yield from self._by_name.get(definition.name, {}).items()

    def get(self, definition: m.Definition, *labels: str) -> Numbers | None:
        """Return the numbers of one series, or None when it is not known."""
        return self._by_name.get(definition.name, {}).get(labels)

    def value(self, definition: m.Definition, *labels: str) -> float | None:
        """Return the number of a counter or gauge, or None when it is not known."""
        numbers = self.get(definition, *labels)
        return None if numbers is None else numbers[0]


def families(samples: Samples) -> Iterator[libraries.Metric]:
    """Yield one family a metric that has samples, in the order of the definitions."""
    for definition in m.ALL:
        if series := sorted(samples.series(definition)):
            yield _family(definition, [(tuple(map(printable, labels)), numbers) for labels, numbers in series])


def empty_families() -> Iterator[libraries.Metric]:
    """Yield one family a metric, without samples: which names there are."""
    return (_family(definition, []) for definition in m.ALL)


def _family(definition: m.Definition, series: list[tuple[Labels, Numbers]]) -> libraries.Metric:
    if isinstance(definition, m.HistogramDefinition):
        histogram = libraries.HistogramMetricFamily(definition.name, definition.help, labels=definition.labels)
        bounds = [*map(str, definition.buckets), "+Inf"]
        for labels, (*counts, total) in series:
            histogram.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
        return histogram
    is_counter = isinstance(definition, m.CounterDefinition)
    kind = libraries.CounterMetricFamily if is_counter else libraries.GaugeMetricFamily
    family = kind(definition.name, definition.help, labels=definition.labels)
    for labels, numbers in series:
        family.add_metric(labels, numbers[0])
    return family
