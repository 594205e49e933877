"""The lag of the last minutes, from histograms that only grow: what stood there some minutes ago is taken off."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from operator import add, sub
from typing import Final

from rota.telemetry.definition import HistogramDefinition
from rota.telemetry.metrics import TASK_LAG
from rota_supervisor.exporter.samples import Numbers, Samples

WINDOW_SECONDS: Final = 300.0
STEP_SECONDS: Final = 10.0
_NOTHING: Final = (0.0,) * TASK_LAG.numbers


@dataclass(frozen=True, slots=True)
class Lag:
    """The starts of one queue over the last `window_seconds`. Quantiles are None without starts."""

    window_seconds: float
    starts: int
    p50_seconds: float | None
    p99_seconds: float | None


class LagWindow:
    """Remembers the lag histograms of each queue, as they were every STEP_SECONDS. Times are monotonic."""

    def __init__(self) -> None:
        self._past: deque[tuple[float, Mapping[str, Numbers]]] = deque()

    def is_due(self, now: float) -> bool:
        """Whether it is time for the next note."""
        return not self._past or now - self._past[-1][0] >= STEP_SECONDS

    def note(self, samples: Samples, now: float) -> None:
        """Remember these; forget what lies before the window."""
        self._past.append((now, _by_queue(samples)))
        while len(self._past) > 1 and self._past[1][0] <= now - WINDOW_SECONDS:
            self._past.popleft()

    def lags(self, samples: Samples, now: float) -> dict[str, Lag]:
        """Return the lag of each queue since the oldest remembered time, about WINDOW_SECONDS ago."""
        began, before = self._past[0] if self._past else (now, {})
        return {queue: _lag(now - began, numbers, before.get(queue)) for queue, numbers in _by_queue(samples).items()}


def _by_queue(samples: Samples) -> dict[str, Numbers]:
    sums: dict[str, Numbers] = {}
    for (queue, _kind), numbers in samples.series(TASK_LAG):
        sums[queue] = tuple(map(add, sums.get(queue, _NOTHING), numbers))
    return sums


def _lag(window_seconds: float, numbers: Numbers, before: Numbers | None) -> Lag:
    recent = tuple(map(sub, numbers, before or _NOTHING))
    p50, p99 = (quantile(TASK_LAG, recent, share) for share in (0.5, 0.99))
    return Lag(window_seconds, int(sum(recent[:-1])), p50, p99)


def quantile(definition: HistogramDefinition, numbers: Numbers, share: float) -> float | None:
    """Return the value that `share` (0 to 1) of the observations do not exceed, interpolated inside its bucket as
    Prometheus's `histogram_quantile` does. None without observations; the highest bound when it lies above that."""
    counts = numbers[:-1]
    wanted = share * sum(counts)
    if not wanted:
        return None
    below = lower = 0.0
    for bound, count in zip(definition.buckets, counts, strict=False):  # the last count has no upper bound
        if count and below + count >= wanted:
            return lower + (bound - lower) * (wanted - below) / count
        below += count
        lower = bound
    return lower
