"""The windows over a pool's load, which show the pool's work over the last few seconds and over the last minute."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.child.slot_load import Load
from rota_supervisor.master.effects.load_windows import LONG_SECONDS, SHORT_SECONDS, PoolMeter, WorkerReading

ROUND = 0.5
FIRST = (5, 1)
SECOND = (6, 2)


def steady(seconds: float, *, rate: float = 10, run: float = 0.05, variation: float = 0.0) -> Load:
    """Return the counters of a worker after this many seconds of steady work, in which it ran `rate` tasks a second for
    `run` seconds each.
    """
    ended = round(seconds * rate)
    busy = ended * run
    return Load(ended, 1, busy, ended, busy, ended * run**2 * (1 + variation), ended, ended // 2)


def of_worker(load: Load, key: tuple[int, int] = FIRST, task_slots: int = 1) -> WorkerReading:
    return WorkerReading(key, load, task_slots)


def test_load_windows_cover_the_last_two_seconds_and_the_last_minute() -> None:
    meter = PoolMeter()
    for number in range(241):
        at = number * ROUND
        slow = Load() if at < 100 else steady(at - 100, rate=20, run=0.03)
        meter.add([of_worker(steady(at)), of_worker(slow, SECOND)], 0, 1000 + at)
    short, long = meter.window(SHORT_SECONDS), meter.window(LONG_SECONDS)
    assert (short.seconds, short.starts) == (2.0, 60)
    assert short.occupied_seconds == pytest.approx(2.2)
    assert (long.seconds, long.starts) == (60.0, 1000)
    assert (short.first_attempts, short.first_failures) == (60, 30)


def test_a_new_load_meter_has_a_window_only_since_its_first_reading() -> None:
    meter = PoolMeter()
    assert meter.window(LONG_SECONDS).seconds == 0
    meter.add([of_worker(steady(100))], 0, 50)
    assert meter.window(LONG_SECONDS)[:2] == (0, 0), "what was done before is not counted"
    meter.add([of_worker(steady(101))], 0, 51)
    assert meter.window(LONG_SECONDS)[:2] == (1, 10)


def test_a_load_window_adds_the_counters_of_a_worker_and_its_replacement() -> None:
    meter = PoolMeter()
    meter.add([of_worker(steady(0))], 0, 0)
    meter.add([of_worker(steady(1))], 0, 1)
    meter.add([of_worker(steady(0.5), (5, 2))], 0, 1.5)
    assert meter.window(SHORT_SECONDS).starts == 15


def test_one_failed_load_reading_loses_no_task_starts() -> None:
    meter = PoolMeter()
    for at in range(5):
        meter.add([of_worker(steady(at))] if at != 2 else [], 0, at)
    assert meter.window(LONG_SECONDS).starts == 40


def test_crashed_first_attempts_count_as_failed_in_a_load_window() -> None:
    meter = PoolMeter()
    meter.add([], 7, 0)
    meter.add([], 10, 0.5)
    window = meter.window(SHORT_SECONDS)
    assert (window.first_attempts, window.first_failures) == (3, 3)


def test_more_frequent_load_readings_do_not_increase_the_stored_samples() -> None:
    meter = PoolMeter()
    for number in range(5001):
        meter.add([of_worker(steady(number / 50))], 0, number / 50)
    assert len(meter._samples) <= LONG_SECONDS / 0.4 + 2
    assert meter.window(SHORT_SECONDS).starts == pytest.approx(20, abs=2)


@pytest.mark.parametrize("variation", [0.0, 1.0, 4.0])
def test_the_variation_of_run_times_is_measured_for_each_load_window(variation: float) -> None:
    meter = PoolMeter()
    meter.add([of_worker(Load())], 0, 0)
    meter.add([of_worker(steady(1, variation=variation))], 0, 1)
    assert meter.window(SHORT_SECONDS).variation == pytest.approx(variation, abs=1e-9)


def test_with_fewer_than_two_run_times_their_variation_is_assumed_to_be_one() -> None:
    meter = PoolMeter()
    meter.add([of_worker(Load())], 0, 0)
    meter.add([of_worker(Load(1, 0, 0.5, 1, 0.5, 0.25, 1, 0))], 0, 1)
    assert meter.window(SHORT_SECONDS).variation == 1


@pytest.mark.parametrize(
    "change",
    [
        {"occupied_seconds": 900.0},
        {"started": 10**9},
        {"run_seconds": 900.0},
        {"squares": 10.0**9},
        {"ended": 0},
        {"first_failures": 10**6},
    ],
)
def test_an_impossible_increase_of_a_workers_load_counters_is_ignored(change: dict[str, Any]) -> None:
    meter = PoolMeter()
    other = WorkerReading(SECOND, steady(10), 1)
    meter.add([of_worker(steady(10)), other], 0, 10)
    meter.add([of_worker(steady(11)._replace(**change)), other._replace(load=steady(11))], 0, 11)
    window = meter.window(SHORT_SECONDS)
    assert window.starts == 10, "of the other worker"
    meter.add([of_worker(steady(12)), other._replace(load=steady(12))], 0, 12)
    assert meter.window(SHORT_SECONDS).starts >= window.starts + 10


LOADS = st.builds(
    Load,
    *[st.integers(0, 1 << 62), st.integers(0, 8), st.floats(0, 1e10), st.integers(0, 1 << 62)],
    *[st.floats(0, 1e10), st.floats(0, 1e300), st.integers(0, 1 << 62), st.integers(0, 1 << 62)],
)


@given(st.lists(LOADS, max_size=8))
def test_corrupt_worker_loads_never_produce_an_impossible_load_window(loads: list[Load]) -> None:
    meter = PoolMeter()
    for number, load in enumerate(loads):
        meter.add([of_worker(load, task_slots=8)], 0, number * ROUND)
    window = meter.window(LONG_SECONDS)
    assert 0 <= window.occupied_seconds <= 8 * window.seconds + 0.5 * len(loads)
    assert 0 <= window.first_failures <= window.first_attempts
    assert window.variation >= 0
