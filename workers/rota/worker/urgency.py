"""Soft limits that are shorter than the master's usual round."""

from collections.abc import Callable
from typing import Final

from rota.child.slots import Slot

_ROUND_NS: Final = 1_000_000_000


class Urgency:
    """Shows the master a soft limit shorter than all before it in this life: from then on it looks as often."""

    def __init__(self, slot: Slot, ring_master: Callable[[], None]) -> None:
        self._slot = slot
        self._ring_master = ring_master
        self._shortest_ns = _ROUND_NS

    def met(self, soft_limit_ns: int) -> None:
        """The slot shows a task with this limit."""
        if soft_limit_ns < self._shortest_ns:
            self._shortest_ns = self._slot.shortest_soft_ns = soft_limit_ns  # this task may be over before it looks
            self._ring_master()
