"""The time from the start of a fleet until it runs a waiting task."""

import statistics
import time

from benchmarks.effort import Effort
from benchmarks.numbers import Values
from benchmarks.running import START_SECONDS, Running

WORKERS = 2


def measure(running: Running, effort: Effort) -> Values:
    """Measure the time from the spawn of a fleet's processes until the task writes its first line. The results are the
    median and the maximum of several starts.

    The fleet has run before, so its bytecode files exist, as in an installation.
    """
    found_ms = [_start_ms(running) for _ in range(effort.starts)]
    return {"start_ms": statistics.median(found_ms), "start_ms_max": max(found_ms)}


def _start_ms(running: Running) -> float:
    running.end_fleet()
    running.testbed.clear()
    running.producer.each("mark", 1)
    at_us = time.time_ns() / 1000
    running.spawn_fleet()
    [line] = running.testbed.wait_for_lines("mark", 1, START_SECONDS)
    return (line.at - at_us) / 1000
