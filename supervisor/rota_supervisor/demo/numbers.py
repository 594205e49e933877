"""What the fleet's own `/metrics` say, as the demo shows it. Pure but for who fetches the text."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from rota.telemetry import metrics as m
from rota_supervisor.exporter.lag import quantile

Histogram = tuple[float, ...]  # observations by bucket, one above the last, then the sum

_WINDOW_SECONDS: Final = 5.0
_BUCKET, _SUM = "_bucket", "_sum"


@dataclass(frozen=True, slots=True)
class LagNumbers:
    """Quantiles of the lag in seconds; None when nothing started."""

    p50: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class QueueNumbers:
    """One queue. What only Redis knows is None while Redis is away."""

    ready: int | None
    scheduled: int | None
    inflight: int | None
    done: int
    lag: Histogram

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits or runs."""
        return self.ready == self.scheduled == self.inflight == 0


@dataclass(frozen=True, slots=True)
class Numbers:
    """One answer of `/metrics`. `restarts` by role and reason, those that happened; `missing` by the audit."""

    queues: Mapping[str, QueueNumbers]
    running: int
    desired: int
    busy: int
    restarts: Mapping[tuple[str, str], int]
    recovered: int
    enqueued: int
    early: int
    missing: int | None

    @property
    def done(self) -> int:
        """Attempts that ended well, by the workers' counters."""
        return sum(queue.done for queue in self.queues.values())

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits or runs anywhere."""
        return all(queue.is_empty for queue in self.queues.values())


def read_numbers(text: str, queues: Iterable[str]) -> Numbers:
    """Read an answer of `/metrics`. Raises ValueError when it is none, or not one of these queues' fleet."""
    samples = _Samples(text)
    restarts = samples.of(m.PROCESS_RESTARTS.name)
    return Numbers(
        queues={queue: _queue(samples, queue) for queue in queues},
        running=samples.total(m.WORKERS.name, state="running"),
        desired=samples.total(m.WORKERS_DESIRED.name),
        busy=samples.total(m.WORKERS_BUSY.name),
        restarts={(s.labels["role"], s.labels["reason"]): int(s.value) for s in restarts if s.value},
        recovered=samples.total(m.TASKS_RECOVERED.name),
        enqueued=samples.total(m.TASKS_ENQUEUED.name),
        early=samples.total(m.TASK_EARLY_STARTS.name),
        missing=samples.only(m.AUDIT_MISSING.name),
    )


def _queue(samples: "_Samples", queue: str) -> QueueNumbers:
    return QueueNumbers(
        ready=samples.only(m.QUEUE_READY.name, queue=queue),
        scheduled=samples.only(m.QUEUE_SCHEDULED.name, queue=queue),
        inflight=samples.only(m.QUEUE_INFLIGHT.name, queue=queue),
        done=samples.total(m.TASKS_PROCESSED.name, queue=queue, outcome="done"),
        lag=_histogram(samples, m.TASK_LAG.name, queue),
    )


def _histogram(samples: "_Samples", name: str, queue: str) -> Histogram:
    """The buckets of all series of one queue; the text has them cumulated. Raises ValueError when there are none."""
    cumulated: dict[float, float] = {}
    for sample in samples.of(name + _BUCKET, queue=queue):
        bound = float(sample.labels["le"])
        cumulated[bound] = cumulated.get(bound, 0.0) + sample.value
    counts = [cumulated[bound] for bound in sorted(cumulated)]
    if not counts:
        raise ValueError(f"no {name} of queue {queue}")
    below = [0.0, *counts]
    total = sum(sample.value for sample in samples.of(name + _SUM, queue=queue))
    return (*(count - less for count, less in zip(counts, below, strict=False)), total)


class _Samples:
    def __init__(self, text: str) -> None:
        self._by_name: dict[str, list[Sample]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self._by_name.setdefault(sample.name, []).append(sample)

    def of(self, name: str, **labels: str) -> list[Sample]:
        return [s for s in self._by_name.get(name, []) if labels.items() <= s.labels.items()]

    def total(self, name: str, **labels: str) -> int:
        return int(sum(sample.value for sample in self.of(name, **labels)))

    def only(self, name: str, **labels: str) -> int | None:
        """The sum, None when there is no such sample."""
        found = self.of(name, **labels)
        return int(sum(sample.value for sample in found)) if found else None


def lag_of(histogram: Histogram) -> LagNumbers:
    """The quantiles that are shown."""
    return LagNumbers(quantile(m.TASK_LAG, histogram, 0.5), quantile(m.TASK_LAG, histogram, 0.99))


def since(later: Histogram, earlier: Histogram) -> Histogram:
    """What was observed between two readings of a histogram."""
    return tuple(new - old for new, old in zip(later, earlier, strict=True))


class RecentLag:
    """The lag of the last seconds: of the newest reading against one about five seconds older."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, Numbers]] = deque()

    def add(self, now: float, numbers: Numbers) -> None:
        """Take a reading at `now`, monotonic seconds."""
        self._readings.append((now, numbers))
        while len(self._readings) > 1 and self._readings[1][0] <= now - _WINDOW_SECONDS:
            self._readings.popleft()

    def by_queue(self) -> dict[str, LagNumbers]:
        """The lag of each queue; of the whole run so far at the beginning."""
        if not self._readings:
            return {}
        first, last = self._readings[0][1], self._readings[-1][1]
        if first is last:
            return {name: lag_of(queue.lag) for name, queue in last.queues.items()}
        return {name: lag_of(since(queue.lag, first.queues[name].lag)) for name, queue in last.queues.items()}
