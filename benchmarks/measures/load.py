"""How late tasks start under load: two workers at a share of what they can do, which is found first.

What they can do is what they do while a producer beside them on the same machine keeps them busy. Tasks come by chance
then, whether the fleet keeps up or not (a Poisson process), and how late one starts is reckoned from when it was to
come: a producer that is held up makes them all the later.
"""

import time

from benchmarks.effort import Effort
from benchmarks.numbers import Values, quantile
from benchmarks.place import wait_until
from benchmarks.producer import BATCH
from benchmarks.running import Running

WORKERS = 2
SHARES = (50, 70, 90)
QUANTILES = {"50": 0.5, "99": 0.99, "99.9": 0.999}
_MOST_SECONDS = 60.0
_TRIAL_BATCHES = 8
_TRIAL_SECONDS = 0.2


def measure(running: Running, effort: Effort) -> Values:
    """Quantiles of the lag in milliseconds, by the share of the load in per cent."""
    rate = highest_rate(running, effort.load_seconds / 2)
    values: Values = {"rate": rate}
    for share in SHARES:
        late = sorted(lags_under(running, rate * share / 100, effort.load_seconds))
        values |= {f"lag_ms_p{name}_at_{share}": quantile(late, of) for name, of in QUANTILES.items()}
    return values


def highest_rate(running: Running, seconds: float) -> float:
    """Tasks a second while there is always work, in about so many seconds, after trials that bring all to speed."""
    rate = _rate(running, _TRIAL_BATCHES)
    for wanted_seconds in (_TRIAL_SECONDS, seconds):
        rate = _rate(running, max(_TRIAL_BATCHES, round(rate * wanted_seconds / BATCH)))
    return rate


def _rate(running: Running, batches: int) -> float:
    wanted, started = running.place.counted() + batches * BATCH, time.perf_counter()
    running.producer.press("mark", batches)
    wait_until(lambda: running.place.counted() >= wanted, "the end of a load", _MOST_SECONDS)
    return batches * BATCH / (time.perf_counter() - started)


def lags_under(running: Running, rate: float, seconds: float) -> list[float]:
    """How late each task started that came at this rate, in milliseconds."""
    running.place.forget_journal()
    before = running.place.counted()
    came = running.producer.come("mark", rate, seconds)
    wait_until(lambda: running.place.counted() >= before + came, f"{came} tasks of a load", _MOST_SECONDS)
    return [line.late_ms for line in running.place.journal("mark")]
