"""Label values of metrics: sets that are fixed in advance, and the value that a queue is counted under.

The series of fixed sets are there from the start, at 0. `queue`, `task`, `pool` and `slot` are bounded by the
configuration, but the queues of a pattern come and go without end, and what was counted stays, in the slots and in
Prometheus. So counters of such queues are kept for the pattern as a whole.
"""

from collections.abc import Callable, Iterable
from typing import Final

from rota.protocol.entry import Kind
from rota.protocol.names import STAR, is_pattern

OTHER: Final = "_other"  # the value of every label of a series that found no room

# Without those that most queues never have.
KINDS: Final = tuple(kind.label for kind in Kind if kind not in (Kind.THROTTLED, Kind.RECOVERED))
WORKER_STATES: Final = ("booting", "running", "quiet", "draining", "backoff", "fatal")
RESTART_REASONS: Final = (
    *("crash", "signal", "oom", "hung", "timeout", "cancelled"),
    *("max_tasks", "max_rss", "reload", "boot"),
)
CHILD_ROLES: Final = ("exporter", "zygote", "poller", "worker")
RECOVERY_REASONS: Final = ("child_exit", "lease_expired")
RELOAD_RESULTS: Final = ("success", "failure")
# All begin with the first, so that the next one counts in an `increase()`.
OCCURRENCE_OUTCOMES: Final = ("enqueued", "missed", "skipped")


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
