"""The backlogs of a pool over time: how fast they grow, and which lag objectives apply."""

import math
from collections.abc import Mapping
from itertools import pairwise
from statistics import median_low
from typing import Final, NamedTuple

from rota_supervisor.master.core.scaling_inputs import PoolInputs, QueueBacklog

ROUND_SECONDS: Final = 0.5
LONG_SECONDS: Final = 60.0
GAP_SECONDS: Final = 5.0  # after this time without a round, earlier backlogs are too old for comparison
OBJECTIVE_SECONDS: Final = 600.0  # how long a queue's objective applies after a task of the queue was last seen waiting
FULL_SHARE: Final = 0.8  # a queue is at its cap if its running tasks exceed this share of the cap on average
_NEWEST_POINTS: Final = 5  # the number of points in the growth history that cover the last 2 s
_STRETCH_SECONDS: Final = 5.0  # the time between older points in the growth history
_SLACK_SECONDS: Final = 0.01  # the tolerance when a time is compared with the start of a window
_SMOOTHING: Final = 0.2  # the weight of the newest round in the mean number of running tasks


class Objective(NamedTuple):
    """The strictest lag objective among the queues that recently had waiting tasks."""

    seconds: float
    target: float
    until: float  # when this objective no longer applies


class Backlogs(NamedTuple):
    """The facts about the backlogs of a pool's queues that each scaling round keeps for the next one."""

    at: float = -math.inf
    ready: Mapping[str, float] = {}  # the number of `countable` tasks of each queue in the last round
    # The time of each round that is kept, with the total growth until then.
    growth: tuple[tuple[float, float], ...] = ((-math.inf, 0.0),)
    running: Mapping[str, float] = {}  # the mean number of running tasks of each queue with a cap or a rate
    objective: Objective | None = None
    task_seconds: float = 0.0  # the last known mean run time, or 0 if none is known


def remembered(past: Backlogs, inputs: PoolInputs, now: float) -> Backlogs:
    """Return `past` with the backlogs that `inputs` reports for this round added."""
    is_new = now - past.at > GAP_SECONDS
    ready = {queue.queue: countable(queue) for queue in inputs.queues}
    running = _mean_running(past.running, inputs.queues)
    points = () if is_new else past.growth
    total = points[-1][1] + _grown(past.ready, ready, _barred(inputs.queues, running)) if points else 0.0
    if len(points) > 1 and now - points[-2][0] < ROUND_SECONDS:
        points = points[:-1]  # The last point is too close to the one before it, so this round replaces it.
    return past._replace(
        at=now,
        ready=ready,
        growth=_thinned((*points, (now, total)), now),
        running=running,
        objective=_strictest(past.objective, inputs.queues, now),
    )


def _barred(queues: tuple[QueueBacklog, ...], running: Mapping[str, float]) -> set[str]:
    """Return the names of the queues whose waiting tasks more workers could not start: those that are closed, and those
    with about as many running tasks as their cap (the limit on tasks that run at once) permits."""
    return {
        queue.queue
        for queue in queues
        if not queue.is_open or (queue.cap and running[queue.queue] > FULL_SHARE * queue.cap)
    }


def _grown(before: Mapping[str, float], ready: Mapping[str, float], barred: set[str]) -> float:
    """Return the number of tasks by which the backlogs have grown since the last round, not counting `barred` queues.
    When a queue opens, the tasks that it already has do not count as growth."""
    return sum(ready.get(name, 0.0) - before.get(name, 0.0) for name in {*ready, *before} - barred)


def countable(queue: QueueBacklog) -> float:
    """Return how many ready tasks of a queue count as its backlog. If the queue has a rate, tasks that the rate would
    not let start within the lag objective do not count, because more workers would not start them sooner."""
    return min(float(queue.ready), queue.rate_per_second * queue.objective_seconds)


def growth(past: Backlogs) -> float:
    """Return the average growth of the backlogs in the long window (the last minute), in tasks per second."""
    return (past.growth[-1][1] - past.growth[0][1]) / LONG_SECONDS


def steady_growth(past: Backlogs) -> float:
    """Return the growth of the backlogs in a typical round of the short window (the last 2 s), in tasks per second.

    The result is the median of the rounds. It therefore ignores a burst of tasks that arrive at the same moment,
    because a burst does not predict further arrivals.
    """
    newest = past.growth[-_NEWEST_POINTS:]
    rates = [(total - before) / (at - earlier) for (earlier, before), (at, total) in pairwise(newest) if at > earlier]
    return median_low([*rates, *[0.0] * (_NEWEST_POINTS - 1 - len(rates))])


def _thinned(growth: tuple[tuple[float, float], ...], now: float) -> tuple[tuple[float, float], ...]:
    """Return the growth history without the points that are no longer needed. A point is a time, and the total growth
    until then. The last few points are kept. Of the older ones, about one for every 5 s is kept, and none from before
    the long window."""
    first = next((i for i, (at, _) in enumerate(growth) if at >= now - LONG_SECONDS - _SLACK_SECONDS), 0)
    # The newest points begin at this index and are all kept. The point before them may be dropped.
    last = len(growth) - _NEWEST_POINTS
    if last - first > 1 and growth[last][0] - growth[last - 2][0] < _STRETCH_SECONDS:
        return (*growth[first : last - 1], *growth[last:])
    return growth[first:]


def _mean_running(past: Mapping[str, float], queues: tuple[QueueBacklog, ...]) -> dict[str, float]:
    bounded = [queue for queue in queues if queue.cap or queue.rate_per_second < math.inf]
    return {
        queue.queue: queue.running * _SMOOTHING + past.get(queue.queue, queue.running) * (1 - _SMOOTHING)
        for queue in bounded
    }


def _strictest(past: Objective | None, queues: tuple[QueueBacklog, ...], now: float) -> Objective | None:
    seen = [
        Objective(queue.objective_seconds, queue.target, now + OBJECTIVE_SECONDS) for queue in queues if queue.is_open
    ]
    if past is not None and past.until > now:
        seen.append(past)
    return min(seen, key=lambda each: (each.seconds, -each.target, -each.until), default=None)
