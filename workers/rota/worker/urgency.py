"""Soft limits that are shorter than the master's usual round."""

from collections.abc import Callable
from typing import Final

from rota.child.slots import Slot

_ROUND_NS: Final = 1_000_000_000
_REMEMBERED_NS: Final = 60 * 1_000_000_000  # the master remembers some seconds longer: a write may come late


class Urgency:
    """Shows the master a soft limit shorter than all others of the last minute: for so long it looks as often."""

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
