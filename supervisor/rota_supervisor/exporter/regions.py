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

from rota.child.slot_memory import SlotMemory, region_at
from rota.child.slot_outcomes import REGION_BYTES
from rota.child.slot_told import WORD
from rota.telemetry import metrics as m
from rota.telemetry import records
from rota_supervisor.exporter.samples import Labels, Numbers, Samples

Series = tuple[m.Definition, Labels, Numbers]


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
        self._places: list[tuple[m.Definition, Labels, slice]] = []
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
            now = memoryview(bytes(self._region[: self._parsed * WORD])).cast("d")
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
        """How many label sets found no room so far."""
        return len(self._refused)

    def admit(self, definition: m.Definition, labels: Labels) -> Labels:
        """Return these labels, or `_other` for each when there is no room."""
        if (definition.name, labels) in self._admitted:
            return labels
        others = (m.OTHER,) * len(labels)
        if labels != others and exposed_series(definition) > self._room:
            self._refused.add((definition.name, labels))
            return others
        self.keep(definition, labels)
        return labels

    def keep(self, definition: m.Definition, labels: Labels) -> None:
        """Admit these labels, room or not."""
        self._room -= exposed_series(definition)
        self._admitted.add((definition.name, labels))


def exposed_series(definition: m.Definition) -> int:
    """Return how many time series a label set is for Prometheus: a histogram has `_count` and `+Inf` too."""
    return definition.numbers + 1 if isinstance(definition, m.HistogramDefinition) else 1


class Regions:
    """All slots' records. Not safe for two threads at once."""

    def __init__(self, memory: SlotMemory, max_series: int) -> None:
        self._memory = memory
        self._readers: dict[int, RegionReader] = {}
        self._disowned = Samples()
        self.bound = SeriesBound(max_series)

    def touched(self) -> Iterator[int]:
        """Yield the slots that were ever written to."""
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
        """Return the samples of all slots; `living` are those whose gauges count."""
        samples = Samples()
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
            if not isinstance(definition, m.GaugeDefinition):
                samples.add(definition, labels, numbers)
            elif living and not math.isnan(numbers[0]):
                known = samples.value(definition, *labels) if definition.merge is m.Merge.MAX else None
                if known is None:
                    samples.add(definition, labels, numbers)
                else:
                    samples.put(definition, labels, max(known, numbers[0]))
