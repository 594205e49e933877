"""What decides the number of workers in a simulation: the rule of Rota, and those of other systems."""

import math
from collections import deque
from typing import Protocol

from rota_supervisor.master.core.scaling_rule import Decision, PoolInputs, PoolScaling, decide
from scaling.pool_model import Node


class Controller(Protocol):
    """A rule that decides once a round."""

    def wanted(self, node: Node) -> int:
        """Return the number of workers from now on."""
        ...


class Rota:
    """The rule of Rota."""

    def __init__(self) -> None:
        self.history = PoolScaling()
        self.decision: Decision | None = None
        self.granted: int | None = None

    def wanted(self, node: Node) -> int:
        """Return the number of workers from now on."""
        inputs = PoolInputs("default", (node.load(self.granted),), node.backlog())
        self.history, self.decision = decide(self.history, inputs, node.workers.now)
        return self.decision.wanted


class Planned:
    """A plan made in advance, with a number for each block."""

    def __init__(self, counts: list[int], block_seconds: float) -> None:
        self._counts = counts
        self._block_seconds = block_seconds

    def wanted(self, node: Node) -> int:
        """Return the number of workers from now on."""
        block = int(node.workers.now / self._block_seconds)
        return self._counts[min(block, len(self._counts) - 1)]


class Celery:
    """`celery worker --autoscale`: a process for each reserved request; one less after 30 s in which none was added.

    A worker reserves as many messages as four for each process (`worker_prefetch_multiplier`).
    """

    def __init__(self) -> None:
        self._grown_at = -math.inf

    def wanted(self, node: Node) -> int:
        """Return the number of workers from now on."""
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
    """Horizon with `balance = auto` and the strategy "time": a fixed total is divided by the time to clear a queue.

    A single queue gets the whole total whenever it has a task, one process every 3 s (`balanceCooldown`).
    """

    def __init__(self) -> None:
        self._moved_at = -math.inf

    def wanted(self, node: Node) -> int:
        """Return the number of workers from now on."""
        workers, trace = node.workers, node.workers.trace
        if workers.now - self._moved_at < 3:
            return workers.count
        self._moved_at = workers.now
        needed = trace.most if workers.ready else trace.least
        return workers.count + max(-1, min(1, needed - workers.count))


class Keda:
    """KEDA's list scaler with the HPA's defaults: a pod for each five waiting tasks, looked at every 15 s.

    The HPA ignores a tenth of difference, at most doubles or adds four pods each time, and shrinks to the largest
    number of the last five minutes.
    """

    LIST_LENGTH = 5

    def __init__(self) -> None:
        self._looked_at = -math.inf
        self._recent: deque[tuple[float, int]] = deque()

    def wanted(self, node: Node) -> int:
        """Return the number of workers from now on."""
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
    """Judoscale: one more when the oldest task has waited for longer than a threshold, one less when below another.

    It looks every 10 s; up at most once in 10 s, down at most once in a minute. The band is an objective's half and its
    twentieth.
    """

    def __init__(self) -> None:
        self._looked_at = self._moved_at = -math.inf

    def wanted(self, node: Node) -> int:
        """Return the number of workers from now on."""
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
