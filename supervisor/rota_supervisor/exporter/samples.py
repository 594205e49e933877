"""Samples: the numbers of one scrape, as processes recorded them in all slots, and as families of prometheus_client.

1. Only slots that were ever written are looked at: reading a hole of a memfd would fill it with a page.
2. Counters and histograms are summed over all slots, dead ones too, so they never go back.
3. A gauge counts only from a slot whose process lives.
4. A task may have written over the records of its slot. What cannot have followed from what was read before is not
   believed, and what was read before stays shown; also when the next worker has begun anew there.
5. There are at most `max_series` series, and one `_other` a metric into which label sets beyond are added.
"""

import errno
import math
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add

from rota.child import slot_layout, slot_memory
from rota.child.slots import boottime_ns
from rota.printable import printable
from rota.telemetry import label_values, records
from rota.telemetry import metrics as m
from rota.telemetry.definition import (
    CounterDefinition,
    Definition,
    GaugeDefinition,
    HistogramDefinition,
    PeakDefinition,
)
from rota_supervisor.exporter.libraries import prometheus

Labels = tuple[str, ...]
Numbers = tuple[float, ...]
Series = tuple[Definition, Labels, Numbers]


@dataclass(frozen=True, slots=True)
class Samples:
    """What is known of each series: as many numbers as `Definition.numbers` says."""

    _by_name: dict[str, dict[Labels, Numbers]] = field(default_factory=dict)

    def put(self, definition: Definition, labels: Labels, *numbers: float) -> None:
        """Know this series, whatever was known of it."""
        self._by_name.setdefault(definition.name, {})[labels] = numbers

    def add(self, definition: Definition, labels: Labels, numbers: Numbers) -> None:
        """Add numbers to a series, from 0."""
        series = self._by_name.setdefault(definition.name, {})
        known = series.get(labels)
        series[labels] = numbers if known is None else tuple(map(add, known, numbers))

    def raise_to(self, definition: Definition, labels: Labels, numbers: Numbers) -> None:
        """Know the higher of these and what is known of a series."""
        self.put(definition, labels, *max(numbers, self.get(definition, *labels) or numbers))

    def series(self, definition: Definition) -> Iterator[tuple[Labels, Numbers]]:
        yield from self._by_name.get(definition.name, {}).items()

    def get(self, definition: Definition, *labels: str) -> Numbers | None:
        """Return the numbers of one series, or None when it is not known."""
        return self._by_name.get(definition.name, {}).get(labels)

    def value(self, definition: Definition, *labels: str) -> float | None:
        """Return the number of a counter or gauge, or None when it is not known."""
        numbers = self.get(definition, *labels)
        return None if numbers is None else numbers[0]


class RegionReader:
    """One slot's records, as they were last found to be sound. Their places never change, so each is parsed once."""

    def __init__(self, region: memoryview) -> None:
        self._region = region
        self._words = region.cast("q")
        self._disowned: list[Series] = []
        self._begin(0)

    def _begin(self, stamp: int) -> None:
        self._stamp = stamp
        self._parsed = records.FIRST_WORD
        self._places: list[tuple[Definition, Labels, slice]] = []
        self._numbers = memoryview(b"").cast("d")

    def read(self) -> Iterator[Series]:
        """Return each series with its numbers as they are now, or as they were when they last made sense."""
        stamp = records.stamp_of(self._words)
        if stamp not in (0, self._stamp):
            self._disowned += self._found()
            self._begin(stamp)
        used = records.used_words(self._words)
        if stamp and used >= self._parsed:
            self._parse_up_to(used)
            now = memoryview(bytes(self._region[: self._parsed * slot_layout.WORD])).cast("d")
            before = self._numbers
            if all(records.is_sound(each, before[span], now[span].tolist()) for each, _, span in self._places):
                self._numbers = now
        return self._found()

    def take_disowned(self) -> list[Series]:
        """Return what stood there before a process began anew, once."""
        disowned, self._disowned = self._disowned, []
        return disowned

    def _parse_up_to(self, used: int) -> None:
        for record in records.scan(self._region, self._words, self._parsed, used):
            self._parsed = record.at + record.numbers
            if series := records.series_of(record):
                self._places.append((*series, slice(record.at, self._parsed)))

    def _found(self) -> Iterator[Series]:
        for definition, labels, span in self._places:
            if span.stop <= len(self._numbers):
                yield definition, labels, tuple(self._numbers[span])


class SeriesBound:
    """Says which label sets are shown under their own names. Whoever was admitted stays."""

    def __init__(self, max_series: int) -> None:
        self._room = max_series
        self._admitted: set[tuple[str, Labels]] = set()
        self._refused: set[tuple[str, Labels]] = set()

    @property
    def refused(self) -> int:
        return len(self._refused)

    def admit(self, definition: Definition, labels: Labels) -> Labels:
        """Return these labels, or `_other` for each when there is no room."""
        if (definition.name, labels) in self._admitted:
            return labels
        others = (label_values.OTHER,) * len(labels)
        if labels != others and exposed_series(definition) > self._room:
            self._refused.add((definition.name, labels))
            return others
        self.keep(definition, labels)
        return labels

    def keep(self, definition: Definition, labels: Labels) -> None:
        """Admit these labels, room or not."""
        self._room -= exposed_series(definition)
        self._admitted.add((definition.name, labels))


def exposed_series(definition: Definition) -> int:
    """Return how many time series a label set is for Prometheus: a histogram has `_count` and `+Inf` too."""
    return definition.numbers + 1 if isinstance(definition, HistogramDefinition) else 1


class Regions:
    """All slots' records. Not safe for two threads at once."""

    _now_ns = 0  # CLOCK_BOOTTIME at the last look

    def __init__(self, memory: slot_memory.SlotMemory, max_series: int) -> None:
        self._memory = memory
        self._readers: dict[int, RegionReader] = {}
        self._disowned = Samples()
        self.bound = SeriesBound(max_series)

    def touched(self) -> Iterator[int]:
        """Yield the slots that were ever written to."""
        at = slot_memory.region_at(0)
        while True:
            try:
                at = os.lseek(self._memory.fd, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # no data beyond
                    return
                raise
            number = (at - slot_memory.region_at(0)) // slot_layout.REGION_BYTES
            yield number
            at = slot_memory.region_at(number + 1)

    def read(self, living: Collection[int]) -> Samples:
        """Return the samples of all slots; `living` are those whose gauges count."""
        samples = Samples()
        self._now_ns = boottime_ns()
        for number in self.touched():
            self._read_into(samples, number, living=number in living)
        for definition in m.ALL:
            for labels, numbers in self._disowned.series(definition):
                samples.add(definition, labels, numbers)
        return samples

    def read_slot(self, number: int) -> Samples:
        """Return the samples of one slot alone, taken to live."""
        samples = Samples()
        self._read_into(samples, number, living=True)
        return samples

    def _read_into(self, samples: Samples, number: int, *, living: bool) -> None:
        reader = self._readers.get(number)
        if reader is None:
            reader = self._readers[number] = RegionReader(self._memory.slot(number).metrics)
        self._merge(samples, reader.read(), living=living)
        self._merge(self._disowned, reader.take_disowned(), living=False)

    def _merge(self, samples: Samples, found: Iterable[Series], *, living: bool) -> None:
        for definition, own_labels, numbers in found:
            labels = self.bound.admit(definition, own_labels)
            if isinstance(definition, PeakDefinition):
                samples.raise_to(definition, labels, records.recent_peak(numbers, self._now_ns))
            elif not isinstance(definition, GaugeDefinition):
                samples.add(definition, labels, numbers)
            elif living and not math.isnan(numbers[0]):
                merge = samples.raise_to if definition.takes_highest else samples.add
                merge(definition, labels, numbers)


def families(samples: Samples, fleet: str) -> Iterator[prometheus.Metric]:
    """Yield one family a metric that has samples, in the order of the definitions. Every series has the label `fleet`:
    without it two fleets that one job scrapes would be one."""
    for definition in m.ALL:
        if series := sorted(samples.series(definition)):
            named = [(tuple(map(printable, (fleet, *labels))), numbers) for labels, numbers in series]
            yield _family(definition, named)


def empty_families() -> Iterator[prometheus.Metric]:
    """Yield one family a metric, without samples: which names there are."""
    return (_family(definition, []) for definition in m.ALL)


def _family(definition: Definition, series: list[tuple[Labels, Numbers]]) -> prometheus.Metric:
    labels_shown = ("fleet", *definition.labels)
    if isinstance(definition, HistogramDefinition):
        histogram = prometheus.HistogramMetricFamily(definition.name, definition.help, labels=labels_shown)
        bounds = [*map(str, definition.buckets), "+Inf"]
        for labels, (*counts, total) in series:
            histogram.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
        return histogram
    is_counter = isinstance(definition, CounterDefinition)
    kind = prometheus.CounterMetricFamily if is_counter else prometheus.GaugeMetricFamily
    family = kind(definition.name, definition.help, labels=labels_shown)
    for labels, numbers in series:
        family.add_metric(labels, numbers[0])
    return family
