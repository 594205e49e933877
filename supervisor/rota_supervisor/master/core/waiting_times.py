"""Waiting times of tasks that share workers: Erlang's C formula with the correction of Allen and Cunneen.

The Erlang B recursion is numerically stable for any number of workers (L. Kleinrock, Queueing Systems I, 1975, which
also gives the relation between B and C). For run times that are not exponential, the wait is scaled by the mean of the
squared coefficients of variation of arrivals and run times (A. Allen, Probability, Statistics, and Queueing Theory,
1978). Arrivals are assumed to be a Poisson process, so their coefficient is 1.
"""

import math
from typing import Final

ARRIVAL_VARIATION: Final = 1.0


def tail_slots(load: float, task_seconds: float, variation: float, objective_seconds: float, target: float) -> int:
    """Return the smallest number of task slots with which at least the share `target` of the tasks wait no longer than
    the objective. `load` is the number of slots that are busy on average, which is arrivals per second times seconds
    per task."""
    if load <= 0 or task_seconds <= 0:
        return 0
    spread = (ARRIVAL_VARIATION + variation) / 2 * task_seconds
    blocking = 1.0  # Erlang B: the share of tasks that would be lost with `slots` slots and no waiting room
    slots = 0
    while True:
        slots += 1
        blocking = load * blocking / (slots + load * blocking)
        if slots <= load:
            continue
        waits = slots * blocking / (slots - load * (1 - blocking))  # Erlang C: the share of tasks that wait
        if waits * math.exp(-(slots - load) * objective_seconds / spread) <= 1 - target:
            return slots
