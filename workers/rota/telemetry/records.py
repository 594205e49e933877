"""Records of metrics in a slot: where they stand, and what of them can be believed.

The region, in 8-byte words: `used` (in words, these two included), the stamp of when the records began, with
its checksum (0 while nothing was ever written), and then records. A record: length in words | count of numbers |
length of the key in bytes | checksum | key, padded to words | numbers. The key is the JSON array
`[metric, label value, ...]`.

A record is written whole, its numbers zeroed, before `used` is published, so what a killed writer left
beyond `used` is garbage and is overwritten. Nothing is moved or removed ever: the next process of the slot
finds the records and goes on counting, and a reader may look at any time. Numbers are only written as
aligned doubles through `memoryview.cast("d")`, which a reader never sees half of.

A task can write over all of it. The next process that finds nonsense begins anew, with another stamp: whoever reads
keeps what he had read before, and adds what comes.
"""

import json
import math
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import le
from typing import Final

from rota.child.slot_layout import WORD
from rota.telemetry.metrics import BY_NAME, Definition, GaugeDefinition, PeakDefinition

USED, STAMP = range(2)
FIRST_WORD: Final = 2
HEAD_WORDS: Final = 4  # length, count of numbers, length of the key, checksum
PEAK_NS: Final = 30 * 10**9  # half of what a peak remembers
_STAMP_BYTES: Final = 4
MOST: Final = float(1 << 53)  # no counter or sum comes near it


@dataclass(frozen=True, slots=True)
class SlotRecord:
    """One record: its key, and where its numbers stand in the region, in words."""

    key: bytes
    at: int
    numbers: int


def new_stamp() -> int:
    """Return a stamp that no other records have."""
    raw = os.urandom(_STAMP_BYTES)
    return int.from_bytes(raw + zlib.crc32(raw).to_bytes(_STAMP_BYTES), signed=True)


def stamp_of(words: memoryview) -> int:
    """Return which records stand there, a number for each time they were begun anew; 0 for none, or nonsense."""
    stamp: int = words[STAMP]
    raw = stamp.to_bytes(WORD, signed=True)
    return stamp if zlib.crc32(raw[:_STAMP_BYTES]) == int.from_bytes(raw[_STAMP_BYTES:]) else 0


def used_words(words: memoryview) -> int:
    """Return how far the region is written; clamped, so that nonsense in it is not followed."""
    used: int = words[USED]
    return min(max(used, FIRST_WORD), len(words))


def scan(region: memoryview, words: memoryview, start: int, end: int) -> Iterator[SlotRecord]:
    """Yield the records from word `start` to word `end`, up to the first that its head or checksum disowns.

    `words` is the region cast to "q". Safe while another process writes: what stands below `used`
    never changes but for the numbers.
    """
    at = start
    while at + HEAD_WORDS <= end:
        length, numbers, key_bytes, checksum = words[at : at + HEAD_WORDS]
        if min(key_bytes, numbers) < 1 or length != record_words(key_bytes, numbers) or at + length > end:
            return
        key_at = (at + HEAD_WORDS) * WORD
        key = bytes(region[key_at : key_at + key_bytes])
        if checksum != checksum_of(numbers, key):
            return
        yield SlotRecord(key, at + length - numbers, numbers)
        at += length


def encode_key(name: str, labels: tuple[str, ...]) -> bytes:
    return json.dumps([name, *labels], separators=(",", ":")).encode()


def series_of(record: SlotRecord) -> tuple[Definition, tuple[str, ...]] | None:
    """Return the metric and the label values of a record; None for one of another version of Rota, or that Rota did not
    write: any process may write into its slot what it likes, checksum included."""
    try:
        name, *labels = json.loads(record.key)
        "".join(labels).encode()  # what is no text could not be shown
        definition = BY_NAME.get(name)
    except (ValueError, TypeError, RecursionError):
        return None
    if definition is None or (definition.numbers, len(definition.labels)) != (record.numbers, len(labels)):
        return None
    return definition, tuple(labels)


def is_sound(definition: Definition, before: Iterable[float], now: Sequence[float]) -> bool:
    """Whether these can be the numbers of a series that had those before. Of a gauge and a peak anything can."""
    if isinstance(definition, GaugeDefinition | PeakDefinition):
        return True
    return all(map(le, before, now)) and all(0.0 <= number <= MOST or number == math.inf for number in now)


def recent_peak(numbers: Sequence[float], now_ns: int) -> tuple[float]:
    """Return the highest value of a peak's half minutes that are this one or the one before; 0 for nonsense too."""
    recent = (now_ns // PEAK_NS - 1, now_ns // PEAK_NS)
    values = [value for half, value in zip(numbers[::2], numbers[1::2], strict=True) if half in recent]
    return (max((value for value in values if 0.0 <= value <= MOST), default=0.0),)


def record_words(key_bytes: int, numbers: int) -> int:
    """Return the length of a record in words."""
    return HEAD_WORDS + -(-key_bytes // WORD) + numbers


def checksum_of(numbers: int, key: bytes) -> int:
    return zlib.crc32(key, numbers)
