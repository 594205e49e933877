"""Controllers that set the number of workers in a simulation: Rota's rule, and the rules of other systems."""

import math
from collections import deque
from typing import Protocol

from rota_supervisor.master.core.scaling_rule import Decision, PoolInputs, PoolScaling, decide
from scaling.pool_model import Node


class Controller(Protocol):
    """A rule that decides the number of workers once per round."""

    def wanted(self, node: Node) -> int:
        """Return the number of workers that should run from now on."""
        ...


class Rota:
    """Rota's rule."""

    def __init__(self) -> None:
        self.history = PoolScaling()
        self.decision: Decision | None = None
        self.granted: int | None = None

    def wanted(self, node: Node) -> int:
        """Return the number of workers that should run from now on."""
        inputs = PoolInputs("default", (node.load(self.granted),), node.backlog())
        self.history, self.decision = decide(self.history, inputs, node.workers.now)
        return self.decision.wanted


class Planned:
    """A plan made in advance, with a number of workers for each block of time."""

    def __init__(self, counts: list[int], block_seconds: float) -> None:
        self._counts = counts
        self._block_seconds = block_seconds

    def wanted(self, node: Node) -> int:
        """Return the number of workers that should run from now on."""
        block = int(node.workers.now / self._block_seconds)
        return self._counts[min(block, len(self._counts) - 1)]


class Celery:
    """`celery worker --autoscale`, which runs one process for each reserved request. The number of processes shrinks
    only after 30 s without growth.

    A worker reserves four messages for each process (`worker_prefetch_multiplier`).
    """

    def __init__(self) -> None:
        self._grown_at = -math.inf

    def wanted(self, node: Node) -> int:
        """Return the number of workers that should run from now on."""
        workers, trace = node.workers, node.workers.trace
        reserved = min(workers.ready + workers.running, 4 * max(1, workers.count))
        needed = min(trace.most, max(trace.least, reserved))
        if needed > workers.count:
            self._grown_at = workers.now
            return needed
        if needed < workers.count and workers.now - self._grown_at > 30:
            return needed
        return workers.count


class Horizon:
    """Horizon with `balance = auto` and the strategy "time", which divides a fixed total by the time to clear each
    queue.

    A single queue gets the whole total whenever it has a task. One process is added every 3 s (`balanceCooldown`).
    """

    def __init__(self) -> None:
        self._moved_at = -math.inf

    def wanted(self, node: Node) -> int:
        """Return the number of workers that should run from now on."""
        workers, trace = node.workers, node.workers.trace
        if workers.now - self._moved_at < 3:
            return workers.count
        self._moved_at = workers.now
        needed = trace.most if workers.ready else trace.least
        return workers.count + max(-1, min(1, needed - workers.count))


class Keda:
    """KEDA's list scaler with the HPA's defaults: one pod for every five waiting tasks, checked every 15 s.

    The HPA ignores differences of up to a tenth. In one step, it at most doubles the number of pods or adds four pods,
    whichever is more. It shrinks to the largest number that was needed in the last five minutes.
    """

    LIST_LENGTH = 5

    def __init__(self) -> None:
        self._looked_at = -math.inf
        self._recent: deque[tuple[float, int]] = deque()

    def wanted(self, node: Node) -> int:
        """Return the number of workers that should run from now on."""
        workers, trace = node.workers, node.workers.trace
        if workers.now - self._looked_at < 15:
            return workers.count
        self._looked_at = workers.now
        pods = workers.ready / self.LIST_LENGTH
        needed = workers.count if abs(pods / workers.count - 1) <= 0.1 else math.ceil(pods)
        needed = min(trace.most, max(trace.least, needed))
        self._recent.append((workers.now, needed))
        while self._recent[0][0] < workers.now - 300:
            self._recent.popleft()
        if needed > workers.count:
            return min(needed, max(2 * workers.count, workers.count + 4))
        return min(workers.count, max(each for _, each in self._recent))


class Judoscale:
    """Judoscale, which adds a worker if the oldest task has waited longer than one threshold, and removes a worker if
    it has waited less than another.

    It checks every 10 s. It grows at most once per 10 s and shrinks at most once per minute. The thresholds are half
    and a twentieth of an objective.
    """

    def __init__(self) -> None:
        self._looked_at = self._moved_at = -math.inf

    def wanted(self, node: Node) -> int:
        """Return the number of workers that should run from now on."""
        workers, trace = node.workers, node.workers.trace
        if workers.now - self._looked_at < 10:
            return workers.count
        self._looked_at = workers.now
        lag = workers.oldest_seconds
        step = 0
        if lag > trace.objective_seconds / 2:
            step = 1
        elif lag < trace.objective_seconds / 20 and workers.now - self._moved_at >= 60:
            step = -1
        if step:
            self._moved_at = workers.now
        return min(trace.most, max(trace.least, workers.count + step))
