"""What went wrong in the last minutes and a single look does not show: counters that grew, pools that lack workers, and
which queues were late, how late at worst and until when.

A counter is looked at once a step, and only what grew is remembered: a fleet in which all is well costs nothing here.
"""

import math
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rota.telemetry import metrics as m
from rota.telemetry.metrics import CounterDefinition
from rota_supervisor.exporter.series import Samples

REMEMBERED_SECONDS: Final = 900.0  # the window of the alerts on these counters
LATE_SECONDS: Final = 300.0  # for which a queue counts as one that was late
LATE_NOW_SECONDS: Final = 10.0  # after the last late start was seen; every step of 5 s there is a look
_MISSED: Final = "missed"
_THROTTLED: Final = "throttled"
_AT_WORK: Final = ("running", "quiet")
_FLEETWIDE: Final = ""  # the label of a counter that has none
_COUNTED: Final = (m.ADOPT_ERRORS, m.SCHEDULE_OCCURRENCES, m.SERIES_DROPPED, m.LOG_LINES_DROPPED, m.LOG_LINES_FAILED)


class LateStarts(NamedTuple):
    """Starts of a queue over its objective in LATE_SECONDS: how many, the highest lag, and by when they were seen (Unix
    time). The lag is exact, and never that of a throttled task."""

    number: int = 0
    worst_seconds: float = 0.0
    until: float | None = None


@dataclass(frozen=True, slots=True)
class RecentTroubles:
    """`grown`: by the name of each counter, what it grew by for each value of its first label. `late`: by queue.
    `short_seconds`: by pool, for how long it has had fewer workers at work than it should."""

    grown: dict[str, Counter[str]] = field(default_factory=dict)
    late: dict[str, LateStarts] = field(default_factory=dict)
    short_seconds: dict[str, float] = field(default_factory=dict)

    def of(self, counter: CounterDefinition) -> dict[str, int]:
        """Return what this counter grew by, for each value of its first label."""
        return {label: math.ceil(count) for label, count in self.grown.get(counter.name, {}).items()}

    def total(self, counter: CounterDefinition) -> int:
        return sum(self.of(counter).values())


class _Growth(NamedTuple):
    """What a counter grew by, seen at `at` (Unix time)."""

    at: float
    name: str
    label: str
    amount: float


class TroubleWatch:
    """Remembers what grew. Not safe for two threads at once."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], float] | None = None
        self._grown: deque[_Growth] = deque()
        self._worst: deque[tuple[float, dict[str, float]]] = deque()
        self._short_since: dict[str, float] = {}

    def note(self, samples: Samples) -> None:
        """Take note of what grew since the last call; the gauges of the master have to be among the samples."""
        now, counts = time.time(), _counts(samples)
        if self._counts is None:  # a fleet that has just begun counted from 0; another one was looked at before
            is_young = now - (samples.value(m.START_TIME) or 0.0) < REMEMBERED_SECONDS
            self._counts = {} if is_young else counts
        for key, count in counts.items():
            if (grown := count - self._counts.get(key, 0.0)) > 0:
                self._grown.append(_Growth(now, *key, grown))
        self._counts = counts
        worst = {queue: lag for (queue,), (lag,) in samples.series(m.TASK_LAG_WORST) if lag > 0}
        self._worst.append((now, worst))
        self._short_since = {pool: self._short_since.get(pool, now) for pool in _short_pools(samples)}
        self._forget(now)

    def recent(self) -> RecentTroubles:
        """Return what went wrong lately."""
        now = time.time()
        self._forget(now)
        grown: dict[str, Counter[str]] = {definition.name: Counter() for definition in _COUNTED}
        for each in self._grown:
            if each.name in grown:
                grown[each.name][each.label] += each.amount  # type: ignore[assignment]  # a count may be a float
        short = {pool: now - since for pool, since in self._short_since.items()}
        return RecentTroubles(grown, self._late(now - LATE_SECONDS), short)

    def _late(self, since: float) -> dict[str, LateStarts]:
        late: dict[str, LateStarts] = {}
        worst = self._worst_since(since)
        for at, name, queue, amount in self._grown:
            if name == m.TASK_LAG_OBJECTIVE_MISSES.name and at >= since:
                number = late.get(queue, LateStarts()).number + math.ceil(amount)
                late[queue] = LateStarts(number, worst.get(queue, 0.0), at)
        return late

    def _worst_since(self, since: float) -> dict[str, float]:
        """Return the highest lag of each queue, in seconds."""
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
        if kind != _THROTTLED:
            yield m.TASK_LAG_OBJECTIVE_MISSES.name, queue, count


def _short_pools(samples: Samples) -> Iterator[str]:
    """Yield the pools that have fewer workers at work than they should."""
    for (pool,), (desired,) in samples.series(m.WORKERS_DESIRED):
        at_work = sum(samples.value(m.WORKERS, pool, state) or 0.0 for state in _AT_WORK)
        if at_work < desired:
            yield pool
