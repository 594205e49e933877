"""What a worker tells its master of the limits of its tasks: the master keeps them, and imports no user code."""

from collections.abc import Callable
from typing import Final

from rota.child.life import NANOSECONDS
from rota.child.slot_task import Verdict
from rota.child.slots import Slot
from rota.errors import TimeLimit
from rota.protocol.outcome import RetryOutcome
from rota.tasks.options import TaskOptions
from rota.tasks.retry_rules import decide

_ROUND_NS: Final = NANOSECONDS  # of the master's usual looks
_REMEMBERED_NS: Final = 60 * NANOSECONDS  # the master remembers some seconds longer: a write may come late


def verdict_on(options: TaskOptions, failures: int, random: Callable[[], float]) -> Verdict:
    """What follows if this attempt, before which so many failed, is ended by its hard time limit or kills its worker.

    It is good for one use: whoever is judged by it dies, and another process decides anew, with another random number.
    """
    if options.is_started_once:
        return Verdict()  # that it has begun is its end
    decided = decide(options, failures + 1, TimeLimit("the time limit has passed"), random)
    retry_us = decided.delay_us if isinstance(decided, RetryOutcome) else None
    return Verdict(True, retry_us, options.crash_limit or 0)


class ShortLimits:
    """Shows the master the shortest soft limit under a second of the last minute: so long it looks as often."""

    def __init__(self, slot: Slot, ring_master: Callable[[], None]) -> None:
        self._slot = slot
        self._ring_master = ring_master
        self._shortest_ns = _ROUND_NS
        self._met_ns = 0

    def met(self, soft_limit_ns: int, at_ns: int) -> None:
        """The slot shows a task with this limit, that began at this time (CLOCK_BOOTTIME)."""
        if soft_limit_ns >= _ROUND_NS:
            return
        is_news = soft_limit_ns < self._shortest_ns or at_ns - self._met_ns > _REMEMBERED_NS
        if is_news or soft_limit_ns == self._shortest_ns:
            self._shortest_ns, self._met_ns = soft_limit_ns, at_ns
            self._slot.show_soft_limit(soft_limit_ns, at_ns)
        if is_news:  # this task may be over before the master looks by itself
            self._ring_master()
