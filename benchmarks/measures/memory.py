"""The memory of a fleet of eight workers after each has run some tasks, and of one process that runs a hundred
tasks.
"""

import statistics

from benchmarks.effort import Effort
from benchmarks.numbers import Values
from benchmarks.processes import memory_of
from benchmarks.running import Running

WORKERS = 8
HOLDING_WORKERS = 1
_HELD_TASKS = 100
_TASKS = 400
_MOST_SECONDS = 60.0
_MB = 1_000_000


def measure(running: Running, _effort: Effort) -> Values:
    """Measure the fleet's memory per worker (proportional set size), and the memory that an additional worker takes
    (unique set size).
    """
    ran = _run_some(running)
    workers = running.contender.ready_workers(running) or ran
    memory = memory_of(running.processes())
    of_workers = [uss for pid, uss in memory.uss.items() if pid in workers] or list(memory.uss.values())
    return {
        "pss_mb": memory.pss / WORKERS / _MB,
        "uss_mb": statistics.median(of_workers) / _MB,
        "processes": len(memory.uss),
    }


def measure_held(running: Running, _effort: Effort) -> Values:
    """Measure the unique set size of a process that runs a hundred tasks at once, and how much each task adds to this
    size.
    """
    [worker] = _run_some(running)
    before = memory_of(running.processes()).uss[worker]
    running.producer.each("hold", _HELD_TASKS)
    running.testbed.wait_for_lines("hold", _HELD_TASKS, _MOST_SECONDS)
    memory = memory_of(running.processes())
    held = memory.uss[worker]
    return {"uss_mb": held / _MB, "task_kb": (held - before) / _HELD_TASKS / 1000, "pss_mb": memory.pss / _MB}


def _run_some(running: Running) -> set[int]:
    """Let the fleet run some tasks, and return the pids of the processes that ran them."""
    running.testbed.forget_journal()
    running.producer.each("mark", _TASKS)
    return {line.pid for line in running.testbed.wait_for_lines("mark", _TASKS, _MOST_SECONDS)}
