"""The history of the last few minutes. It is divided into steps of a few seconds. For each step, it contains the
numbers of started and done tasks, and their lag. It also contains problems that a single reading does not show, such as
counters that grew, pools that lacked workers, and queues that were late.

Histograms and counters only grow, so the growth in a step is the difference between the values at the end of this step
and at the end of the previous one. A step takes no memory for queues that were idle during the step. With 50 busy
queues, all steps together take 2.5 MB. Counters of problems are stored only when they grow, so they take no memory in a
healthy fleet.
"""

import math
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import add, sub
from typing import Final, NamedTuple

from rota.protocol.entry import Kind
from rota.protocol.outcome import DeadOutcome, Done, RetryOutcome
from rota.telemetry import metrics as m
from rota.telemetry.metrics import (
    TASK_LAG,
    TASK_LAG_OBJECTIVE_MISSES,
    TASKS_PROCESSED,
    CounterDefinition,
    HistogramDefinition,
)
from rota_supervisor.exporter.series import Numbers, Samples

STEP_SECONDS: Final = 5.0
STEPS: Final = 60
_FAILED: Final = frozenset(
    {RetryOutcome.label, DeadOutcome.label}
)  # a cancelled, released or expired task has not failed
_DIGITS: Final = 6  # the number of decimal places of a lag in seconds

REMEMBERED_SECONDS: Final = 900.0  # as long as the window of the alerts on the counters of problems
LATE_SECONDS: Final = 300.0  # how long a queue is shown as having been late
LATE_NOW_SECONDS: Final = 10.0  # a queue counts as late until this long after its last late start; a step takes 5 s
_MISSED: Final = "missed"
_AT_WORK: Final = ("running", "quiet")
_FLEETWIDE: Final = ""  # the label value used for a counter without labels
_COUNTED: Final = (m.ADOPT_ERRORS, m.SCHEDULE_OCCURRENCES, m.SERIES_DROPPED, m.LOG_LINES_DROPPED, m.LOG_LINES_FAILED)


class Starts(NamedTuple):
    """The numbers of starts and attempts of one queue, or of all queues together."""

    lags: Numbers = (0.0,) * TASK_LAG.numbers  # the starts in each bucket of TASK_LAG, and the sum of their lags
    late: float = 0  # the number of starts that missed their objective
    done: float = 0  # the number of attempts that succeeded
    failed: float = 0  # the number of attempts that failed

    @property
    def number(self) -> float:
        """The number of starts."""
        return sum(self.lags[:-1])

    def lag(self, share: float) -> float | None:
        """Return the lag in seconds that this share (0 to 1) of the starts did not exceed, or None if there were no
        starts.
        """
        found = quantile(TASK_LAG, self.lags, share)
        return None if found is None else round(found, _DIGITS)

    @property
    def share_late(self) -> float | None:
        """The share of starts that missed their objective, or None if there were no starts."""
        return round(self.late / self.number, _DIGITS) if self.number else None

    def plus(self, other: "Starts") -> "Starts":
        return Starts(tuple(map(add, self.lags, other.lags)), *map(add, self[1:], other[1:]))

    def minus(self, other: "Starts") -> "Starts":
        return Starts(tuple(map(sub, self.lags, other.lags)), *map(sub, self[1:], other[1:]))


_NOTHING: Final = Starts()
ByQueue = Mapping[str, Starts]


class Totals(NamedTuple):
    """The numbers of starts and attempts by queue."""

    queues: ByQueue

    def minus(self, before: "Totals") -> "Totals":
        """Return by how much each number has grown since `before`. Queues without growth are omitted."""
        return Totals(
            {
                queue: starts.minus(before.queues.get(queue, _NOTHING))
                for queue, starts in self.queues.items()
                if starts != before.queues.get(queue, _NOTHING)
            }
        )

    def plus(self, more: "Totals") -> "Totals":
        added = {queue: self.queues.get(queue, _NOTHING).plus(starts) for queue, starts in more.queues.items()}
        return Totals({**self.queues, **added})

    @property
    def overall(self) -> Starts:
        """The numbers of starts and attempts, summed over all queues."""
        if not self.queues:
            return _NOTHING
        lags, *counts = zip(*self.queues.values(), strict=True)
        return Starts(tuple(map(sum, zip(*lags, strict=True))), *map(sum, counts))


class ChartPoint(NamedTuple):
    """The values that the charts show for one step."""

    started: int = 0
    done: int = 0
    p50: float | None = None
    p99: float | None = None

    @classmethod
    def of(cls, starts: Starts) -> "ChartPoint":
        return cls(int(starts.number), int(starts.done), starts.lag(0.5), starts.lag(0.99))


_NO_POINT: Final = ChartPoint()


class PoolPoint(NamedTuple):
    """The number of workers at the end of a step, for a pool that has a range of workers."""

    wanted: int
    actual: int


class HistoryStep(NamedTuple):
    """A step of the history: how much all values grew during the step, and how many workers the pools with a range had
    at the end.
    """

    added: Totals
    points: Mapping[str | None, ChartPoint]  # the chart points by queue (None for all queues together), computed once
    pools: Mapping[str, PoolPoint] = {}

    @classmethod
    def of(cls, added: Totals, pools: Mapping[str, PoolPoint]) -> "HistoryStep":
        points: dict[str | None, ChartPoint] = {q: ChartPoint.of(each) for q, each in added.queues.items()}
        return cls(added, points | {None: ChartPoint.of(added.overall)}, pools)


class Lag(NamedTuple):
    """The lag of one queue in a time window. Quantiles are None if there were no starts."""

    window_seconds: float
    starts: int
    p50_seconds: float | None
    p99_seconds: float | None


@dataclass(frozen=True)  # without slots=True, because cached properties need a `__dict__`
class Recent:
    """The history of the last few minutes. Times are monotonic."""

    samples: Samples  # the current values
    now: float  # when the current values were read
    began: float  # when the first step began
    before: Totals  # the values when the first step began
    noted_at: float  # when the last whole step ended
    noted: Totals  # the values when the last whole step ended
    steps: tuple[HistoryStep, ...]  # the whole steps, the oldest first

    @cached_property
    def totals(self) -> Totals:
        return _totals(self.samples)

    @cached_property
    def window(self) -> Totals:
        """The numbers of starts and attempts of each queue since `began`."""
        return self.totals.minus(self.before)

    @cached_property
    def overall(self) -> Starts:
        """The numbers of starts and attempts since `began`, summed over all queues."""
        return self.window.overall

    def starts(self, queue: str) -> Starts:
        """Return the numbers of starts and attempts of one queue since `began`."""
        return self.window.queues.get(queue, _NOTHING)

    def lag(self, starts: Starts) -> Lag:
        """Return the quantiles of the lag of `starts`. These must be all starts since `began`, of one queue or of all
        queues.
        """
        return Lag(self.now - self.began, int(starts.number), starts.lag(0.5), starts.lag(0.99))

    @cached_property
    def rates(self) -> tuple[float, float]:
        """The numbers of done and of started tasks per second, measured from the beginning of the last whole step until
        now.
        """
        added = self.totals.minus(self.noted)
        seconds = self.now - self.noted_at
        if self.steps:
            added = added.plus(self.steps[-1].added)
            seconds = seconds + STEP_SECONDS
        starts = added.overall
        return (starts.done / seconds, starts.number / seconds) if seconds > 0 else (0.0, 0.0)

    def row(self, queue: str | None = None) -> dict[str, list[float | None]]:
        """Return the chart values of one queue, or of all queues together, as a list with an element for each step."""
        points = [step.points.get(queue, _NO_POINT) for step in self.steps]
        columns = zip(*points, strict=True) if points else [()] * len(ChartPoint._fields)
        return dict(zip(ChartPoint._fields, map(list, columns), strict=True))

    def workers(self) -> dict[str, dict[str, list[int | None]]]:
        """Return the numbers of workers of each pool that had a range, as lists with one element per step. The element
        is None if the pool had no range in that step.
        """
        pools = dict.fromkeys(pool for step in self.steps for pool in step.pools)
        return {
            pool: {
                field: [getattr(step.pools[pool], field) if pool in step.pools else None for step in self.steps]
                for field in PoolPoint._fields
            }
            for pool in pools
        }


class History:
    """A recorder that keeps the last STEPS steps, each of STEP_SECONDS. Times are monotonic."""

    def __init__(self) -> None:
        self._began = self._noted_at = 0.0
        self._before = Totals({})
        self._noted: Totals | None = None
        self._steps: deque[HistoryStep] = deque()

    def is_due(self, now: float) -> bool:
        """Whether it is time to end the current step with `note`."""
        return self._noted is None or now - self._noted_at >= STEP_SECONDS

    def note(self, samples: Samples, now: float) -> None:
        """End the current step with these values, and begin the next one. The first call only begins a step. If a call
        is late, the next step becomes shorter.
        """
        totals = _totals(samples)
        noted = self._noted
        if noted is None:
            self._began = now
            self._before = totals
            self._noted_at = now
        else:
            self._steps.append(HistoryStep.of(totals.minus(noted), _pool_points(samples)))
            self._noted_at += STEP_SECONDS
        self._noted = totals
        if len(self._steps) > STEPS:
            self._before = self._before.plus(self._steps.popleft().added)
            self._began += STEP_SECONDS

    def recent(self, samples: Samples, now: float) -> Recent:
        """Return the history of the last few minutes, up to these values, which were read at `now`."""
        if self._noted is None:
            return Recent(samples, now, now, Totals({}), now, _totals(samples), ())
        return Recent(samples, now, self._began, self._before, self._noted_at, self._noted, tuple(self._steps))


def _pool_points(samples: Samples) -> dict[str, PoolPoint]:
    counts = {labels: int(number) for labels, (number,) in samples.series(m.POOL_WORKERS)}
    pools = {pool for pool, _ in counts}
    return {pool: PoolPoint(*(counts.get((pool, field), 0) for field in PoolPoint._fields)) for pool in pools}


def _totals(samples: Samples) -> Totals:
    """Return the values by queue, summed over kinds and tasks."""
    lags: dict[str, Numbers] = {}
    late: defaultdict[str, float] = defaultdict(float)
    done: defaultdict[str, float] = defaultdict(float)
    failed: defaultdict[str, float] = defaultdict(float)
    for (queue, _kind), numbers in samples.series(TASK_LAG):
        lags[queue] = tuple(map(add, lags[queue], numbers)) if queue in lags else numbers
    for (queue, _kind), (number,) in samples.series(TASK_LAG_OBJECTIVE_MISSES):
        late[queue] += number
    for (queue, _task, outcome), (number,) in samples.series(TASKS_PROCESSED):
        if outcome == Done.label:
            done[queue] += number
        elif outcome in _FAILED:
            failed[queue] += number
    queues = {
        queue: Starts(lags.get(queue, _NOTHING.lags), late[queue], done[queue], failed[queue])
        for queue in lags.keys() | done.keys() | failed.keys()
    }
    return Totals(queues)


def quantile(definition: HistogramDefinition, numbers: Numbers, share: float) -> float | None:
    """Return the value that `share` (0 to 1) of the observations do not exceed.

    The value is interpolated within its bucket, as in Prometheus's `histogram_quantile`. Returns None if there are no
    observations, and the highest bound if the value is above the highest bound.
    """
    counts = numbers[:-1]
    wanted = share * sum(counts)
    if not wanted:
        return None
    below = lower = 0.0
    for bound, count in zip(definition.buckets, counts, strict=False):  # The last bucket has no upper bound.
        if count and below + count >= wanted:
            return lower + (bound - lower) * (wanted - below) / count
        below += count
        lower = bound
    return lower


class LateStarts(NamedTuple):
    """The starts of a queue that missed the lag objective in the last LATE_SECONDS. Throttled tasks do not count."""

    number: int = 0
    worst_seconds: float = 0.0  # the exact value of the highest lag
    until: float | None = None  # when the last late start was seen, in Unix time


@dataclass(frozen=True, slots=True)
class RecentProblems:
    """The problems of the last few minutes."""

    grown: dict[str, Counter[str]] = field(default_factory=dict)  # the growth by counter, and by its first label
    late: dict[str, LateStarts] = field(default_factory=dict)  # late starts by queue
    short_seconds: dict[str, float] = field(default_factory=dict)  # how long each pool has lacked workers

    def of(self, counter: CounterDefinition) -> dict[str, int]:
        """Return how much a counter grew in the last few minutes, for each value of its first label, such as each
        queue.
        """
        return {label: math.ceil(count) for label, count in self.grown.get(counter.name, {}).items()}

    def total(self, counter: CounterDefinition) -> int:
        return sum(self.of(counter).values())


class _CounterGrowth(NamedTuple):
    """An increase of a counter, and when this increase was seen."""

    at: float  # when the growth was seen, in Unix time
    name: str
    label: str
    amount: float


class ProblemWatch:
    """A recorder of problems, such as growing counters. An instance must not be used by two threads at once."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], float] | None = None
        self._grown: deque[_CounterGrowth] = deque()
        self._worst: deque[tuple[float, dict[str, float]]] = deque()
        self._short_since: dict[str, float] = {}

    def note(self, samples: Samples) -> None:
        """Record late queues, pools that lack workers, and how much each counter has grown since the last call. The
        samples must include the gauges of the master.
        """
        now = time.time()
        counts = _counts(samples)
        if self._counts is None:  # Growth before the first reading is recent only in a young fleet.
            is_young = now - (samples.value(m.START_TIME) or 0.0) < REMEMBERED_SECONDS
            self._counts = {} if is_young else counts
        for key, count in counts.items():
            if (grown := count - self._counts.get(key, 0.0)) > 0:
                self._grown.append(_CounterGrowth(now, *key, grown))
        self._counts = counts
        worst = {queue: lag for (queue,), (lag,) in samples.series(m.TASK_LAG_WORST) if lag > 0}
        self._worst.append((now, worst))
        self._short_since = {pool: self._short_since.get(pool, now) for pool in _short_pools(samples)}
        self._forget(now)

    def recent(self) -> RecentProblems:
        """Return the problems of the last REMEMBERED_SECONDS, but late queues only of the last LATE_SECONDS."""
        now = time.time()
        self._forget(now)
        grown: dict[str, Counter[str]] = {definition.name: Counter() for definition in _COUNTED}
        for each in self._grown:
            if each.name in grown:
                grown[each.name][each.label] += each.amount  # type: ignore[assignment]  # a count may be a float
        short = {pool: now - since for pool, since in self._short_since.items()}
        return RecentProblems(grown, self._late(now - LATE_SECONDS), short)

    def _late(self, since: float) -> dict[str, LateStarts]:
        late: dict[str, LateStarts] = {}
        worst = self._worst_since(since)
        for at, name, queue, amount in self._grown:
            if name == m.TASK_LAG_OBJECTIVE_MISSES.name and at >= since:
                number = late.get(queue, LateStarts()).number + math.ceil(amount)
                late[queue] = LateStarts(number, worst.get(queue, 0.0), at)
        return late

    def _worst_since(self, since: float) -> dict[str, float]:
        """Return the highest lag of each queue since this time, in seconds."""
        worst: dict[str, float] = {}
        for lags in (lags for at, lags in self._worst if at >= since):
            for queue, lag in lags.items():
                worst[queue] = max(lag, worst.get(queue, 0.0))
        return worst

    def _forget(self, now: float) -> None:
        while self._grown and self._grown[0].at < now - REMEMBERED_SECONDS:
            self._grown.popleft()
        while self._worst and self._worst[0][0] < now - LATE_SECONDS:
            self._worst.popleft()


def _counts(samples: Samples) -> dict[tuple[str, str], float]:
    counts: Counter[tuple[str, str]] = Counter()
    for name, label, count in _counted(samples):
        counts[name, label] += count  # type: ignore[assignment]  # a count may be a float
    return dict(counts)


def _counted(samples: Samples) -> Iterator[tuple[str, str, float]]:
    for definition in _COUNTED:
        for labels, (count,) in samples.series(definition):
            if definition is not m.SCHEDULE_OCCURRENCES or labels[1] == _MISSED:
                yield definition.name, labels[0] if labels else _FLEETWIDE, count
    for (queue, kind), (count,) in samples.series(m.TASK_LAG_OBJECTIVE_MISSES):
        if kind != Kind.THROTTLED.label:
            yield m.TASK_LAG_OBJECTIVE_MISSES.name, queue, count


def _short_pools(samples: Samples) -> Iterator[str]:
    """Yield the pools in which fewer workers serve than desired."""
    for (pool,), (desired,) in samples.series(m.WORKERS_DESIRED):
        at_work = sum(samples.value(m.WORKERS, pool, state) or 0.0 for state in _AT_WORK)
        if at_work < desired:
            yield pool
