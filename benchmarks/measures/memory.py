"""What a fleet of eight holds in memory, after each worker has run some tasks."""

import statistics

from benchmarks.effort import Effort
from benchmarks.numbers import Values
from benchmarks.processes import memory_of
from benchmarks.running import Running

WORKERS = 8
_TASKS = 400
_MOST_SECONDS = 60.0
_MB = 1_000_000


def measure(running: Running, _effort: Effort) -> Values:
    """Proportional set size of the whole fleet for each worker, and what one more worker holds for itself alone."""
    running.place.forget_journal()
    running.producer.each("mark", _TASKS)
    lines = running.place.wait_for_lines("mark", _TASKS, _MOST_SECONDS)
    workers = running.contender.ready_workers(running) or {line.pid for line in lines}
    memory = memory_of(running.processes())
    of_workers = [uss for pid, uss in memory.uss.items() if pid in workers] or list(memory.uss.values())
    return {
        "pss_mb": memory.pss / WORKERS / _MB,
        "uss_mb": statistics.median(of_workers) / _MB,
        "processes": len(memory.uss),
    }
