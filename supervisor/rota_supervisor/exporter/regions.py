"""The metrics that processes have recorded in their slots, added up over all slots.

1. Slots that were never written to are not read, because reading a hole in a memfd allocates memory.
2. Counters and histograms are summed over all slots, including those of dead processes, so they never decrease. A
   reading adds only the records that have changed since the previous reading, because in a large fleet most records do
   not change in between.
3. A gauge counts only while the process of its slot is alive. A peak, such as the worst lag, counts until the expiry
   time stored with it.
4. A task may have overwritten the records of its slot. So a reading of the slot is ignored if its values are impossible
   after the previous ones, for example because a counter has decreased. The previous values are then kept, even after
   the next worker has started in the slot.
"""

import errno
import math
import os
import time
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator
from operator import add, sub
from struct import Struct
from typing import Final

from rota.child import slot_layout, slot_memory
from rota.child.slots import boottime_ns
from rota.telemetry import metrics as m
from rota.telemetry import recorder
from rota.telemetry.metrics import Definition, GaugeDefinition, PeakDefinition
from rota_supervisor.exporter.series import Labels, Numbers, Samples, Series, SeriesBound

_UNPACK: Final = {each.numbers: Struct(f"{each.numbers}d").unpack_from for each in m.ALL}
_TOGETHER: Final = 64  # the number of records that are compared in one operation
# Seconds are added up in multiples of 2**-20, so that sums are exact in any order. Otherwise the sum of a later
# exporter could be smaller because of a rounding error, and Prometheus would assume that the counter was reset.
_PARTS: Final = float(1 << 20)
_MAX_KEYS: Final = 1 << 18  # the maximum number of keys to remember, because a task can write any number of keys


class Total:
    """A series. If it is a counter or a histogram, its values are the sums over all slots.

    `born_at`: a time at which the series did not exist yet, in Unix seconds, or 0 if it existed at the first reading.
    """

    __slots__ = ("born_at", "definition", "labels", "numbers")

    def __init__(self, definition: Definition, labels: Labels, born_at: float) -> None:
        self.definition = definition
        self.labels = labels
        self.born_at = born_at
        self.numbers: Numbers = (0.0,) * definition.numbers

    @property
    def is_summed(self) -> bool:
        """Whether the values are summed, because the metric is a counter or a histogram."""
        return not isinstance(self.definition, GaugeDefinition | PeakDefinition)

    def growth(self, before: Numbers, now: Numbers) -> Numbers | None:
        """Return by how much each value of a slot has grown from `before` to `now`, or None if the change is
        impossible, for example because a counter has decreased. For a gauge, the result has no meaning, and `add`
        ignores it.
        """
        if not self.is_summed:
            return before
        grown = (*map(sub, now[:-1], before[:-1]), exact(now[-1]) - exact(before[-1]))
        if min(grown) >= 0.0 and sum(now) <= recorder.MOST:  # This is nearly always true, but false if a value is NaN.
            return grown
        if not recorder.is_sound(self.definition, before, now):
            return None
        return tuple(new - old if new != old else 0.0 for new, old in zip(now, before, strict=True))  # inf - inf is NaN

    def add(self, grown: Numbers) -> None:
        """Add the growth of one slot's values to the sums over all slots. A gauge has no sum, so this changes nothing
        for it.
        """
        if self.is_summed:
            self.numbers = tuple(map(add, self.numbers, grown))


class RegionReader:
    """The reader of the records in one slot. It remembers their last valid values. Records never move, so each is
    parsed only once.

    `total_of` returns the series to which a record belongs, or None if the record is not one of this version of Rota.
    """

    def __init__(self, region: memoryview, total_of: Callable[[recorder.SlotRecord], Total | None]) -> None:
        self._region = region
        self._cells = region.cast("q")
        self._total_of = total_of
        self._reset(0)

    def _reset(self, stamp: int) -> None:
        self._stamp = stamp
        self._parsed = recorder.FIRST_WORD
        self._totals: list[Total] = []
        # The byte range of each record's numbers
        self._starts = array("I")
        self._ends = array("I")
        self._gauges: list[int] = []  # the indexes of the records that are gauges or peaks
        self._believed = b""

    def add_up(self) -> int:
        """Add the growth of the records since the last call to the totals. If any record has impossible values, nothing
        is added. Returns the number of records that have changed.
        """
        stamp = recorder.stamp_of(self._cells)
        if stamp not in (0, self._stamp):
            self._reset(stamp)  # The totals keep what the slot counted before its reset.
        used = recorder.used_words(self._cells)
        if not stamp or used < self._parsed:
            return 0
        self._parse_up_to(used)
        now = bytes(self._region[: self._parsed * slot_layout.WORD])
        grown = [(self._totals[index], self._growth(index, now)) for index in self._changed(now)]
        sound = [(total, numbers) for total, numbers in grown if numbers is not None]
        if len(sound) == len(grown):
            self._believed = now
            for total, numbers in sound:
                total.add(numbers)
        return len(grown)

    def read(self) -> Iterator[Series]:
        """Yield each series of this slot with its current numbers, or with the last valid numbers if the current ones
        are impossible."""
        self.add_up()
        for index, total in enumerate(self._totals):
            if self._ends[index] <= len(self._believed):
                yield total.definition, total.labels, self._numbers(index, self._believed)

    def gauges(self) -> Iterator[Series]:
        """Yield the gauges and peaks of this slot, as read by the last `add_up`."""
        for index in self._gauges:
            if self._ends[index] <= len(self._believed):
                total = self._totals[index]
                yield total.definition, total.labels, self._numbers(index, self._believed)

    def _parse_up_to(self, used: int) -> None:
        for record in recorder.scan(self._region, self._cells, self._parsed, used):
            self._parsed = record.at + record.numbers
            if (total := self._total_of(record)) is not None:
                if not total.is_summed:
                    self._gauges.append(len(self._totals))
                self._totals.append(total)
                self._starts.append(record.at * slot_layout.WORD)
                self._ends.append(self._parsed * slot_layout.WORD)

    def _changed(self, now: bytes) -> Iterator[int]:
        """Yield the indexes of changed records. Many records are compared in one operation, because this takes hardly
        longer than comparing one.
        """
        before = self._believed
        begins = self._starts
        ends = self._ends
        if now == before:
            return
        for first in range(0, len(begins), _TOGETHER):
            last = min(first + _TOGETHER, len(begins))
            if now[begins[first] : ends[last - 1]] != before[begins[first] : ends[last - 1]]:
                for index in range(first, last):
                    if now[begins[index] : ends[index]] != before[begins[index] : ends[index]]:
                        yield index

    def _growth(self, index: int, now: bytes) -> Numbers | None:
        total = self._totals[index]
        known = self._ends[index] <= len(self._believed)
        before = self._numbers(index, self._believed) if known else (0.0,) * total.definition.numbers
        return total.growth(before, self._numbers(index, now))

    def _numbers(self, index: int, of: bytes) -> Numbers:
        return _UNPACK[self._totals[index].definition.numbers](of, self._starts[index])


def exact(seconds: float) -> float:
    """Return seconds, rounded down to a multiple of 2**-20, so that sums of such values are exact."""
    return math.floor(seconds * _PARTS) / _PARTS if math.isfinite(seconds) else seconds


def touched(memory: slot_memory.SlotMemory) -> Iterator[int]:
    """Yield the indexes of the slots that have ever been written to."""
    at = slot_memory.region_at(0)
    while True:
        try:
            at = os.lseek(memory.fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # There is no data after this position.
                return
            raise
        number = (at - slot_memory.region_at(0)) // slot_layout.REGION_BYTES
        yield number
        at = slot_memory.region_at(number + 1)


class Regions:
    """The records of all slots. Two threads must not use an instance at the same time."""

    def __init__(self, memory: slot_memory.SlotMemory, bound: SeriesBound) -> None:
        self._memory = memory
        self._readers: dict[int, RegionReader] = {}
        self._bound = bound
        self._by_key: dict[tuple[bytes, int], Total | None] = {}
        self._totals: dict[tuple[str, Labels], Total] = {}
        self._read_at = 0.0

    def create_zeros(self, series: Iterable[tuple[Definition, Labels]]) -> None:
        """Create these series with the value 0, to which later growth in the slots is added."""
        for definition, labels in series:
            self._total(definition, labels)

    def add_up(self) -> int:
        """Add the growth of all records since the last call to the totals. Returns the number of records that have
        changed.

        To spread the work, call this method more often than there are scrapes. A record takes 10 us, and in a large
        fleet 5,000 records change in a second.
        """
        now = time.time()
        changed = sum(self._reader(number).add_up() for number in touched(self._memory))
        self._read_at = now
        return changed

    def read(self, living: Collection[int]) -> Samples:
        """Return the samples of all slots. `living`: the slots whose process is alive, so that their gauges count."""
        samples = Samples()
        now_ns = boottime_ns()
        self.add_up()
        for number, reader in self._readers.items():
            for series in reader.gauges():
                _put_gauge(samples, series, now_ns, living=number in living)
        for total in self._totals.values():
            if total.is_summed:
                samples.put(total.definition, total.labels, *total.numbers)
        return samples

    def born_at(self, definition: Definition, labels: Labels) -> float:
        """Return a time at which this series did not exist yet, or 0 if no such time is known or no slot has the
        series."""
        total = self._totals.get((definition.name, labels))
        return 0.0 if total is None else total.born_at

    def _reader(self, number: int) -> RegionReader:
        reader = self._readers.get(number)
        if reader is None:
            reader = self._readers[number] = RegionReader(self._memory.slot(number).metrics, self._total_of)
        return reader

    def _total_of(self, record: recorder.SlotRecord) -> Total | None:
        key = (record.key, record.numbers)
        if key in self._by_key:
            return self._by_key[key]
        series = recorder.series_of(record)
        total = None if series is None else self._total(*series)
        if len(self._by_key) < _MAX_KEYS:
            self._by_key[key] = total
        return total

    def _total(self, definition: Definition, own_labels: Labels) -> Total:
        labels = self._bound.admit(definition, own_labels)
        name = definition.name, labels
        return self._totals.setdefault(name, Total(definition, labels, self._read_at))


def _put_gauge(samples: Samples, series: Series, now_ns: int, *, living: bool) -> None:
    definition, labels, numbers = series
    if isinstance(definition, PeakDefinition):
        samples.raise_to(definition, labels, recorder.recent_peak(numbers, now_ns))
    elif isinstance(definition, GaugeDefinition) and living and not math.isnan(numbers[0]):
        merge = samples.raise_to if definition.takes_highest else samples.add
        merge(definition, labels, numbers)


def starts(samples: Samples) -> Iterator[tuple[Labels, float]]:
    """Yield the number of starts of each queue and kind."""
    return ((labels, sum(numbers[:-1])) for labels, numbers in samples.series(m.TASK_LAG))
