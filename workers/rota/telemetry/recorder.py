"""The writing side of metrics: append-only records in a slot, numbers that only their slot's process writes.

The region, in 8-byte words: `used` (in words, itself included; 0 while nothing was ever written) and then
records. A record: length in words | count of numbers | length of the key in bytes | checksum | key, padded
to words | numbers. The key is the JSON array `[metric, label value, ...]`.

A record is written whole, its numbers zeroed, before `used` is published, so what a killed writer left
beyond `used` is garbage and is overwritten. Nothing is moved or removed ever: the next process of the slot
finds the records and goes on counting, and a reader may look at any time. Numbers are only written as
aligned doubles through `memoryview.cast("d")`, which a reader never sees half of.

Measured with CPython 3.11: `observe` on a kept child 0.26 us, `add` 0.10 us, `set` 0.06 us; finding the
child by its labels first adds 0.3 us. One process, one thread: two threads adding at once may lose one.
"""

import json
import math
import zlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from rota.child.slot_outcomes import WORD
from rota.telemetry.metrics import (
    BY_NAME,
    OTHER,
    SERIES_DROPPED,
    CounterDefinition,
    Definition,
    GaugeDefinition,
    HistogramDefinition,
)

MAX_SERIES: Final = 20_000
MAX_LABEL = 200  # characters; every name Rota accepts has at most 128

_USED = 0
FIRST_WORD = 1
_HEAD_WORDS = 4  # length, count of numbers, length of the key, checksum
# Kept free for the `_other` records: all metrics of `rota.telemetry.metrics` together need less.
_RESERVED_WORDS = (32 << 10) // WORD


@dataclass(frozen=True, slots=True)
class Record:
    """One record: its key, and where its numbers stand in the region, in words."""

    key: bytes
    at: int
    numbers: int


def used_words(words: memoryview) -> int:
    """How far the region is written; clamped, so that nonsense in it is not followed."""
    used: int = words[_USED]
    return min(max(used, FIRST_WORD), len(words))


def scan(region: memoryview, words: memoryview, start: int, end: int) -> Iterator[Record]:
    """The records from word `start` to word `end`, up to the first that its checksum disowns.

    `words` is the region cast to "q". Safe while another process writes: what stands below `used`
    never changes but for the numbers.
    """
    at = start
    while at + _HEAD_WORDS <= end:
        length, numbers, key_bytes, checksum = words[at : at + _HEAD_WORDS]
        key_at = (at + _HEAD_WORDS) * WORD
        key = bytes(region[key_at : key_at + max(key_bytes, 0)])
        if length != _record_words(key_bytes, numbers) or at + length > end or checksum != _checksum(numbers, key):
            return
        yield Record(key, at + length - numbers, numbers)
        at += length


def encode_key(name: str, labels: tuple[str, ...]) -> bytes:
    """The key of a series."""
    return json.dumps([name, *labels], separators=(",", ":")).encode()


def decode_key(key: bytes) -> tuple[str, tuple[str, ...]]:
    """The metric's name and the label values behind a key that passed its checksum."""
    name, *labels = json.loads(key)
    return name, tuple(labels)


def _record_words(key_bytes: int, numbers: int) -> int:
    return _HEAD_WORDS + -(-key_bytes // WORD) + numbers


def _checksum(numbers: int, key: bytes) -> int:
    return zlib.crc32(key, numbers)


class Counter:
    """One counter of this slot."""

    __slots__ = ("_at", "_numbers")

    def __init__(self, numbers: "memoryview[float]", at: int) -> None:
        self._numbers = numbers
        self._at = at

    def add(self, n: float = 1.0) -> None:
        """Count `n` more; `n` is never below 0."""
        self._numbers[self._at] += n


class Gauge:
    """One gauge of this slot. It counts only while the process that set it lives."""

    __slots__ = ("_at", "_numbers")

    def __init__(self, numbers: "memoryview[float]", at: int) -> None:
        self._numbers = numbers
        self._at = at

    def set(self, value: float) -> None:
        """Show this value from now on. NaN takes the series away, as for a pool that is no more."""
        self._numbers[self._at] = value


class Histogram:
    """One histogram of this slot."""

    __slots__ = ("_at", "_bounds", "_numbers", "_sum_at")

    def __init__(self, numbers: "memoryview[float]", at: int, bounds: tuple[float, ...]) -> None:
        self._numbers = numbers
        self._at = at
        self._bounds = bounds
        self._sum_at = at + len(bounds) + 1

    def observe(self, value: float) -> None:
        """Count one observation. Below 0 it counts as 0, so that the sum never goes back."""
        if value < 0.0:  # noqa: PLR1730 - max() costs a fifth of the whole call
            value = 0.0
        numbers = self._numbers
        numbers[self._at + bisect_left(self._bounds, value)] += 1.0
        numbers[self._sum_at] += value


Child = TypeVar("Child", Counter, Gauge, Histogram)


class Recorder:
    """Finds or makes the children of metrics in `region`, the `Slot.metrics` of the process's own slot.

    When the region is full, or a metric has `max_series` label sets here already, the child is the one
    whose every label is `_other`, and `rota_metrics_series_dropped_total` counts. Raises ValueError for
    a region too small for those.
    """

    def __init__(self, region: memoryview, max_series: int = MAX_SERIES) -> None:
        if len(region) // WORD <= _RESERVED_WORDS:
            raise ValueError(f"a region for metrics needs more than {_RESERVED_WORDS * WORD} bytes, got {len(region)}")
        self._region = region
        self._words = region.cast("q")
        self._numbers = region.cast("d")
        self._max_series = max_series
        self._places: dict[bytes, int] = {}
        self._series: defaultdict[str, int] = defaultdict(int)
        self._counters: dict[tuple[str, ...], Counter] = {}
        self._gauges: dict[tuple[str, ...], Gauge] = {}
        self._histograms: dict[tuple[str, ...], Histogram] = {}
        self._attach()
        self._dropped = self.counter(SERIES_DROPPED)

    def counter(self, definition: CounterDefinition, *labels: str) -> Counter:
        """The counter of these label values, in the order of the definition's labels."""
        child = self._counters.get((definition.name, *labels))
        if child is None:
            place, own = self._place(definition, labels)
            child = self._keep(self._counters, definition, labels, own, Counter(self._numbers, place))
        return child

    def gauge(self, definition: GaugeDefinition, *labels: str) -> Gauge:
        """The gauge of these label values. It shows nothing until it is set."""
        child = self._gauges.get((definition.name, *labels))
        if child is None:
            place, own = self._place(definition, labels)
            child = self._keep(self._gauges, definition, labels, own, Gauge(self._numbers, place))
        return child

    def histogram(self, definition: HistogramDefinition, *labels: str) -> Histogram:
        """The histogram of these label values."""
        child = self._histograms.get((definition.name, *labels))
        if child is None:
            place, own = self._place(definition, labels)
            made = Histogram(self._numbers, place, definition.buckets)
            child = self._keep(self._histograms, definition, labels, own, made)
        return child

    @staticmethod
    def _keep(
        kept: dict[tuple[str, ...], Child], definition: Definition, labels: tuple[str, ...], own: bool, child: Child
    ) -> Child:
        # A child of `_other` is not kept under the labels it stands for: those have no bound.
        if own:
            kept[(definition.name, *labels)] = child
        return child

    def _attach(self) -> None:
        """Find what earlier processes of this slot recorded; their gauges are history and go away."""
        end = FIRST_WORD
        for record in scan(self._region, self._words, FIRST_WORD, used_words(self._words)):
            name, _ = decode_key(record.key)
            self._places[record.key] = record.at
            self._series[name] += 1
            if isinstance(BY_NAME.get(name), GaugeDefinition):
                self._numbers[record.at] = math.nan
            end = record.at + record.numbers
        self._words[_USED] = end

    def _place(self, definition: Definition, labels: tuple[str, ...]) -> tuple[int, bool]:
        """Where the numbers of these labels stand, and whether they are their own, not those of `_other`."""
        if len(labels) != len(definition.labels):
            raise ValueError(f"{definition.name} has the labels {definition.labels}, got the values {labels}")
        key = encode_key(definition.name, labels)
        known = self._places.get(key)
        if known is not None:
            return known, True
        if self._has_room(definition, labels, key):
            return self._append(definition, key), True
        self._dropped.add()
        return self._other(definition), False

    def _has_room(self, definition: Definition, labels: tuple[str, ...], key: bytes) -> bool:
        if not labels:
            return True
        end = self._words[_USED] + _record_words(len(key), definition.numbers)
        return (
            self._series[definition.name] < self._max_series
            and max(map(len, labels)) <= MAX_LABEL
            and end <= len(self._words) - _RESERVED_WORDS
        )

    def _other(self, definition: Definition) -> int:
        key = encode_key(definition.name, (OTHER,) * len(definition.labels))
        known = self._places.get(key)
        return self._append(definition, key) if known is None else known

    def _append(self, definition: Definition, key: bytes) -> int:
        """Write a record beyond `used`, zeroes included, and only then publish it."""
        start: int = self._words[_USED]
        length = _record_words(len(key), definition.numbers)
        at = start + length - definition.numbers
        for word in range(start + _HEAD_WORDS, start + length):
            self._words[word] = 0
        if isinstance(definition, GaugeDefinition):
            self._numbers[at] = math.nan
        key_at = (start + _HEAD_WORDS) * WORD
        self._region[key_at : key_at + len(key)] = key
        head = (length, definition.numbers, len(key), _checksum(definition.numbers, key))
        for word, value in enumerate(head, start):
            self._words[word] = value
        self._words[_USED] = start + length
        self._places[key] = at
        self._series[definition.name] += 1
        return at
