"""The metrics of all slots as one set of samples: which values are summed, which gauges are included, and how many
label sets are kept.
"""

import math
import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from rota.child.slot_memory import SlotMemory
from rota.child.slots import boottime_ns
from rota.telemetry import metrics as m
from rota.telemetry.metrics import LAG_BUCKETS, CounterDefinition, Definition, HistogramDefinition
from rota.telemetry.recorder import PEAK_NS, Recorder, recent_peak
from rota_supervisor.exporter.regions import Regions, touched
from rota_supervisor.exporter.series import SeriesBound, exposed_series
from support.region_reading import read_region, regions_of


def recorder(memory: SlotMemory, slot: int) -> Recorder:
    return Recorder(memory.slot(slot).metrics)


def test_the_exporter_reads_only_slots_that_were_written_to() -> None:
    memory = SlotMemory.create(1024)
    regions = regions_of(memory)
    assert list(touched(memory)) == []
    for slot in (0, 1, 8, 1023):
        recorder(memory, slot)
    assert list(touched(memory)) == [0, 1, 8, 1023]
    regions.read(range(1024))
    assert list(touched(memory)) == [0, 1, 8, 1023]


def test_counters_and_histograms_are_summed_over_live_and_dead_slots() -> None:
    memory = SlotMemory.create(8)
    for slot in (2, 5):
        recorder(memory, slot).counter(m.CLAIMS, "q").add(slot)
        recorder(memory, slot).histogram(m.TASK_LAG, "q", "retry").observe(slot)
    samples = regions_of(memory).read(living=())
    assert samples.value(m.CLAIMS, "q") == 7
    numbers = samples.get(m.TASK_LAG, "q", "retry")
    assert numbers is not None
    assert (sum(numbers[:-1]), numbers[-1]) == (2, 7)


def test_a_restarted_exporter_computes_exactly_the_same_sums() -> None:
    memory = SlotMemory.create(8)
    early = regions_of(memory)
    histograms = [recorder(memory, slot).histogram(m.TASK_LAG, "q", "retry") for slot in (2, 3, 5)]
    for number in range(300):
        histograms[number % 3].observe(0.1 + number / 7)
        early.add_up()
    early_sum, late_sum = (each.read(()).get(m.TASK_LAG, "q", "retry") for each in (early, regions_of(memory)))
    assert early_sum == late_sum
    assert early_sum is not None
    assert early_sum[-1] == pytest.approx(sum(0.1 + number / 7 for number in range(300)))


def test_adding_up_the_slots_returns_how_many_series_changed() -> None:
    memory = SlotMemory.create(8)
    regions = regions_of(memory)
    recorders = [recorder(memory, slot) for slot in (2, 5)]
    regions.add_up()
    for each in recorders:
        each.counter(m.CLAIMS, "q").add()
        each.counter(m.CLAIMS_EMPTY).add()
    assert regions.add_up() == 4
    recorders[0].counter(m.CLAIMS, "q").add()
    assert regions.add_up() == 1
    assert regions.add_up() == 0


def test_gauges_of_dead_processes_are_not_exported() -> None:
    memory = SlotMemory.create(8)
    for slot in (2, 3, 5):
        recorder(memory, slot).gauge(m.WORKERS_BUSY, "mail").set(1)
    regions = regions_of(memory)
    assert regions.read({2, 5}).value(m.WORKERS_BUSY, "mail") == 2
    assert regions.read(()).value(m.WORKERS_BUSY, "mail") is None


def test_a_gauge_that_is_not_summed_exports_the_highest_value_of_all_slots() -> None:
    memory = SlotMemory.create(8)
    for slot in (4, 5, 6):
        recorder(memory, slot).gauge(m.INFLIGHT_ORPHANS).set({4: 1, 5: 3, 6: 2}[slot])
    assert regions_of(memory).read({4, 5, 6}).value(m.INFLIGHT_ORPHANS) == 3


def test_a_peak_metric_is_the_recent_maximum_of_all_slots() -> None:
    memory = SlotMemory.create(8)
    now_ns = boottime_ns()
    for slot, (seconds, ago) in {4: (2.0, 0), 5: (7.0, 1), 6: (9.0, 2)}.items():  # `ago` is in half minutes
        peak = recorder(memory, slot).peak(m.TASK_LAG_WORST, "q")
        peak.observe(seconds, now_ns - ago * PEAK_NS)
        peak.observe(seconds / 2, now_ns - ago * PEAK_NS)
    # The expected value is 7.0. It is 2.0 if a new half minute begins during the test.
    assert regions_of(memory).read(living=()).value(m.TASK_LAG_WORST, "q") in (2.0, 7.0)
    assert read_peak(memory, 5, now_ns) == 7.0
    assert read_peak(memory, 5, now_ns + PEAK_NS) == 0.0
    recorder(memory, 5).peak(m.TASK_LAG_WORST, "q").observe(1.0, now_ns + PEAK_NS)
    assert read_peak(memory, 5, now_ns + PEAK_NS) == 1.0


def test_a_new_process_continues_the_peak_of_the_previous_one() -> None:
    memory = SlotMemory.create(8)
    now_ns = boottime_ns() // PEAK_NS * PEAK_NS
    recorder(memory, 5).peak(m.TASK_LAG_WORST, "q").observe(3.0, now_ns)
    peak = recorder(memory, 5).peak(m.TASK_LAG_WORST, "q")
    peak.observe(2.0, now_ns + 1)
    assert (peak.highest, peak.until_ns) == (3.0, now_ns + PEAK_NS)
    assert read_peak(memory, 5, now_ns) == 3.0


def read_peak(memory: SlotMemory, slot: int, now_ns: int) -> float:
    (numbers,) = [numbers for each, _, numbers in read_region(memory.slot(slot).metrics) if each is m.TASK_LAG_WORST]
    return recent_peak(numbers, now_ns)[0]


def test_a_gauge_set_to_nan_is_not_exported() -> None:
    memory = SlotMemory.create(1)
    gauge = recorder(memory, 0).gauge(m.WORKERS, "mail", "booting")
    gauge.set(1)
    regions = regions_of(memory)
    assert regions.read({0}).value(m.WORKERS, "mail", "booting") == 1
    gauge.set(float("nan"))
    assert regions.read({0}).value(m.WORKERS, "mail", "booting") is None


def test_series_created_after_the_first_read_are_found() -> None:
    memory = SlotMemory.create(2)
    regions = regions_of(memory)
    writer = recorder(memory, 1)
    writer.counter(m.CLAIMS, "a").add()
    assert regions.read(()).value(m.CLAIMS, "b") is None
    writer.counter(m.CLAIMS, "a").add()
    writer.counter(m.CLAIMS, "b").add()
    assert regions.read(()).value(m.CLAIMS, "a") == 2
    assert regions.read(()).value(m.CLAIMS, "b") == 1


def test_metric_records_of_another_version_are_ignored() -> None:
    memory = SlotMemory.create(1)
    writer = recorder(memory, 0)
    writer.counter(CounterDefinition("rota_of_the_future_total", "", (), ())).add()
    writer.histogram(HistogramDefinition(m.TASK_LAG.name, "", ("queue", "kind"), (), (1.0,)), "q", "retry").observe(1)
    writer.counter(m.CLAIMS, "q").add()
    samples = regions_of(memory).read(())
    assert samples.get(m.TASK_LAG, "q", "retry") is None
    assert samples.value(m.CLAIMS, "q") == 1


def test_the_series_limit_applies_to_all_slots_and_the_rest_counts_as_other() -> None:
    memory = SlotMemory.create(8)
    bound = SeriesBound(room=100)
    regions = Regions(memory, bound)
    for slot in range(8):
        writer = recorder(memory, slot)
        for number in range(50):
            writer.counter(m.TASK_RETRIES, "q", f"task{slot}.{number}").add()
    samples = regions.read(())
    shown = dict(samples.series(m.TASK_RETRIES))
    assert len(shown) == 101, "and the other"
    assert sum(numbers[0] for numbers in shown.values()) == 400
    assert bound.take_refused() == 400 - 100
    regions.read(())
    assert bound.take_refused() == 0


def test_at_the_series_limit_shown_series_stay_and_never_decrease() -> None:
    memory = SlotMemory.create(2)
    regions = regions_of(memory, 10)
    writer = recorder(memory, 1)
    seen: list[dict[tuple[str, ...], tuple[float, ...]]] = []
    for number in range(30):
        writer.counter(m.TASK_RETRIES, "q", f"task{number}").add()
        writer.counter(m.TASK_RETRIES, "q", "task0").add()
        seen.append(dict(regions.read(()).series(m.TASK_RETRIES)))
    for before, after in pairwise(seen):
        assert before.keys() <= after.keys()
        assert all(before[labels] <= after[labels] for labels in before)


@pytest.mark.parametrize(("definition", "series"), [(m.CLAIMS, 1), (m.REDIS_UP, 1), (m.TASK_LAG, len(LAG_BUCKETS) + 3)])
def test_a_histogram_counts_as_all_its_series_against_the_limit(definition: Definition, series: int) -> None:
    assert exposed_series(definition) == series


def test_many_tasks_and_unknown_queues_do_not_displace_configured_queues() -> None:
    bound = SeriesBound(["mail"], 10)
    for number in range(100):
        bound.admit(m.CLAIMS, (str(number),))
        bound.admit(m.TASK_RUNTIME, ("mail", str(number)))
    assert bound.admit(m.CLAIMS, ("mail",)) == ("mail",)
    assert bound.admit(m.TASK_LAG, ("mail", "retry")) == ("mail", "retry")
    assert bound.admit(m.TASKS_PROCESSED, ("mail", "late", "done")) == ("mail", "_other", "done")
    assert bound.admit(m.TASKS_PROCESSED, ("strange", "late", "done")) == ("_other", "_other", "done")
    assert bound.take_refused() > 150


def test_unknown_task_kinds_are_counted_as_other() -> None:
    bound = SeriesBound(["mail"])
    kinds = {bound.admit(m.TASK_LAG, ("mail", str(number))) for number in range(1000)}
    assert len(kinds) < 50
    assert ("mail", "_other") in kinds


def test_many_queues_do_not_displace_the_fleets_own_series() -> None:
    bound = SeriesBound(room=10)
    for number in range(100):
        bound.admit(m.CLAIMS, (str(number),))
    assert bound.admit(m.WORKERS, ("mail", "running")) == ("mail", "running")
    for number in range(10_000):  # a task may write arbitrary records like these into its slot
        bound.admit(m.WORKERS, (str(number), "running"))
    assert bound.admit(m.WORKERS, ("10001", "running")) == ("_other", "_other")


def counted(regions: Regions) -> tuple[float | None, ...]:
    samples = regions.read(())
    return samples.value(m.CLAIMS, "q"), (samples.get(m.TASK_LAG, "q", "retry") or (None,))[-1]


def count(memory: SlotMemory, slot: int) -> None:
    """Increase a counter in a slot, as the next process in the slot would."""
    writer = recorder(memory, slot)
    writer.counter(m.CLAIMS, "q").add(5)
    writer.histogram(m.TASK_LAG, "q", "retry").observe(0.5)


def random_bytes(length: int) -> bytes:
    return random.Random(11).randbytes(length)


@pytest.mark.parametrize("fill", [random_bytes, bytes, lambda length: b"\xff" * length])
def test_metric_totals_survive_an_overwritten_slot_and_its_next_process(
    fill: Callable[[int], bytes],
) -> None:
    memory = SlotMemory.create(4)
    regions = regions_of(memory)
    for slot in (1, 2):
        count(memory, slot)
    assert counted(regions) == (10, 1.0)
    region = memory.slot(1).metrics
    region[:] = fill(len(region))
    assert counted(regions) == (10, 1.0)
    for life in range(1, 4):
        count(memory, 1)
        assert counted(regions) == (10 + 5 * life, 1.0 + 0.5 * life)
    region[:] = fill(len(region))
    count(memory, 1)
    assert counted(regions) == (30, 3.0)


@pytest.mark.parametrize("number", [-1.0, math.nan, 1e200])
def test_impossible_metric_values_are_ignored_and_totals_are_kept(number: float) -> None:
    memory = SlotMemory.create(2)
    regions = regions_of(memory)
    counter = recorder(memory, 1).counter(m.CLAIMS, "q")
    recorder(memory, 1).histogram(m.TASK_LAG, "q", "retry").observe(1.0)
    counter.add(5)
    assert counted(regions) == (5, 1.0)
    memory.slot(1).metrics.cast("d")[counter._at] = number
    assert counted(regions) == (5, 1.0)
    count(memory, 1)
    assert counted(regions) == (10, 1.5)


def test_a_metric_record_with_an_invalid_key_is_ignored() -> None:
    memory = SlotMemory.create(2)
    writer = recorder(memory, 1)
    for name in ('"', "[" * 5000, "1"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("rota.telemetry.recorder.encode_key", lambda *_, name=name: name.encode())
            writer.counter(CounterDefinition(name, "", (), ())).add()
    writer.counter(m.CLAIMS, "q").add()
    assert regions_of(memory).read(()).value(m.CLAIMS, "q") == 1
    recorder(memory, 1).counter(m.CLAIMS, "q").add()
