"""The metrics recorder. Readers and the next process in the slot can read everything that a process has recorded."""

import array
import json
import math
import struct
import zlib
from collections import Counter as Tally
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rota.child.slot_layout import METRICS_AT, METRICS_END, WORD
from rota.child.slot_memory import SlotMemory
from rota.telemetry import metrics as m
from rota.telemetry.metrics import CounterDefinition, GaugeDefinition, HistogramDefinition, PeakDefinition, QueueLabels
from rota.telemetry.recorder import FIRST_WORD, Recorder, SlotRecord, encode_key, scan, series_of, used_words
from rota_supervisor.exporter.regions import Total
from rota_supervisor.exporter.series import Series
from support.region_reading import read_region, reader_of

SMALL_BYTES = (48 << 10) + 4096


def region(size: int = METRICS_END - METRICS_AT) -> memoryview:
    """Return a block of memory with this many bytes, as a stand-in for the metrics region of a slot."""
    return memoryview(bytearray(size))


def read(of: memoryview) -> dict[tuple[str, ...], tuple[float, ...]]:
    """Return all series in a region, by metric and label values."""
    return readings(read_region(of))


def readings(found: Iterable[Series]) -> dict[tuple[str, ...], tuple[float, ...]]:
    """Return the series that a reader has found, by metric and label values."""
    return {(definition.name, *labels): numbers for definition, labels, numbers in found}


def words(of: memoryview) -> memoryview:
    return of.cast("q")


LABELS = st.text(max_size=40)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(LABELS, LABELS, st.floats(0, 1e9)), max_size=30), st.integers(1, 3))
def test_every_recorded_metric_value_is_read_back_by_its_labels(seen: list[tuple[str, str, float]], lives: int) -> None:
    memory = region()
    for life in range(lives):
        recorder = Recorder(memory)
        for queue, kind, value in seen[life::lives]:
            recorder.histogram(m.QUEUE_WAIT, queue, kind).observe(value)
            recorder.counter(m.CLAIMS, queue).add(2)
    found = read(memory)
    starts = Tally((queue, kind) for queue, kind, _ in seen)
    for (queue, kind), count in starts.items():
        *counts, total = found[(m.QUEUE_WAIT.name, queue, kind)]
        assert sum(counts) == count
        assert total == pytest.approx(sum(v for q, k, v in seen if (q, k) == (queue, kind)))
    for queue, count in Tally(queue for queue, _, _ in seen).items():
        assert found[(m.CLAIMS.name, queue)] == (2.0 * count,)


@pytest.mark.parametrize(
    ("value", "bucket"),
    [(0.0, 0), (0.001, 0), (0.0011, 1), (3600.0, 19), (3600.1, 20), (math.inf, 20), (-5.0, 0)],
)
def test_an_observation_counts_in_the_lowest_histogram_bucket_that_holds_it(value: float, bucket: int) -> None:
    memory = region()
    Recorder(memory).histogram(m.TASK_LAG, "q", "retry").observe(value)
    *counts, total = read(memory)[(m.TASK_LAG.name, "q", "retry")]
    assert [at for at, count in enumerate(counts) if count] == [bucket]
    assert total == max(value, 0.0)


def test_recording_with_equal_labels_uses_the_same_series() -> None:
    recorder = Recorder(region())
    assert recorder.counter(m.CLAIMS, "a") is recorder.counter(m.CLAIMS, "a")
    assert recorder.counter(m.CLAIMS, "a") is not recorder.counter(m.CLAIMS, "b")
    assert recorder.gauge(m.REDIS_UP) is recorder.gauge(m.REDIS_UP)
    assert recorder.histogram(m.REDIS_COMMAND, "turn") is recorder.histogram(m.REDIS_COMMAND, "turn")


def test_the_next_process_of_a_slot_continues_its_counters() -> None:
    memory = region()
    for _ in range(3):
        recorder = Recorder(memory)
        recorder.counter(m.CLAIMS, "a").add()
        recorder.histogram(m.TASK_LAG, "a", "delayed").observe(0.5)
    assert read(memory)[(m.CLAIMS.name, "a")] == (3.0,)
    assert sum(read(memory)[(m.TASK_LAG.name, "a", "delayed")][:-1]) == 3
    assert len(read(memory)) == 3, "the counter of dropped series is the third"


def test_the_next_process_clears_the_gauges_of_the_previous_one() -> None:
    memory = region()
    Recorder(memory).gauge(m.WORKERS_BUSY, "mail").set(1)
    recorder = Recorder(memory)
    assert math.isnan(read(memory)[(m.WORKERS_BUSY.name, "mail")][0])
    recorder.gauge(m.WORKERS_BUSY, "mail").set(0)
    assert read(memory)[(m.WORKERS_BUSY.name, "mail")] == (0.0,)


def test_a_gauge_has_no_value_until_it_is_set() -> None:
    memory = region()
    Recorder(memory).gauge(m.REDIS_UP)
    assert math.isnan(read(memory)[(m.REDIS_UP.name,)][0])


@settings(max_examples=40, deadline=None)
@given(st.binary(min_size=8, max_size=400))
def test_corrupt_bytes_after_the_last_metric_record_are_ignored(garbage: bytes) -> None:
    memory = region()
    Recorder(memory).counter(m.CLAIMS, "a").add()
    end = used_words(words(memory)) * WORD
    memory[end : end + len(garbage)] = garbage
    assert (m.CLAIMS.name, "a") in read(memory)
    recorder = Recorder(memory)
    recorder.counter(m.CLAIMS, "b").add()
    recorder.histogram(m.TASK_LAG, "b", "retry").observe(1)
    found = read(memory)
    assert found[(m.CLAIMS.name, "a")] == (1.0,)
    assert found[(m.CLAIMS.name, "b")] == (1.0,)
    assert sum(found[(m.TASK_LAG.name, "b", "retry")][:-1]) == 1


def test_a_truncated_metric_record_is_not_read() -> None:
    memory = region()
    recorder = Recorder(memory)
    recorder.counter(m.CLAIMS, "a").add()
    before = used_words(words(memory))
    recorder.histogram(m.TASK_LAG, "a", "delayed").observe(1)
    whole = bytes(memory)
    after = used_words(words(memory))
    for end in range(before, after):
        torn = region()
        torn[:] = whole
        torn[0:WORD] = struct.pack("q", end)  # as if the writer had published the record before it was complete
        assert (m.TASK_LAG.name, "a", "delayed") not in read(torn)
        assert read(torn)[(m.CLAIMS.name, "a")] == (1.0,)


def test_totals_survive_a_damaged_metric_record_that_resets_its_slot() -> None:
    memory = region()
    recorder = Recorder(memory)
    recorder.counter(m.CLAIMS, "a").add()
    at = used_words(words(memory))
    recorder.counter(m.CLAIMS, "b").add()
    totals: dict[bytes, Total] = {}
    reader = reader_of(memory, totals)
    assert len(list(reader.read())) == 3
    memory[(at + 4) * WORD + 2] ^= 0xFF
    assert (m.CLAIMS.name, "b") not in read(memory)
    Recorder(memory).counter(m.CLAIMS, "c").add(5)
    assert read(memory) == {(m.SERIES_DROPPED.name,): (0.0,), (m.CLAIMS.name, "c"): (5.0,)}
    assert len(list(reader.read())) == 2
    assert {total.labels: total.numbers for total in totals.values()} == {
        (): (0.0,),
        ("a",): (1.0,),
        ("b",): (1.0,),
        ("c",): (5.0,),
    }


def test_a_metric_record_that_points_to_itself_is_not_read() -> None:
    memory = region()
    words(memory)[FIRST_WORD : FIRST_WORD + 4] = array.array("q", [0, -4, 0, zlib.crc32(b"", -4)])
    assert list(scan(memory, words(memory), FIRST_WORD, 100)) == []


@pytest.mark.parametrize("used", [-1, 0, 1 << 62])
def test_a_metric_region_with_an_invalid_length_is_read_as_empty(used: int) -> None:
    memory = region()
    memory[0:WORD] = struct.pack("q", used)
    assert read(memory) == {}
    Recorder(memory).counter(m.CLAIMS, "a").add()
    assert read(memory)[(m.CLAIMS.name, "a")] == (1.0,)


@dataclass(frozen=True)
class Forged:
    """A record that a task may leave by overwriting the region. The checksum in the record's head is valid. `spoiled`
    has the index of a word of the head, and the invalid value that this word gets.
    """

    key: bytes
    numbers: int
    spoiled: tuple[int, int] | None = None

    @property
    def could_be_valid(self) -> bool:
        return self.spoiled is None and bool(self.key) and self.numbers > 0

    def append_to(self, memory: memoryview) -> None:
        """Write this record after the last record of the region, and publish this record."""
        words_of = words(memory)
        at, padded = used_words(words_of), -(-len(self.key) // WORD)
        head = [4 + padded + self.numbers, self.numbers, len(self.key), zlib.crc32(self.key, self.numbers)]
        if self.spoiled:
            word, value = self.spoiled
            head[word] = value
        memory[at * WORD : (at + 4) * WORD] = struct.pack("4q", *head)
        memory[(at + 4) * WORD : (at + 4) * WORD + len(self.key)] = self.key
        words_of[0] = at + 4 + padded + max(self.numbers, 0)


def mutated(key: bytes, changes: list[tuple[int, int]]) -> bytes:
    """Return a copy of the key with these bytes changed."""
    text = bytearray(key)
    for at, byte in changes:
        text[at % len(text)] = byte
    return bytes(text)


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)
OWN_KEYS = st.sampled_from(m.ALL).flatmap(
    lambda definition: st.lists(st.text(max_size=9), max_size=3).map(lambda of: encode_key(definition.name, tuple(of)))
)
BYTE_CHANGES = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=3)
KEYS = st.one_of(
    OWN_KEYS,
    st.builds(mutated, OWN_KEYS, BYTE_CHANGES),
    st.tuples(st.sampled_from(m.ALL), JSON).map(lambda of: json.dumps([of[0].name, of[1]]).encode()),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=40),
)
WORDS = st.integers(-8, 70) | st.integers(-(1 << 63), (1 << 63) - 1)
NUMBERS = st.sampled_from(sorted({definition.numbers for definition in m.ALL})) | st.integers(-8, 70)
FORGED = st.one_of(
    st.builds(Forged, KEYS, NUMBERS),
    st.builds(Forged, KEYS, NUMBERS, st.tuples(st.integers(0, 3), WORDS)),
    st.sampled_from(m.ALL).map(lambda of: Forged(encode_key(of.name, ("label",) * len(of.labels)), of.numbers)),
)
MANY = 100  # more records than any of these regions has
FIRST, NEXT = "label of the first process", "label of the next process"  # longer than any forged label
RECURSIVE = b"[" * 2000


@settings(max_examples=300, deadline=None)
@given(FORGED)
@example(Forged(b"", -4))  # a record of length 0, after which a reader would find the same record again
@example(Forged(b"[]", 1))
@example(Forged(b"7", 1))
@example(Forged(b'["\xff"]', 1))
@example(Forged(RECURSIVE, 1))
@example(Forged(b'["rota_claims_total","\\ud800"]', 1))  # half of a surrogate pair, which UTF-8 cannot encode
@example(Forged(encode_key(m.TASK_LAG.name, (NEXT, "retry")), 1))  # a histogram that has space for only one number
@example(Forged(encode_key(m.CLAIMS.name, ("b",)), 1, (0, 0)))
def test_corrupt_metric_records_break_neither_readers_nor_the_next_process(forged: Forged) -> None:
    memory = region()
    Recorder(memory).counter(m.CLAIMS, FIRST).add()
    own = len(scanned(memory))
    forged.append_to(memory)
    assert forged.spoiled or len(scanned(memory)) == own + forged.could_be_valid
    totals: dict[bytes, Total] = {}
    reader = reader_of(memory, totals)
    for (name, *labels), numbers in readings(reader.read()).items():
        assert (len(labels), len(numbers)) == (len(m.BY_NAME[name].labels), m.BY_NAME[name].numbers)
        "".join(labels).encode()
    recorder = Recorder(memory)
    recorder.histogram(m.TASK_LAG, NEXT, "retry").observe(3600.1)
    recorder.counter(m.CLAIMS, NEXT).add(3)
    recorder.counter(m.CLAIMS, FIRST).add()
    found = readings(reader.read())
    assert totals[encode_key(m.CLAIMS.name, (FIRST,))].numbers == (2.0,)
    assert found[(m.CLAIMS.name, NEXT)] == (3.0,)
    assert sum(found[(m.TASK_LAG.name, NEXT, "retry")][:-1]) == 1


def scanned(memory: memoryview) -> list[SlotRecord]:
    """Return the records of a region. Raises AssertionError if the scan does not end."""
    records = list(islice(scan(memory, words(memory), FIRST_WORD, used_words(words(memory))), MANY))
    assert len(records) < MANY
    return records


@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(FORGED)
def _reach(tally: "Tally[str]", forged: Forged) -> None:
    memory = region()
    forged.append_to(memory)
    records = scanned(memory)
    tally["refused"] += not records
    tally["no series"] += any(series_of(record) is None for record in records)
    tally["a series"] += any(series_of(record) is not None for record in records)


def test_the_generated_corrupt_metric_records_cover_all_cases() -> None:
    tally = Tally[str]()
    _reach(tally)
    assert min(tally["refused"], tally["no series"], tally["a series"]) >= 20, tally


def test_a_task_without_room_for_its_metrics_is_counted_as_other_in_its_queue() -> None:
    memory = region(SMALL_BYTES)
    recorder = Recorder(memory)
    recorder.counter(m.TASK_RETRIES, "q", "_other").add()
    for number in range(1000):
        recorder.counter(m.TASK_RETRIES, "q", f"task{number}").add()
    found = read(memory)
    others = found[(m.TASK_RETRIES.name, "q", "_other")][0] - 1
    assert others > 900
    assert (m.TASK_RETRIES.name, "_other", "_other") not in found
    assert found[(m.SERIES_DROPPED.name,)] == (others,)


@pytest.mark.parametrize("first", ["lag", "misses"])
def test_related_metrics_are_recorded_together_or_counted_as_other(first: str) -> None:
    memory = region(4 * SMALL_BYTES)
    recorder = Recorder(memory)
    for number in range(1000):
        queue = f"queue-{number}"
        for what in (first, *({"lag", "misses"} - {first})):
            if what == "lag":
                recorder.histogram(m.TASK_LAG, queue, "retry").observe(9)
            else:
                recorder.counter(m.TASK_LAG_OBJECTIVE_MISSES, queue, "retry").add()
        for outcome in ("retry", "dead", "done"):
            recorder.counter(m.TASKS_PROCESSED, queue, "send", outcome).add()
    found = read(memory)
    starts, misses = ({key[1:]: sum(n[: 21 if d is m.TASK_LAG else 1]) for key, n in found.items() if key[0] == d.name}
                      for d in (m.TASK_LAG, m.TASK_LAG_OBJECTIVE_MISSES))  # fmt: skip
    assert starts == misses
    assert sum(starts.values()) == 1000
    assert 0 < starts["_other", "retry"] < 1000
    ends = {key[1:]: numbers for key, numbers in found.items() if key[0] == m.TASKS_PROCESSED.name}
    assert len(ends) % 3 == 0
    assert ends["_other", "_other", "dead"] == ends["_other", "_other", "done"]


def test_a_full_metric_region_loses_no_observation() -> None:
    memory = region(SMALL_BYTES)
    recorder = Recorder(memory)
    for number in range(1000):
        recorder.histogram(m.TASK_RUNTIME, "q", f"task{number}").observe(1)
    histograms = [d for d in m.ALL if isinstance(d, HistogramDefinition)]
    counters = [d for d in m.ALL if isinstance(d, CounterDefinition)]
    for histogram in histograms:
        recorder.histogram(histogram, *("label" for _ in histogram.labels)).observe(1)
    for counter in counters:
        recorder.counter(counter, *("label" for _ in counter.labels)).add()
    found = read(memory)
    totals = Tally[str]()
    for (name, *_), numbers in found.items():
        totals[name] += int(sum(numbers[:-1]) if len(numbers) > 1 else numbers[0])
    assert totals[m.TASK_RUNTIME.name] == 1001
    assert all(totals[d.name] >= 1 for d in histograms + counters)
    assert found[(m.TASK_RUNTIME.name, "_other", "_other")][-1] > 900
    assert totals[m.SERIES_DROPPED.name] > 900


def test_ten_thousand_task_names_need_no_memory_beyond_the_metric_region() -> None:
    recorder = Recorder(region(SMALL_BYTES))
    for number in range(10_000):
        recorder.counter(m.TASK_RETRIES, "q", f"task{number}").add()
    assert len(recorder._counters) < 200


def test_a_metric_label_that_is_too_long_becomes_other() -> None:
    memory = region()
    Recorder(memory).counter(m.CLAIMS, "x" * 1000).add()
    assert read(memory)[(m.CLAIMS.name, "_other")] == (1.0,)


def full_recorder(memory: memoryview) -> Recorder:
    """Return a recorder that has no space for new series."""
    recorder = Recorder(memory)
    for number in range(1000):
        recorder.histogram(m.TASK_RUNTIME, f"queue-{number}", "task").observe(1)
    return recorder


def test_every_metric_has_reserved_room_for_its_series_of_other_labels() -> None:
    memory = region(SMALL_BYTES)
    recorder = full_recorder(memory)
    for definition in m.ALL:
        labels = ("label",) * len(definition.labels)
        match definition:
            case CounterDefinition():
                recorder.counter(definition, *labels).add()
            case GaugeDefinition():
                recorder.gauge(definition, *labels).set(1)
            case HistogramDefinition():
                recorder.histogram(definition, *labels).observe(1)
            case PeakDefinition():
                recorder.peak(definition, *labels).observe(1, 1)
            case _:
                raise AssertionError(definition)
    assert used_words(words(memory)) * WORD < 32 << 10
    assert {name for name, *_ in read(memory)} == {definition.name for definition in m.ALL}


def test_a_metric_with_a_wrong_number_of_labels_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"rota_claims_total has the labels \('queue',\), but was given the values \(\)"
    ):
        Recorder(region()).counter(m.CLAIMS)


def test_a_metric_region_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="needs more than 49152 bytes, got 4096"):
        Recorder(region(4096))


def test_a_slot_has_room_for_the_metrics_of_1500_tasks() -> None:
    memory = SlotMemory.create(1)
    recorder = Recorder(memory.slot(0).metrics)
    for number in range(1500):
        recorder.histogram(m.TASK_RUNTIME, f"queue{number % 20}", f"some_module_task_{number}").observe(0.1)
    assert read(memory.slot(0).metrics)[(m.SERIES_DROPPED.name,)] == (0.0,)


def test_ten_thousand_queues_of_a_pattern_share_one_series() -> None:
    memory = region(SMALL_BYTES)
    recorder = Recorder(memory, label_of_queue=QueueLabels(["tenant-*", "tenant-acme"]).of)
    for number in range(10_000):
        recorder.counter(m.TASKS_DEAD, f"tenant-{number}", "send", "error").add()
    recorder.counter(m.TASKS_DEAD, "tenant-acme", "send", "error").add()
    found = read(memory)
    assert found[(m.TASKS_DEAD.name, "tenant-*", "send", "error")] == (10_000.0,)
    assert found[(m.TASKS_DEAD.name, "tenant-acme", "send", "error")] == (1.0,)
    assert len(recorder._counters) == 3, "those two, and how many were dropped"
    assert found[(m.SERIES_DROPPED.name,)] == (0.0,)
