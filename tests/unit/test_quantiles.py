"""Quantiles of buckets, and the lag of the last minutes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from region_reading import regions_of
from rota.child.slot_memory import SlotMemory
from rota.telemetry import label_values
from rota.telemetry import metrics as m
from rota.telemetry.definition import HistogramDefinition
from rota.telemetry.recorder import Recorder
from rota_supervisor.exporter.lag import STEP_SECONDS, WINDOW_SECONDS, LagWindow, quantile
from rota_supervisor.exporter.samples import Samples

SIMPLE = HistogramDefinition("simple", "", (), (), (1.0, 2.0, 4.0))


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ((0, 0, 0, 0), 0.5, None),
        ((10, 0, 0, 0), 0.5, 0.5),
        ((0, 10, 0, 0), 0.5, 1.5),
        ((10, 0, 10, 0), 0.5, 1.0),
        ((10, 0, 10, 0), 0.75, 3.0),
        ((0, 0, 0, 7), 0.5, 4.0),
        ((1, 1, 1, 1), 1.0, 4.0),
    ],
)
def test_a_quantile_is_interpolated_inside_its_bucket(
    counts: tuple[float, ...], share: float, expected: float | None
) -> None:
    assert quantile(SIMPLE, (*counts, 0.0), share) == expected


@given(st.lists(st.integers(0, 1000), min_size=4, max_size=4), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_never_gives_a_smaller_quantile(counts: list[int], one: float, other: float) -> None:
    low, high = (quantile(SIMPLE, (*map(float, counts), 0.0), share) for share in sorted((one, other)))
    if low is not None and high is not None:
        assert low <= high


def observed(*values: float) -> Samples:
    """Samples in which the queue has these starts."""
    memory = SlotMemory.create(1)
    recorder = Recorder(memory.slot(0).metrics)
    for number, value in enumerate(values):
        recorder.histogram(m.TASK_LAG, "mail", label_values.KINDS[number % 2]).observe(value)
    return regions_of(memory).read(())


def test_before_anything_was_noted_there_is_no_window() -> None:
    lag = LagWindow().lags(observed(0.1), 100.0)["mail"]
    assert (lag.window_seconds, lag.starts) == (0.0, 1)


def test_lag_is_that_of_the_starts_since_the_window_began() -> None:
    window = LagWindow()
    window.note(observed(100.0, 100.0, 100.0), 1000.0)
    lag = window.lags(observed(100.0, 100.0, 100.0, 0.002, 0.002), 1060.0)["mail"]
    assert (lag.window_seconds, lag.starts) == (60.0, 2)
    assert lag.p99_seconds is not None
    assert lag.p99_seconds <= 0.0025


def test_a_queue_without_starts_in_the_window_has_no_quantiles() -> None:
    window = LagWindow()
    window.note(observed(1.0), 0.0)
    lag = window.lags(observed(1.0), 10.0)["mail"]
    assert (lag.starts, lag.p50_seconds, lag.p99_seconds) == (0, None, None)


def test_the_window_forgets_what_lies_before_it_and_no_more() -> None:
    window = LagWindow()
    now = 0.0
    while now < 3 * WINDOW_SECONDS:
        assert window.is_due(now)
        window.note(observed(), now)
        assert not window.is_due(now + STEP_SECONDS - 1)
        now += STEP_SECONDS
    assert window.lags(observed(0.1), now)["mail"].window_seconds == pytest.approx(WINDOW_SECONDS, abs=STEP_SECONDS)
    assert len(window._past) <= WINDOW_SECONDS / STEP_SECONDS + 2
