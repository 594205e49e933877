"""The reading side of metrics: what the processes of all slots recorded, as one set of samples.

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
from dataclasses import dataclass

from rota.child.slot_layout import REGION_BYTES, WORD
from rota.child.slot_memory import SlotMemory, region_at
from rota.telemetry.metrics import ALL, OTHER, Definition, GaugeDefinition, HistogramDefinition, Merge
from rota.telemetry.records import FIRST_WORD, is_sound, scan, series_of, stamp_of, used_words
from rota_supervisor.exporter.samples import Labels, Numbers, Samples


@dataclass(frozen=True, slots=True)
class Series:
    """One series of one slot, and where its numbers stand, in words."""

    definition: Definition
    labels: Labels
    start: int
    end: int


Reading = Iterable[tuple[Series, Numbers]]


class RegionReader:
    """One slot's records, as they were last found to be sound. Their places never change, so each is parsed once."""

    def __init__(self, region: memoryview) -> None:
        self._region = region
        self._words = region.cast("q")
        self._disowned: list[tuple[Series, Numbers]] = []
        self._begin(0)

    def _begin(self, stamp: int) -> None:
        self._stamp = stamp
        self._parsed = FIRST_WORD
        self._series: list[Series] = []
        self._found = memoryview(b"").cast("d")

    def read(self) -> Iterator[tuple[Series, Numbers]]:
        """Each series with its numbers as they are now, or as they were when they last made sense."""
        stamp = stamp_of(self._words)
        if stamp not in (0, self._stamp):
            self._disowned += self._read_found()
            self._begin(stamp)
        used = used_words(self._words)
        if stamp and used >= self._parsed:
            self._parse_up_to(used)
            self._find()
        yield from self._read_found()

    def take_disowned(self) -> Reading:
        """What stood there before a process began anew, once."""
        disowned, self._disowned = self._disowned, []
        return disowned

    def _read_found(self) -> Iterator[tuple[Series, Numbers]]:
        for series in self._series:
            if series.end <= len(self._found):
                yield series, tuple(self._found[series.start : series.end])

    def _parse_up_to(self, used: int) -> None:
        for record in scan(self._region, self._words, self._parsed, used):
            self._parsed = record.at + record.numbers
            series = series_of(record)
            if series is not None:
                self._series.append(Series(*series, record.at, self._parsed))

    def _find(self) -> None:
        before, now = self._found, memoryview(bytes(self._region[: self._parsed * WORD])).cast("d")
        spans = [(each.definition, slice(each.start, each.end)) for each in self._series]
        if all(is_sound(definition, before[span], now[span].tolist()) for definition, span in spans):
            self._found = now


class SeriesBound:
    """Says which label sets are shown under their own names. Whoever was admitted stays."""

    def __init__(self, max_series: int) -> None:
        self._room = max_series
        self._admitted: set[tuple[str, Labels]] = set()
        self._refused: set[tuple[str, Labels]] = set()

    @property
    def refused(self) -> int:
        """How many label sets found no room so far."""
        return len(self._refused)

    def admit(self, definition: Definition, labels: Labels) -> Labels:
        """These labels, or `_other` for each when there is no room."""
        if (definition.name, labels) in self._admitted:
            return labels
        others = (OTHER,) * len(labels)
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
    """How many time series one label set of a metric is for Prometheus: a histogram has `_count` and `+Inf` too."""
    return definition.numbers + 1 if isinstance(definition, HistogramDefinition) else 1


class Regions:
    """All slots' records. Not safe for two threads at once."""

    def __init__(self, memory: SlotMemory, max_series: int) -> None:
        self._memory = memory
        self._readers: dict[int, RegionReader] = {}
        self._disowned = Samples()
        self.bound = SeriesBound(max_series)

    def touched(self) -> Iterator[int]:
        """The slots that were ever written to."""
        at = region_at(0)
        while True:
            try:
                at = os.lseek(self._memory.fd, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # no data beyond
                    return
                raise
            number = (at - region_at(0)) // REGION_BYTES
            yield number
            at = region_at(number + 1)

    def read(self, living: Collection[int]) -> Samples:
        """The samples of all slots; `living` are those whose gauges count."""
        samples = Samples()
        for number in self.touched():
            self._read_into(samples, number, living=number in living)
        for definition in ALL:
            for labels, numbers in self._disowned.series(definition):
                samples.add(definition, labels, numbers)
        return samples

    def read_slot(self, number: int) -> Samples:
        """The samples of one slot alone, taken to live."""
        samples = Samples()
        self._read_into(samples, number, living=True)
        return samples

    def _read_into(self, samples: Samples, number: int, *, living: bool) -> None:
        reader = self._reader(number)
        self._merge(samples, reader.read(), living=living)
        self._merge(self._disowned, reader.take_disowned(), living=False)

    def _reader(self, number: int) -> RegionReader:
        reader = self._readers.get(number)
        if reader is None:
            reader = self._readers[number] = RegionReader(self._memory.slot(number).metrics)
        return reader

    def _merge(self, samples: Samples, records: Reading, *, living: bool) -> None:
        for series, numbers in records:
            labels = self.bound.admit(series.definition, series.labels)
            if not isinstance(series.definition, GaugeDefinition):
                samples.add(series.definition, labels, numbers)
            elif living and not math.isnan(numbers[0]):
                _merge_gauge(samples, series.definition, labels, numbers[0])


def _merge_gauge(samples: Samples, definition: GaugeDefinition, labels: Labels, value: float) -> None:
    known = samples.value(definition, *labels)
    if known is not None and definition.merge is Merge.MAX:
        samples.put(definition, labels, max(known, value))
    else:
        samples.add(definition, labels, (value,))
