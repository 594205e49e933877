"""The rate at which workers process waiting tasks. Two workers run empty tasks and tasks of 10 ms, and one worker runs
tasks that only wait.

The time is measured from the moment at which the workers may start until the last call has returned. Each process
counts its calls in shared memory. For Rota, the time ends only when the counters show that the last task is settled.
For other contenders, the time may end before the last tasks are acknowledged.
"""

import time
from typing import NamedTuple

import psutil

from benchmarks.effort import Effort
from benchmarks.numbers import Values
from benchmarks.processes import cpu_seconds
from benchmarks.running import Running
from benchmarks.testbed import wait_until

WORKERS = 2
WAITING_WORKERS = 1
MOST_SECONDS = 120.0
_TRIAL_TASKS = 300
_MOST_TASKS = 150_000


def measure(running: Running, effort: Effort) -> Values:
    """Measure how many empty tasks per second the fleet runs."""
    return _measure_rate(running, "nothing", effort)


def measure_waits(running: Running, effort: Effort) -> Values:
    """Measure how many tasks per second the fleet runs if each task waits for 10 ms."""
    return _measure_rate(running, "work", effort)


def _measure_rate(running: Running, task: str, effort: Effort) -> Values:
    """Measure the tasks per second. Also measure the processor time that fleet and server take per task, which a busy
    machine affects less.

    Two trials determine how many tasks take the desired time.
    """
    count = _TRIAL_TASKS
    for wanted_seconds in (effort.drain_seconds / 4, effort.drain_seconds):
        rate = count / drain_seconds(running, task, count)
        count = round(min(_MOST_TASKS, max(_TRIAL_TASKS, rate * wanted_seconds)))
    took = drain(running, task, count)
    cpu_us = took.cpu_seconds / count * 1_000_000
    return {"tasks": count, "seconds": took.seconds, "rate": count / took.seconds, "cpu_us": cpu_us}


def measure_work(running: Running, effort: Effort) -> Values:
    """Measure the share of the workers' time that is spent in tasks of 10 ms."""
    drain_seconds(running, "work", 10 * WORKERS)
    before = running.testbed.busy_seconds()
    seconds = drain_seconds(running, "work", effort.work_tasks)
    busy = running.testbed.busy_seconds() - before
    share = busy / (running.workers * seconds)
    return {"tasks": effort.work_tasks, "seconds": seconds, "busy_seconds": busy, "share": share * 100}


def drain_seconds(running: Running, task: str, count: int) -> float:
    """Return how many seconds the fleet takes to run this number of waiting tasks."""
    return drain(running, task, count).seconds


class Drained(NamedTuple):
    """The cost of a drain: its duration, the processor time of fleet and server together, and the processor time of the
    server alone.
    """

    seconds: float
    cpu_seconds: float
    server_seconds: float


def drain(running: Running, task: str, count: int) -> Drained:
    """Let the fleet run this number of waiting tasks, and return the cost."""
    contender = running.contender
    testbed = running.testbed
    counted = testbed.counted() + count
    settled = (contender.settled(testbed) or 0) + count
    contender.hold(running)
    running.producer.many(task, count)
    fleet = running.processes()
    server = [psutil.Process(testbed.server_pid)]
    fleet_cpu = cpu_seconds(fleet)
    server_cpu = cpu_seconds(server)
    started = time.perf_counter()
    contender.let_go(running)
    wait_until(lambda: testbed.counted() >= counted, f"the end of {count} tasks", MOST_SECONDS)
    wait_until(lambda: contender.settled(testbed) in (None, settled), f"{count} tasks settled", MOST_SECONDS)
    seconds = time.perf_counter() - started
    server_seconds = cpu_seconds(server) - server_cpu
    return Drained(seconds, cpu_seconds(fleet) - fleet_cpu + server_seconds, server_seconds)
