"""Quantiles that are computed from buckets, and the history of the last few minutes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.child.slot_memory import SlotMemory
from rota.telemetry import metrics as m
from rota.telemetry.metrics import HistogramDefinition
from rota.telemetry.recorder import Recorder
from rota_supervisor.exporter.history import STEP_SECONDS, STEPS, History, Lag, Recent, quantile
from rota_supervisor.exporter.series import Samples
from support.region_reading import regions_of

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
def test_a_higher_quantile_is_never_smaller_than_a_lower_one(counts: list[int], one: float, other: float) -> None:
    low, high = (quantile(SIMPLE, (*map(float, counts), 0.0), share) for share in sorted((one, other)))
    if low is not None and high is not None:
        assert low <= high


class Node:
    """A node whose slots count task starts, and the history of these counters, which a test advances step by step."""

    def __init__(self) -> None:
        self._memory = SlotMemory.create(1)
        self._recorder = Recorder(self._memory.slot(0).metrics)
        self.history = History()
        self.now = 1000.0

    def starts(self, *lags: float, queue: str = "mail", late: int = 0) -> None:
        """Count starts with these lags in seconds, and count all of the tasks as done."""
        for number, lag in enumerate(lags):
            kind = m.KINDS[number % 2]
            self._recorder.histogram(m.TASK_LAG, queue, kind).observe(lag)
            self._recorder.counter(m.TASKS_PROCESSED, queue, "send", "done").add()
        self._recorder.counter(m.TASK_LAG_OBJECTIVE_MISSES, queue, m.KINDS[0]).add(late)

    def read(self) -> Samples:
        return regions_of(self._memory).read(())

    def step(self) -> None:
        """Let the time of one step pass, and add the step to the history."""
        self.now += STEP_SECONDS
        self.history.note(self.read(), self.now)

    def begin(self) -> None:
        self.history.note(self.read(), self.now)

    @property
    def recent(self) -> Recent:
        return self.history.recent(self.read(), self.now)


@pytest.fixture
def node() -> Node:
    return Node()


def test_before_the_first_recorded_step_the_window_has_no_duration(node: Node) -> None:
    node.starts(0.1)
    recent = node.recent
    lag = recent.lag(recent.starts("mail"))
    assert (lag.window_seconds, lag.starts, recent.rates, recent.row()["started"]) == (0.0, 1, (0.0, 0.0), [])


def test_lag_quantiles_include_only_starts_since_the_window_began(node: Node) -> None:
    node.starts(100.0, 100.0, 100.0)
    node.begin()
    node.starts(0.002)
    node.step()
    node.starts(0.002)
    recent = node.recent
    lag = recent.lag(recent.starts("mail"))
    assert (lag.window_seconds, lag.starts) == (STEP_SECONDS, 2)
    assert lag.p99_seconds is not None
    assert lag.p99_seconds <= 0.0025


def test_a_queue_without_starts_in_the_window_has_no_quantiles(node: Node) -> None:
    node.starts(1.0)
    node.begin()
    node.step()
    recent = node.recent
    assert recent.lag(recent.starts("mail")) == Lag(STEP_SECONDS, 0, None, None)
    assert recent.row("mail") == {"started": [0], "done": [0], "p50": [None], "p99": [None]}


def test_each_history_step_has_counts_per_queue_and_for_all_queues(node: Node) -> None:
    node.begin()
    node.starts(0.004, 0.004)
    node.step()
    node.starts(2.0, queue="bulk")
    node.step()
    recent = node.recent
    assert (recent.row("mail")["started"], recent.row("bulk")["started"]) == ([2, 0], [0, 1])
    assert recent.row("mail")["p99"][1] is None
    assert recent.row()["done"] == [2, 1]
    latest = recent.row()["p50"][1]
    assert latest is not None
    assert 1.0 < latest <= 2.5


def test_recent_rates_cover_the_last_history_step_and_the_current_one(node: Node) -> None:
    node.begin()
    node.starts(*[0.001] * 100)
    node.step()
    node.starts(*[0.001] * 10, late=4)
    node.step()
    node.now += STEP_SECONDS
    node.starts(*[0.001] * 10)
    recent = node.recent
    assert recent.rates == (2.0, 2.0)
    assert recent.window.overall.share_late == pytest.approx(4 / 120, abs=1e-6)


def test_the_history_window_keeps_a_bounded_number_of_steps(node: Node) -> None:
    node.begin()
    for number in range(3 * STEPS):
        node.starts(0.1)
        assert not node.history.is_due(node.now + STEP_SECONDS - 1)
        assert node.history.is_due(node.now + STEP_SECONDS)
        node.step()
        recent = node.recent
        assert len(recent.steps) == min(number + 1, STEPS)
        assert recent.starts("mail").number == len(recent.steps)
        assert recent.now - recent.began == len(recent.steps) * STEP_SECONDS


def test_a_late_reading_ends_the_history_step_at_its_planned_time(node: Node) -> None:
    node.begin()
    began = node.now
    node.now += 1.5 * STEP_SECONDS
    node.history.note(node.read(), node.now)
    assert node.recent.noted_at == began + STEP_SECONDS
    assert node.history.is_due(began + 2 * STEP_SECONDS)


def test_a_history_step_stores_only_queues_with_activity(node: Node) -> None:
    node.starts(0.1)
    node.begin()
    node.starts(0.1, queue="bulk")
    node.step()
    [step] = node.recent.steps
    assert step.added.queues.keys() == {"bulk"}
    assert step.points.keys() == {None, "bulk"}
