"""How fast workers work off what waits: two of them tasks that do nothing and tasks of 10 ms, one tasks that wait.

Timed from the moment the workers may begin until the last call has returned, told by words of shared memory that each
process counts in. For Rota it is timed on until the books say that the last one is settled; what the others still have
to acknowledge by then is not held against them.
"""

import time
from typing import NamedTuple

import psutil

from benchmarks.effort import Effort
from benchmarks.numbers import Values
from benchmarks.place import wait_until
from benchmarks.processes import cpu_seconds
from benchmarks.running import Running

WORKERS = 2
WAITING_WORKERS = 1
MOST_SECONDS = 120.0
_TRIAL_TASKS = 300
_MOST_TASKS = 150_000


def measure(running: Running, effort: Effort) -> Values:
    """Tasks a second that do nothing."""
    return _measure_rate(running, "nothing", effort)


def measure_waits(running: Running, effort: Effort) -> Values:
    """Tasks a second of which each waits for 10 ms."""
    return _measure_rate(running, "work", effort)


def _measure_rate(running: Running, task: str, effort: Effort) -> Values:
    """Tasks a second, after two trials that say how many make up the time wanted; and the processor time of fleet and
    server for each, which spreads less on a machine that does other things too."""
    count = _TRIAL_TASKS
    for wanted_seconds in (effort.drain_seconds / 4, effort.drain_seconds):
        rate = count / drain_seconds(running, task, count)
        count = round(min(_MOST_TASKS, max(_TRIAL_TASKS, rate * wanted_seconds)))
    took = drain(running, task, count)
    cpu_us = took.cpu_seconds / count * 1_000_000
    return {"tasks": count, "seconds": took.seconds, "rate": count / took.seconds, "cpu_us": cpu_us}


def measure_work(running: Running, effort: Effort) -> Values:
    """The share of the workers' time that is spent in tasks, when each takes 10 ms."""
    drain_seconds(running, "work", 10 * WORKERS)
    before = running.place.busy_seconds()
    seconds = drain_seconds(running, "work", effort.work_tasks)
    busy = running.place.busy_seconds() - before
    share = busy / (running.workers * seconds)
    return {"tasks": effort.work_tasks, "seconds": seconds, "busy_seconds": busy, "share": share * 100}


def drain_seconds(running: Running, task: str, count: int) -> float:
    """How long the fleet takes over so many waiting tasks."""
    return drain(running, task, count).seconds


class Drained(NamedTuple):
    """What working off took: by the clock, processor time of the fleet and the server, and of the server alone."""

    seconds: float
    cpu_seconds: float
    server_seconds: float


def drain(running: Running, task: str, count: int) -> Drained:
    """Have the fleet work off so many waiting tasks."""
    contender, place = running.contender, running.place
    counted, settled = place.counted() + count, (contender.settled(place) or 0) + count
    contender.hold(running)
    running.producer.many(task, count)
    fleet, server = running.processes(), [psutil.Process(place.server_pid)]
    fleet_cpu, server_cpu, started = cpu_seconds(fleet), cpu_seconds(server), time.perf_counter()
    contender.let_go(running)
    wait_until(lambda: place.counted() >= counted, f"the end of {count} tasks", MOST_SECONDS)
    wait_until(lambda: contender.settled(place) in (None, settled), f"{count} tasks settled", MOST_SECONDS)
    seconds, server_seconds = time.perf_counter() - started, cpu_seconds(server) - server_cpu
    return Drained(seconds, cpu_seconds(fleet) - fleet_cpu + server_seconds, server_seconds)
