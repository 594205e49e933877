"""How many tasks of a queue are claimed at once. Pure.

A claim should be worth about 5 ms of work: short tasks come many at a time, so that the round trip and the script are
shared among them; a task of 5 ms or longer comes alone. What a task of the queue takes is known from the recent claims:
their mean, or a share of the longest task, whichever is more, so that of a queue with a long task now and then less is
claimed than its mean allows. Both rise at once and fall by a share a claim. The number grows at most fourfold from one
claim to the next, since the first tasks say little.
"""

from dataclasses import dataclass
from typing import Final

from rota.protocol.store import NO_LIMITS, pack_limits
from rota.protocol.wire import Packed

CLAIM_NS: Final = 5_000_000  # what a claim is worth, and for how long its entries may be started without asking
MOST: Final = 128  # by now the round trip's share of a task hardly falls; what dies with a worker stays small
_FALL: Final = 0.25  # of the way down to what the last claim took
_LONGEST_SHARE: Final = 1 / 16
_GROWTH: Final = 4


@dataclass(slots=True)
class Batch:
    """What the tasks of a claim that were run so far took; `at_ns` is when the last one ended."""

    queue: str
    at_ns: int
    tasks: int = 0
    total_ns: int = 0
    longest_ns: int = 0

    def ended(self, at_ns: int) -> None:
        """Count a task that ended."""
        took_ns = at_ns - self.at_ns
        self.at_ns = at_ns
        self.tasks += 1
        self.total_ns += took_ns
        self.longest_ns = max(self.longest_ns, took_ns)


@dataclass(slots=True)
class _Pace:
    """What tasks of a queue take, in nanoseconds, and how many to claim next."""

    mean_ns: float = 0.0
    longest_ns: float = 0.0
    limit: int = 1

    def follow(self, batch: Batch) -> None:
        self.mean_ns = _followed(self.mean_ns, batch.total_ns / batch.tasks)
        self.longest_ns = _followed(self.longest_ns, batch.longest_ns)
        worth_ns = max(self.mean_ns, self.longest_ns * _LONGEST_SHARE, 1.0)
        self.limit = max(1, min(int(CLAIM_NS / worth_ns), _GROWTH * self.limit, MOST))


def _followed(known: float, seen: float) -> float:
    return seen if seen > known else known + (seen - known) * _FALL


class Prefetch:
    """For all queues a worker has met. `limits`, for a turn: those of which more than one may be claimed, with how
    many."""

    def __init__(self) -> None:
        self.limits: Packed = NO_LIMITS
        self._paces: dict[str, _Pace] = {}

    def learn(self, batch: Batch) -> None:
        """Take in what the tasks of a claim took."""
        if not batch.tasks:
            return
        pace = self._paces.setdefault(batch.queue, _Pace())
        before = pace.limit
        pace.follow(batch)
        if pace.limit != before:
            self.limits = pack_limits({name: each.limit for name, each in self._paces.items() if each.limit > 1})
