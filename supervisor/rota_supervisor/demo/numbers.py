"""What the fleet's own `/metrics` say, as the demo shows it. Pure but for who fetches the text."""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import sub
from typing import Final

from prometheus_client import parser, samples

from rota.telemetry import metrics as m
from rota.telemetry.definition import Definition
from rota_supervisor.exporter.history import quantile

Histogram = tuple[float, ...]  # observations by bucket, one above the last, then the sum

_WINDOW_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class LagNumbers:
    """Quantiles of the lag in seconds; None when nothing started."""

    p50: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True)
class QueueNumbers:
    """One queue. What only Redis knows is None while Redis is away."""

    ready: int | None
    scheduled: int | None
    inflight: int | None
    done: int
    lag: Histogram


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
        return all(queue.ready == queue.scheduled == queue.inflight == 0 for queue in self.queues.values())


def read_numbers(text: str, queues: Iterable[str]) -> Numbers:
    """Read an answer of `/metrics`. Raises ValueError when it is none, or not one of these queues' fleet."""
    answer = _Answer(text)
    restarts = answer.series(m.PROCESS_RESTARTS.name)
    return Numbers(
        queues={queue: _queue(answer, queue) for queue in queues},
        running=answer.count(m.WORKERS, state="running") or 0,
        desired=answer.count(m.WORKERS_DESIRED) or 0,
        busy=answer.count(m.WORKERS_BUSY) or 0,
        restarts={(each.labels["role"], each.labels["reason"]): int(each.value) for each in restarts if each.value},
        recovered=answer.count(m.TASKS_RECOVERED) or 0,
        enqueued=answer.count(m.TASKS_ENQUEUED) or 0,
        early=answer.count(m.TASK_EARLY_STARTS) or 0,
        missing=answer.count(m.AUDIT_MISSING),
    )


class _Answer:
    """The samples of an answer, by their names."""

    def __init__(self, text: str) -> None:
        self._by_name: defaultdict[str, list[samples.Sample]] = defaultdict(list)
        for family in parser.text_string_to_metric_families(text):
            for sample in family.samples:
                self._by_name[sample.name].append(sample)

    def series(self, name: str, **labels: str) -> list[samples.Sample]:
        return [sample for sample in self._by_name[name] if labels.items() <= sample.labels.items()]

    def count(self, metric: Definition, **labels: str) -> int | None:
        """The sum over all series with these labels; None when there is none."""
        found = self.series(metric.name, **labels)
        return int(sum(sample.value for sample in found)) if found else None


def _queue(answer: _Answer, queue: str) -> QueueNumbers:
    return QueueNumbers(
        ready=answer.count(m.QUEUE_READY, queue=queue),
        scheduled=answer.count(m.QUEUE_SCHEDULED, queue=queue),
        inflight=answer.count(m.QUEUE_INFLIGHT, queue=queue),
        done=answer.count(m.TASKS_PROCESSED, queue=queue, outcome="done") or 0,
        lag=_lag_histogram(answer, queue),
    )


def _lag_histogram(answer: _Answer, queue: str) -> Histogram:
    """The buckets of all series of one queue; the text has them cumulated. Raises ValueError when there are none."""
    name = m.TASK_LAG.name
    cumulated: defaultdict[float, float] = defaultdict(float)
    for sample in answer.series(f"{name}_bucket", queue=queue):
        cumulated[float(sample.labels["le"])] += sample.value
    if not cumulated:
        raise ValueError(f"no {name} of queue {queue}")
    counts = [cumulated[bound] for bound in sorted(cumulated)]
    total = sum(sample.value for sample in answer.series(f"{name}_sum", queue=queue))
    return (*map(sub, counts, [0.0, *counts]), total)


def lag_of(histogram: Histogram) -> LagNumbers:
    """The quantiles that are shown."""
    return LagNumbers(quantile(m.TASK_LAG, histogram, 0.5), quantile(m.TASK_LAG, histogram, 0.99))


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
        (_, first), (_, last) = self._readings[0], self._readings[-1]
        if first is last:
            return {name: lag_of(queue.lag) for name, queue in last.queues.items()}
        return {name: lag_of(since(queue.lag, first.queues[name].lag)) for name, queue in last.queues.items()}


def since(later: Histogram, earlier: Histogram) -> Histogram:
    """What was observed between two readings of a histogram."""
    return tuple(map(sub, later, earlier))
