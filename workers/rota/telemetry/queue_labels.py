"""Which value of the label `queue` a queue is counted under: its name, or the pattern that stands for it.

Queues of a pattern come and go without end, and what was counted stays: in the slots, and in whoever scrapes. So what
only grows is counted for a pattern as a whole.
"""

from collections.abc import Callable, Iterable

from rota.protocol.names import STAR, is_pattern


class QueueLabels:
    """The labels of queues, by the names and patterns that tiers have: a name of its own first, then the longest
    pattern (as `rota.protocol.patterns.served_as`, for who asks with each task)."""

    def __init__(self, served: Iterable[str] = ()) -> None:
        names = frozenset(served)
        patterns = sorted(filter(is_pattern, names), key=len, reverse=True)
        self._beginnings = tuple((pattern.removesuffix(STAR), pattern) for pattern in patterns)
        self._names = names
        self.of: Callable[[str], str] = self._of if patterns else str
        """Returns the label of a queue: with each task, so without a function of Python's where it is the queue."""

    def _of(self, queue: str) -> str:
        for beginning, pattern in self._beginnings:
            if queue.startswith(beginning) and queue not in self._names:
                return pattern
        return queue
