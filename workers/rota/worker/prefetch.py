"""How many tasks a worker claims at once, and when it sends the next turn, by what tasks took recently. Pure."""

from dataclasses import dataclass
from typing import Final

from rota.protocol.tiers import NO_LIMITS, pack_limits
from rota.protocol.wire import Packed
from rota.worker.claims import CLAIM_NS

PIPELINED_NS: Final = 1_500_000  # what those tasks of a claim are worth behind which the next turn does not wait
AHEAD_NS: Final = 15_000_000  # where there is plenty, how long the one may take that it does not wait behind
MOST: Final = 128  # by now the round trip's share of a task hardly falls; what dies with a worker stays small
_FALL: Final = 0.25  # of the way down to what the last claim took
_LONGEST_SHARE: Final = 1 / 16
_GROWTH: Final = 4


@dataclass(slots=True)
class ClaimTimes:
    """What the tasks of a claim that were run so far took; `at_ns` is when the last one ended. `queue`: its pattern, if
    it has one."""

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
        if took_ns > self.longest_ns:  # noqa: PLR1730 - as in `Histogram.observe`
            self.longest_ns = took_ns


@dataclass(slots=True)
class _Pace:
    """What tasks of a queue take, in nanoseconds, and how many to claim next."""

    mean_ns: float = 0.0
    longest_ns: float = 0.0
    limit: int = 1

    def follow(self, batch: ClaimTimes) -> None:
        self.mean_ns = _followed(self.mean_ns, batch.total_ns / batch.tasks)
        self.longest_ns = _followed(self.longest_ns, batch.longest_ns)
        worth_ns = max(self.mean_ns, self.longest_ns * _LONGEST_SHARE, 1.0)
        self.limit = max(1, min(int(CLAIM_NS / worth_ns), _GROWTH * self.limit, MOST))


def _followed(known: float, seen: float) -> float:
    return seen if seen > known else known + (seen - known) * _FALL


class Prefetch:
    """How many tasks of each queue to claim at once; of the queues of a pattern alike. `limits`, for a turn: the queues
    and patterns of which several may be claimed.

    A claim should be worth about 5 ms of work: short tasks come many at a time, so that the round trip and the script
    are shared among them; a task of 5 ms or longer comes alone. What a task of the queue takes is known from the recent
    claims: their mean, or a share of the longest task, whichever is more, so that of a queue with a long task now and
    then less is claimed than its mean allows. Both rise at once and fall by a share a claim. The number grows at most
    fourfold from one claim to the next, since the first tasks say little.
    """

    def __init__(self) -> None:
        self.limits: Packed = NO_LIMITS
        self._paces: dict[str, _Pace] = {}

    def left_at_turn(self, queue: str, tasks: int, *, is_plenty: bool) -> int:
        """How many of so many tasks of a claim are still to be run when the next turn is sent, whose answer has come
        when they have; 0: it is sent behind them, as where one of them may take so long, or wait so long for a
        processor, that the answer would be late. One alone, behind which others may be idle for what it brings, only
        where there is plenty."""
        pace = self._paces.get(queue)
        if pace is None or pace.longest_ns > AHEAD_NS:
            return 0
        is_short = pace.longest_ns <= CLAIM_NS
        left = min(tasks // 2, int(PIPELINED_NS / max(pace.mean_ns, 1.0))) if is_short else 0
        return left if left > 1 else int(is_plenty)

    def learn(self, batch: ClaimTimes) -> None:
        """Take in what the tasks of a claim took."""
        if not batch.tasks:
            return
        pace = self._paces.setdefault(batch.queue, _Pace())
        before = pace.limit
        pace.follow(batch)
        if pace.limit != before:
            self.limits = pack_limits({name: each.limit for name, each in self._paces.items() if each.limit > 1})
