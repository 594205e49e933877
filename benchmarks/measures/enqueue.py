"""The rate at which one producer enqueues without a running fleet, with one task and with 500 tasks per call.

On a small machine, the rate of a single client has two typical values, depending on whether the client shares a
processor with the server. So the result of a round is the median of several repetitions, and results are compared
within a round.
"""

import statistics
from collections.abc import Callable

from benchmarks.effort import Effort
from benchmarks.numbers import Values
from benchmarks.producer import BATCH
from benchmarks.running import Running

WORKERS = 0
_TRIAL_TASKS = BATCH
_MOST_TASKS = 60_000


def measure(running: Running, effort: Effort) -> Values:
    """Measure how many tasks per second are enqueued singly and in bulk. Both ways are measured alternately."""
    ways = {"single": running.producer.each, "bulk": running.producer.many}
    counts = {name: _count(enqueue, effort) for name, enqueue in ways.items()}
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(effort.enqueue_repeats):
        for name, enqueue in ways.items():
            rates[name].append(counts[name] / enqueue("nothing", counts[name]))
    return {name: statistics.median(found) for name, found in rates.items()} | {
        f"{name}_all": found for name, found in rates.items()
    }


def _count(enqueue: Callable[[str, int], float], effort: Effort) -> int:
    """Return how many tasks can be enqueued in the desired time, rounded to whole batches."""
    enqueue("nothing", _TRIAL_TASKS)
    rate = _TRIAL_TASKS / enqueue("nothing", _TRIAL_TASKS)
    batches = round(rate * effort.enqueue_seconds / BATCH)
    return min(_MOST_TASKS, max(1, batches) * BATCH)
