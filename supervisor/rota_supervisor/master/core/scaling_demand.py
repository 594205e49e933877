"""The demand on a pool: the load and the backlog that were measured, and the numbers of workers that they require."""

import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from rota_supervisor.master.core.scaling_backlogs import (
    LONG_SECONDS,
    ROUND_SECONDS,
    Backlogs,
    Objective,
    countable,
    growth,
    remembered,
    steady_growth,
)
from rota_supervisor.master.core.scaling_inputs import LoadWindow, NodeLoad, PoolInputs, QueueBacklog
from rota_supervisor.master.core.waiting_times import tail_slots

UTILIZATION: Final = 0.9  # under a steady load, task slots should be busy for at most this share of the time
FEWEST_STARTS: Final = 20  # a mean of fewer run times is not reliable
# The short window is preferred if it differs from the long one by more than this many standard deviations.
SIGMAS: Final = 3.0
MOST_VARIATION: Final = 10.0  # with a greater variation, the formula for the tail is too inaccurate
# A task is held if it runs longer than the long window and longer than this many mean run times.
HELD_FACTOR: Final = 10


class Demand(NamedTuple):
    """The measured load and backlog of a pool, and the numbers of workers that they require."""

    arrivals: float  # arriving tasks per second
    starts: float  # starts per second in the short window
    long_starts: int  # the number of starts in the long window
    task_seconds: float  # the mean time for which a task occupies a slot
    variation: float
    held: int
    # Each queue, with the number of its waiting tasks and the most slots that these tasks can use.
    backlogs: tuple[tuple[QueueBacklog, float, float], ...]
    slots: int  # the number of task slots of the workers that can claim
    boot_seconds: float  # the time until workers that are starting, or would start now, are ready
    concurrency: float  # how many tasks a worker runs at once, on average
    objective: Objective | None

    @property
    def load(self) -> float:
        """The average number of task slots that the arriving tasks keep busy."""
        return self.arrivals * self.task_seconds

    @property
    def waiting(self) -> float:
        """The number of tasks that wait for a free slot."""
        return sum(waiting for _, waiting, _ in self.backlogs)

    def workers(self, slots: float) -> int:
        """Return the number of workers that provide this many task slots. Tasks that run for longer than a minute (held
        tasks) occupy slots too, and these are added."""
        return math.ceil(round((slots + self.held) / self.concurrency, 6))

    @property
    def steady(self) -> int:
        """The number of workers that the arriving tasks keep busy for 90 % of the time."""
        return self.workers(self.load / UTILIZATION)

    def tail(self, share: float = 1.0) -> int:
        """Return how many workers a pool without a backlog needs so that nearly all arriving tasks wait no longer than
        `share` of the lag objective."""
        if self.objective is None:
            return self.workers(0)
        seconds, target, _ = self.objective
        return self.workers(tail_slots(self.load, self.task_seconds, self.variation, seconds * share, target))

    @property
    def drain(self) -> int:
        """The number of workers that keep up with the arrivals and also complete the backlog before its oldest task is
        late."""
        more = max(0.0, self.load - self.slots) * self.boot_seconds  # work that accumulates until new workers are ready
        total = 0.0
        for queue, waiting, most in self.backlogs:
            work = waiting * self.task_seconds + more * waiting / self.waiting
            horizon = queue.objective_seconds - queue.oldest_seconds - self.boot_seconds
            total += min(work / max(horizon, ROUND_SECONDS), waiting, most)
        return self.workers(self.load + total)

    def holding(self, share: float) -> int:
        """Return how many workers could start every waiting task before its wait reaches `share` of the queue's lag
        objective, if no more tasks arrived."""
        slots = 0.0
        for queue, waiting, most in self.backlogs:
            horizon = queue.objective_seconds * share - queue.oldest_seconds
            slots += min(waiting * self.task_seconds / max(horizon, ROUND_SECONDS), waiting, most)
        return self.workers(slots)

    def lag_ratio(self, workers: int) -> float:
        """Return the predicted lag with this number of workers, divided by the lag objective. If the queues differ,
        return the largest of their ratios."""
        slots = max(workers * self.concurrency - self.held, 0.1)
        seconds = self.waiting * self.task_seconds / slots
        return max(
            ((each.oldest_seconds + seconds) / each.objective_seconds for each, _, _ in self.backlogs), default=0.0
        )

    def drain_seconds(self, workers: int) -> float:
        """Return the predicted seconds until no task waits, or infinity if the backlog grows."""
        spare = workers * self.concurrency - self.held - self.load
        work = self.waiting * self.task_seconds
        if work <= 0:
            return 0.0
        return work / spare if spare > 0 else math.inf


def demand_of(past: Backlogs, inputs: PoolInputs, boot_left: float, now: float) -> tuple[Backlogs, Demand]:
    """Return the updated memory of the backlogs for the next round, and the current demand. `boot_left` is the time
    until workers that are starting, or would start now, are ready."""
    nodes = inputs.nodes
    short, long = _total(node.short for node in nodes), _total(node.long for node in nodes)
    held = sum(node.held for node in nodes)
    if _without_held(long, held) * HELD_FACTOR > max(long.seconds, LONG_SECONDS):
        held = 0
    past = remembered(past, inputs, now)
    task_seconds = _task_seconds(short, long, held, nodes) or past.task_seconds
    demand = Demand(
        arrivals=_arrivals(short, long, past),
        starts=_per_second(short),
        long_starts=long.starts,
        task_seconds=task_seconds,
        variation=min(long.variation, MOST_VARIATION),
        held=held,
        backlogs=tuple(_waiting(inputs.queues, sum(node.free_slots for node in nodes), task_seconds, past.running)),
        slots=sum(node.workers * node.concurrency for node in nodes),
        boot_seconds=boot_left,
        concurrency=sum(node.concurrency for node in nodes) / len(nodes) if nodes else 1.0,
        objective=past.objective,
    )
    return past._replace(task_seconds=task_seconds), demand


def _total(windows: Iterable[LoadWindow]) -> LoadWindow:
    """Return the windows of all nodes as one window. They cover the same period, so their counts are added, but not
    their lengths."""
    measured = [window for window in windows if window.seconds > 0]
    starts = sum(window.starts for window in measured)
    return LoadWindow(
        seconds=max((window.seconds for window in measured), default=0.0),
        starts=starts,
        occupied_seconds=sum(window.occupied_seconds for window in measured),
        variation=sum(window.variation * window.starts for window in measured) / starts if starts else 1.0,
        first_attempts=sum(window.first_attempts for window in measured),
        first_failures=sum(window.first_failures for window in measured),
    )


def _per_second(window: LoadWindow) -> float:
    return window.starts / window.seconds if window.seconds > 0 else 0.0


def _without_held(window: LoadWindow, held: int) -> float:
    """Return the mean time for which a started task occupies a task slot. The time of the held tasks, which have been
    running for longer than the long window, is subtracted first."""
    occupied = max(0.0, window.occupied_seconds - held * window.seconds)
    return occupied / window.starts if window.starts else 0.0


def _task_seconds(short: LoadWindow, long: LoadWindow, held: int, nodes: tuple[NodeLoad, ...]) -> float:
    mean = _without_held(long, held)
    if not long.starts:
        running = sum(node.running for node in nodes)
        return sum(node.running_seconds for node in nodes) / running if running else 0.0
    if short.starts < FEWEST_STARTS:
        return mean
    near = _without_held(short, held)
    error = SIGMAS * math.sqrt(min(long.variation, MOST_VARIATION) / short.starts)
    return min(max(mean, near * (1 - error)), near * (1 + error))


def _arrivals(short: LoadWindow, long: LoadWindow, past: Backlogs) -> float:
    """Return the arrivals per second in the long window. If the short window differs by more than chance can explain,
    return the nearest value that is compatible with the short window."""
    if long.starts < FEWEST_STARTS:
        return _per_second(long)
    count = max(0.0, (_per_second(short) + steady_growth(past)) * short.seconds)
    error = SIGMAS * math.sqrt(count + 1)
    mean = max(0.0, _per_second(long) + growth(past))
    return min(max(mean, (count - error) / short.seconds), (count + error) / short.seconds)


def _waiting(
    queues: tuple[QueueBacklog, ...], free: int, task_seconds: float, running: Mapping[str, float]
) -> Iterable[tuple[QueueBacklog, float, float]]:
    """Yield each open queue that has more ready tasks than the `free` task slots can take, with two numbers: how many
    of its tasks are left over, and how many more slots the cap and the rate of the queue let its tasks use.

    A rate limits the slots too: by Little's law, the tasks of the queue occupy on average as many slots as the rate
    times their run time.
    """
    left = float(free)
    for queue in queues:
        bound = min(queue.cap or math.inf, queue.rate_per_second * (task_seconds or math.inf))
        most = max(0.0, bound - running.get(queue.queue, 0.0))
        if queue.is_open and most > 0:
            waiting = max(0.0, countable(queue) - left)
            left = max(0.0, left - countable(queue))
            if waiting > 0:
                yield queue, waiting, most
