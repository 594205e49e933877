"""The best controller that knows the trace. In each block of 10 s, it uses the smallest number of workers with which
enough tasks start in time. It starts workers in advance, so that they are ready when they are needed. There may be a
better plan, but no rule that depends on measurements can expect to need fewer workers. `delayed` adds the shrink delay
that the rule must obey.
"""

from typing import Final

from rota_supervisor.master.core.scaling_history import SHRINK_SECONDS, SHRINK_STEP_SECONDS
from scaling.pool_model import Trace, Workers

BLOCK_SECONDS: Final = 10.0


def best_counts(trace: Trace) -> list[int]:
    """Return the smallest number of workers that suffices in each block of 10 s of the trace."""
    workers = Workers(trace)
    workers.resize(trace.least, 0.0)
    counts: list[int] = []
    while workers.now < trace.seconds:
        end = workers.now + BLOCK_SECONDS
        count = _fewest(workers, end, counts[-1] if counts else trace.least)
        counts.append(count)
        workers.resize(count, 0.0)
        workers.advance(end)
    return counts


def _fewest(workers: Workers, end: float, guess: int) -> int:
    trace = workers.trace
    count = guess
    most = min(trace.most, trace.saturates_at or trace.most)  # more workers would not help
    while count < most and not _holds(workers, end, count):
        count += 1
    while count > max(trace.least, 1) and _holds(workers, end, count - 1):
        count -= 1
    return count


def _holds(workers: Workers, end: float, count: int) -> bool:
    trial = workers.copy()
    trial.resize(count, 0.0)
    trial.late = 0
    first = trial.started
    trial.advance(end + 100 * workers.trace.objective_seconds, end)
    return trial.late <= (1 - workers.trace.target) * (trial.started - first)


def delayed(counts: list[int], delay: float = SHRINK_SECONDS, step: float = SHRINK_STEP_SECONDS) -> list[int]:
    """Return the numbers of workers if workers may leave only after the delay, and only one worker per step."""
    found: list[int] = []
    blocks = round(delay / BLOCK_SECONDS)
    for at, count in enumerate(counts):
        least = max(counts[max(0, at - blocks) : at + 1])
        found.append(max(least, found[-1] - round(BLOCK_SECONDS / step)) if found else count)
    return found
