"""The lag of tasks. An idle fleet of four workers runs delayed tasks, tasks that are all due at once, and tasks that
are enqueued singly. A process that runs many tasks at once receives tasks at a steady rate.

A task records its start before it does anything else. A start before the due time is counted as early, because it is
worse than a late start.
"""

import random
import time

from benchmarks.effort import Effort
from benchmarks.numbers import Values, summary
from benchmarks.running import Running
from benchmarks.testbed import Failed

WORKERS = 4
STEADY_WORKERS = 1
_AHEAD_SECONDS = 2.0
_MOST_LATE_SECONDS = 60.0


def measure_lag(running: Running, effort: Effort) -> Values:
    """Measure the lag of tasks that are due at random times and enqueued in random order."""
    chance = random.Random(effort.lag_tasks)
    begin = time.time() + _AHEAD_SECONDS
    return _lateness(running, [begin + chance.uniform(0, effort.lag_seconds) for _ in range(effort.lag_tasks)])


def measure_burst(running: Running, effort: Effort) -> Values:
    """Measure the lag of many tasks that are due at one instant. The maximum shows when the last task starts."""
    return _lateness(running, [time.time() + effort.burst_ahead_seconds] * effort.burst_tasks)


def measure_wake(running: Running, effort: Effort) -> Values:
    """Measure the time from the enqueue call to the start, for single tasks with pauses of about 20 ms."""
    running.testbed.forget_journal()
    running.producer.singly("mark", effort.wake_tasks)
    lines = running.testbed.wait_for_lines("mark", effort.wake_tasks, _MOST_LATE_SECONDS)
    return summary("wake_ms", [line.late_ms for line in lines])


def measure_steady(running: Running, effort: Effort) -> Values:
    """Measure the time from the enqueue call to the start of tasks that wait for 10 ms. Also measure the rate at which
    the tasks were enqueued, because a producer that cannot keep up puts less load on its fleet.
    """
    running.testbed.forget_journal()
    seconds = running.producer.steadily("linger", effort.steady_tasks, effort.steady_rate)
    lines = running.testbed.wait_for_lines("linger", effort.steady_tasks, _MOST_LATE_SECONDS)
    return summary("lag_ms", [line.late_ms for line in lines]) | {"offered": effort.steady_tasks / seconds}


def _lateness(running: Running, dues: list[float]) -> Values:
    running.testbed.forget_journal()
    running.producer.later("mark", dues)
    if time.time() > min(dues):
        raise Failed("the producer was still enqueuing when the first task was due")
    rest = max(dues) - time.time()
    lines = running.testbed.wait_for_lines("mark", len(dues), rest + _MOST_LATE_SECONDS)
    late = [line.late_ms for line in lines]
    return summary("lag_ms", late) | {"early": sum(lag < 0 for lag in late)}
