"""A model of a pool: its workers, its single first-in, first-out queue, and the measurements that a node makes of
them.
"""

import heapq
import math
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rota_supervisor.master.core.scaling_inputs import LoadWindow, NodeLoad, QueueBacklog

ROUND_SECONDS: Final = 0.5
SHORT_ROUNDS: Final = 4
LONG_ROUNDS: Final = 120
HELD_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Trace:
    """The tasks of a pool in the order of their arrival, and the properties of the pool that runs them."""

    name: str
    seconds: float
    arrivals: list[float]
    run_seconds: list[float]
    objective_seconds: float = 10.0
    target: float = 0.99
    least: int = 1
    most: int = 16
    start_seconds: float = 0.5
    saturates_at: int = 0  # beyond this number of busy workers, additional workers only make the tasks slower
    # The period in which Redis is unavailable: no task starts, and nothing is decided.
    outage: tuple[float, float] = (0.0, 0.0)
    failing: tuple[float, float] = (0.0, 0.0)  # the period in which every arriving task fails
    attempts: int = 8  # the number of attempts of a failing task

    def is_away(self, now: float) -> bool:
        """Whether Redis is unavailable at this time."""
        return self.outage[0] <= now < self.outage[1]


class Sample(NamedTuple):
    """The work that the workers did in one round."""

    starts: int = 0
    occupied: float = 0.0
    run_seconds: float = 0.0
    squares: float = 0.0
    first_attempts: int = 0
    first_failures: int = 0


@dataclass
class Workers:
    """The workers of a pool, and the tasks that they have started."""

    trace: Trace
    now: float = 0.0
    started: int = 0  # the number of tasks started so far, which is also the index of the oldest waiting task
    late: int = 0
    # A heap with two times for each worker: when the worker is free, and when its last task started.
    idle: list[tuple[float, float]] = field(default_factory=list)
    booting: list[float] = field(default_factory=list)  # the times at which the starting workers will be ready
    leaving: list[float] = field(default_factory=list)  # the times at which the last tasks of the leaving workers end

    @property
    def count(self) -> int:
        """The number of workers, including those that are still starting."""
        return len(self.idle) + len(self.booting)

    def copy(self) -> "Workers":
        """Return a copy of the workers in their current state."""
        return Workers(self.trace, self.now, self.started, self.late, [*self.idle], [*self.booting], [*self.leaving])

    def resize(self, count: int, start_seconds: float) -> None:
        """Start workers, or let some workers leave. Workers that are still starting leave first, followed by idle
        workers. A busy worker finishes its task before it leaves.
        """
        for _ in range(count - self.count):
            self.booting.append(self.now + start_seconds)
        for _ in range(self.count - count):
            if self.booting:
                self.booting.pop()
            else:
                self.leaving.append(heapq.heappop(self.idle)[0])

    def advance(self, until: float, arrived_before: float | None = None) -> Sample:
        """Let the workers work until `until`. They start only tasks that arrived before `arrived_before`, or before
        `until` if no other time is given.
        """
        self._boot(until)
        arrivals, durations, idle = self.trace.arrivals, self.trace.run_seconds, self.idle
        before = self._outstanding()
        first = self.started
        end = bisect_left(arrivals, until if arrived_before is None else arrived_before, first)
        task = first
        late = 0
        work = measured = squares = 0.0
        away_from, away_until = self.trace.outage
        while task < end and idle:
            arrived = arrivals[task]
            free_at = idle[0][0]
            start = max(arrived, free_at)
            if away_from <= start < away_until:
                start = away_until
            if start >= until:
                break
            seconds = durations[task]
            if self.trace.saturates_at:
                busy = 1 + sum(each[0] > start for each in idle)
                seconds *= max(1.0, busy / self.trace.saturates_at)
            heapq.heapreplace(idle, (start + seconds, start))
            late += start - arrived > self.trace.objective_seconds
            work += seconds
            if seconds < HELD_SECONDS:
                measured += seconds
                squares += seconds * seconds
            task += 1
        self.started = task
        self.late += late
        self.now = until
        self.leaving = [at for at in self.leaving if at > until]
        occupied = work + before - self._outstanding()
        return Sample(task - first, max(0.0, occupied), measured, squares, *self._failures(first, task))

    def _boot(self, until: float) -> None:
        """Move each worker that has finished starting by this time to the idle workers."""
        for ready_at in [at for at in self.booting if at <= until]:
            self.booting.remove(ready_at)
            heapq.heappush(self.idle, (ready_at, ready_at))

    def _failures(self, first: int, end: int) -> tuple[int, int]:
        begin, stop = self.trace.failing
        if first == end or not begin <= self.trace.arrivals[first] < stop:
            return end - first, 0
        first_attempts = (end - first) // self.trace.attempts
        return first_attempts, first_attempts

    def _outstanding(self) -> float:
        now = self.now
        return sum(at - now for at, _ in self.idle if at > now) + sum(at - now for at in self.leaving if at > now)

    @property
    def ready(self) -> int:
        """The number of waiting tasks."""
        return bisect_left(self.trace.arrivals, self.now, self.started) - self.started

    @property
    def oldest_seconds(self) -> float:
        """The time for which the oldest task has been waiting."""
        return self.now - self.trace.arrivals[self.started] if self.ready else 0.0

    @property
    def running(self) -> int:
        """The number of running tasks."""
        return sum(at > self.now for at, _ in self.idle)


class Node:
    """A node with one pool. It measures the pool by the values that workers leave in their slots."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers
        self._short: deque[Sample] = deque(maxlen=SHORT_ROUNDS)
        self._long: deque[Sample] = deque(maxlen=LONG_ROUNDS)
        self._short_sum = self._long_sum = Sample()

    def round(self, until: float) -> None:
        """Let the workers work until this time, the end of the round, and measure them."""
        sample = self.workers.advance(until)
        self._short_sum = _shifted(self._short_sum, self._short, sample)
        self._long_sum = _shifted(self._long_sum, self._long, sample)

    def load(self, granted: int | None = None) -> NodeLoad:
        """Return the load that the node reports."""
        workers, trace = self.workers, self.workers.trace
        ages = [workers.now - start for at, start in workers.idle if at > workers.now]
        short_ages = [age for age in ages if age <= HELD_SECONDS]
        return NodeLoad(
            node="a",
            short=_window(self._short_sum, len(self._short)),
            long=_window(self._long_sum, len(self._long)),
            workers=len(workers.idle),
            starting=len(workers.booting),
            free_slots=len(workers.idle) - len(ages),
            running_seconds=sum(short_ages),
            running=len(short_ages),
            held=len(ages) - len(short_ages),
            concurrency=1,
            least=trace.least,
            most=trace.most,
            granted=trace.most if granted is None else granted,
            limited_by="",
            start_seconds=trace.start_seconds,
            is_blocked=False,
            operator=None,
        )

    def backlog(self) -> tuple[QueueBacklog, ...]:
        """Return the backlog of the queue, or nothing if the queue has no waiting tasks."""
        workers, trace = self.workers, self.workers.trace
        if not workers.ready:
            return ()
        queue = QueueBacklog(
            queue="mail",
            ready=workers.ready,
            oldest_seconds=workers.oldest_seconds,
            running=workers.running,
            is_open=True,
            cap=0,
            rate_per_second=math.inf,
            objective_seconds=trace.objective_seconds,
            target=trace.target,
        )
        return (queue,)


def _shifted(total: Sample, samples: deque[Sample], sample: Sample) -> Sample:
    oldest = samples[0] if len(samples) == samples.maxlen else _NOTHING
    samples.append(sample)
    return Sample._make(each + new - old for each, new, old in zip(total, sample, oldest, strict=True))


_NOTHING: Final = Sample()


def _window(total: Sample, rounds: int) -> LoadWindow:
    mean = total.run_seconds / total.starts if total.starts else 0.0
    variation = max(0.0, total.squares / total.starts / mean**2 - 1) if mean > 0 else 1.0
    return LoadWindow(
        rounds * ROUND_SECONDS, total.starts, total.occupied, variation, total.first_attempts, total.first_failures
    )
