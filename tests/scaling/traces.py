"""The traces for the simulation. Each has the arrivals of a pool, generated from a seed."""

import math
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

from scaling.pool_model import Trace

HOUR: Final = 3600.0


def _times(rng: random.Random, seconds: float, rate: Callable[[float], float]) -> Iterator[float]:
    """Yield the times of a Poisson process whose rate changes. They are drawn from a process with the highest rate and
    then thinned out.
    """
    highest = max(rate(float(second)) for second in range(int(seconds)))
    now = 0.0
    while (now := now + rng.expovariate(highest)) < seconds:
        if rng.random() * highest < rate(now):
            yield now


def _trace(seed: int, name: str, hours: float, rate: Callable[[float], float], mean: float, **options: Any) -> Trace:
    rng = random.Random(f"{name} {seed}")
    arrivals = list(_times(rng, hours * HOUR, rate))
    return Trace(name, hours * HOUR, arrivals, [rng.expovariate(1 / mean) for _ in arrivals], **options)


def square_wave(seed: int) -> Trace:
    """Return a trace with half an hour of hardly any tasks and half an hour of load, twice."""
    return _trace(
        seed, "square wave", 2, lambda now: 35.0 if now % HOUR > HOUR / 2 else 2.0, 0.2, objective_seconds=5.0
    )


def ramp(seed: int) -> Trace:
    """Return a load that rises for forty minutes and then falls for forty minutes."""
    return _trace(seed, "ramp", 4 / 3, lambda now: 1 + 39 * (1 - abs(now - 2400) / 2400), 0.25)


def burst(seed: int) -> Trace:
    """Return a steady load with a burst of 400 additional tasks, within a second, every 20 minutes."""
    rng = random.Random(f"burst {seed}")
    arrivals = list(_times(rng, HOUR, lambda _: 16.0))
    arrivals += [at * 1200 + 600 + rng.random() for at in range(3) for _ in range(400)]
    return Trace("burst", HOUR, sorted(arrivals), [rng.expovariate(5) for _ in arrivals])


def diurnal(seed: int) -> Trace:
    """Return the load of a day, compressed into two hours."""
    return _trace(seed, "diurnal", 2, lambda now: 10 - 9 * math.cos(2 * math.pi * now / (2 * HOUR)), 0.5)


def heavy_tail(seed: int) -> Trace:
    """Return a load in which a few tasks run a hundred times as long as the others."""
    trace = _trace(seed, "heavy tail", 1, lambda now: 12 + 8 * math.sin(now / 900), 1.0)
    rng = random.Random(f"run times {seed}")
    trace.run_seconds[:] = [rng.lognormvariate(math.log(0.25) - 1.2**2 / 2, 1.2) for _ in trace.arrivals]
    return trace


def poisoned(seed: int) -> Trace:
    """Return a load in which every task fails for 20 minutes. Each attempt takes 50 ms, and with its seven retries this
    is more than the workers can handle.
    """
    failing = (1200.0, 2400.0)
    rng = random.Random(f"poisoned {seed}")
    arrivals: list[float] = []
    run_seconds: list[float] = []
    for at in _times(rng, HOUR, lambda _: 8.0):
        if failing[0] <= at < failing[1]:
            arrivals += [at] * 8
            run_seconds += [0.05] * 8
        else:
            arrivals.append(at)
            run_seconds.append(rng.expovariate(4))
    return Trace("poisoned queue", HOUR, arrivals, run_seconds, failing=failing)


def saturated(seed: int) -> Trace:
    """Return a load that a database limits to five busy workers. For 20 minutes, more tasks arrive than the database
    can handle.
    """
    return _trace(
        seed, "saturated downstream", 1, lambda now: 26.0 if 1200 <= now < 2400 else 12.0, 0.2, saturates_at=5
    )


def stuck(seed: int) -> Trace:
    """Return a load with one task that hangs for an hour."""
    trace = _trace(seed, "stuck task", 1.5, lambda _: 15.0, 0.2)
    trace.run_seconds[9000] = HOUR
    return trace


def outage(seed: int) -> Trace:
    """Return a load during which Redis is unavailable for a minute. The tasks of this minute are enqueued when Redis is
    available again.
    """
    away = (1800.0, 1860.0)
    trace = _trace(seed, "outage", 1, lambda _: 18.0, 0.25, outage=away)
    trace.arrivals[:] = sorted(away[1] if away[0] <= at < away[1] else at for at in trace.arrivals)
    return trace


def two_pools(seed: int) -> tuple[Trace, Trace]:
    """Return the loads of two pools that share a budget. The second pool has a burst while the load of the first pool
    is highest.
    """
    first = _trace(seed, "first of two pools", 1, lambda now: 6 + 5 * math.sin(now / 600), 0.5, most=8)
    second = _trace(seed, "second of two pools", 1, lambda now: 4.0 if now % 1200 < 1100 else 14.0, 0.5, most=8)
    return first, second


TRACES: Final = (square_wave, ramp, burst, diurnal, heavy_tail, poisoned, saturated, stuck, outage)
