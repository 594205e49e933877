"""The lag of tasks under load. Two workers run at a share of their capacity, and the capacity is measured first.

The capacity is the number of tasks per second that the workers run while a producer on the same machine keeps them
busy. After that, tasks arrive randomly, whether or not the fleet keeps up (a Poisson process). The lag is measured from
the planned arrival, so it includes delays of the producer.
"""

import time

from benchmarks.effort import Effort
from benchmarks.numbers import Values, quantile
from benchmarks.producer import BATCH
from benchmarks.running import Running
from benchmarks.testbed import wait_until

WORKERS = 2
SHARES = (50, 70, 90)
QUANTILES = {"50": 0.5, "99": 0.99, "99.9": 0.999}
_MOST_SECONDS = 60.0
_TRIAL_BATCHES = 8
_TRIAL_SECONDS = 0.2


def measure(running: Running, effort: Effort) -> Values:
    """Measure the quantiles of the lag in milliseconds, for each load in percent of the capacity."""
    rate = highest_rate(running, effort.load_seconds / 2)
    values: Values = {"rate": rate}
    for share in SHARES:
        late = sorted(lags_under(running, rate * share / 100, effort.load_seconds))
        values |= {f"lag_ms_p{name}_at_{share}": quantile(late, of) for name, of in QUANTILES.items()}
    return values


def highest_rate(running: Running, seconds: float) -> float:
    """Return how many tasks per second the fleet runs while it always has work. The fleet is warmed up by trials and
    then measured for about `seconds`.
    """
    rate = _rate(running, _TRIAL_BATCHES)
    for wanted_seconds in (_TRIAL_SECONDS, seconds):
        rate = _rate(running, max(_TRIAL_BATCHES, round(rate * wanted_seconds / BATCH)))
    return rate


def _rate(running: Running, batches: int) -> float:
    wanted = running.testbed.counted() + batches * BATCH
    started = time.perf_counter()
    running.producer.press("mark", batches)
    wait_until(lambda: running.testbed.counted() >= wanted, "the end of a load", _MOST_SECONDS)
    return batches * BATCH / (time.perf_counter() - started)


def lags_under(running: Running, rate: float, seconds: float) -> list[float]:
    """Return each task's lag in milliseconds while tasks arrive at this rate."""
    running.testbed.forget_journal()
    before = running.testbed.counted()
    came = running.producer.come("mark", rate, seconds)
    wait_until(lambda: running.testbed.counted() >= before + came, f"{came} tasks of a load", _MOST_SECONDS)
    return [line.late_ms for line in running.testbed.journal("mark")]
