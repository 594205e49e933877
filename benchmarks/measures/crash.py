"""The recovery from a SIGKILL to the process that runs a task: how long it takes until the task starts again, and until
the pool has all its workers again.
"""

import os
import signal
import statistics
import time

from benchmarks.effort import Effort
from benchmarks.numbers import Values
from benchmarks.running import Running
from benchmarks.testbed import Failed, wait_until

WORKERS = 4
_START_SECONDS = 30.0
_WHOLE_SECONDS = 30.0
_REPEATED_BELOW_MS = 1000.0
_LOST_SECONDS = 10.0


def measure(running: Running, effort: Effort) -> Values:
    """Kill a worker several times, and measure each time how long it takes until its task starts again. If that takes
    more than a second, stop after this kill. If the contender does not promise to start the task again, wait for it for
    a shorter time.
    """
    patience = effort.crash_seconds if running.contender.at_least_once else min(effort.crash_seconds, _LOST_SECONDS)
    again: list[float | None] = []
    whole: list[float | None] = []
    while len(again) < effort.crash_kills and all(ms is not None and ms < _REPEATED_BELOW_MS for ms in again):
        rerun_ms, whole_ms = _kill_once(running, patience, len(again))
        again.append(rerun_ms)
        whole.append(whole_ms)
    return {"rerun_ms": _median(again), "whole_ms": _median(whole), "rerun_ms_all": again, "whole_ms_all": whole}


def _median(found: list[float | None]) -> float | None:
    came = [ms for ms in found if ms is not None]
    return statistics.median(came) if came else None


def _kill_once(running: Running, patience_seconds: float, number: int) -> tuple[float | None, float | None]:
    testbed = running.testbed
    testbed.forget_journal()
    (testbed.folder / "let-go").unlink(missing_ok=True)
    running.producer.each("hold", 1)
    [first] = testbed.wait_for_lines("hold", 1, _START_SECONDS)
    time.sleep(0.1 + 0.037 * number)  # so that each kill hits another phase of the fleet's periodic work
    killed = time.time()
    os.kill(first.pid, signal.SIGKILL)
    whole_ms = _until_whole(running, first.pid, killed)
    testbed.tell("let-go")
    try:
        second = testbed.wait_for_lines("hold", 2, patience_seconds)[1]
    except Failed:
        return None, whole_ms
    return second.at / 1000 - killed * 1000, whole_ms


def _until_whole(running: Running, killed_pid: int, killed: float) -> float | None:
    """Return how many milliseconds it took until all workers were ready again, or None if the contender does not report
    this.
    """
    ready_workers = running.contender.ready_workers
    if ready_workers(running) is None:
        return None

    def is_whole() -> bool:
        ready = ready_workers(running) or set()
        return killed_pid not in ready and len(ready) == running.workers

    wait_until(is_whole, "a whole pool", _WHOLE_SECONDS)
    return (time.time() - killed) * 1000
