"""When a worker has done enough, and would have a fresh one in its place."""

import math
import sys
from typing import Final, NamedTuple

from rota.child.life import Life
from rota.child.slots import RecycleReason
from rota.worker.growth import Growth


class Span(NamedTuple):
    """How many attempts a worker makes: from `wish_at` on it would be replaced, and works on until it is told to leave;
    at `end_at` it claims no more."""

    wish_at: int
    end_at: int


ENDLESS: Final = Span(sys.maxsize, sys.maxsize)


def span_of(max_tasks: int, jitter: float, random: float) -> Span:
    """The span of a life of `max_tasks` attempts at most, 0 for no limit.

    `random` in [0, 1): workers that started together must not all wish together, so up to the share `jitter` is taken
    off.
    """
    if max_tasks == 0:
        return ENDLESS
    return Span(max(1, math.ceil(max_tasks * (1 - jitter * random))), max_tasks)


class Recycling:
    """Shows the master the wish to be replaced. `growth` is None where memory has no limit."""

    def __init__(self, life: Life, span: Span, growth: Growth | None) -> None:
        self._life = life
        self._span = span
        self._growth = growth

    def is_spent(self, attempts: int) -> bool:
        """Whether it has made all attempts of its span."""
        return attempts >= self._span.end_at

    def worked(self, attempts: int, at_ns: int) -> None:
        """It has run what it had, `attempts` in its life so far; wish if that is enough, or too much memory is held."""
        if attempts >= self._span.wish_at:
            self._wish(RecycleReason.MAX_TASKS)
        if self._growth is not None and self._growth.is_due(at_ns):
            self.look_at_memory(at_ns)

    def look_at_memory(self, at_ns: int) -> None:
        """Wish if too much memory is held."""
        if self._growth is not None and self._growth.is_over(at_ns):
            self._wish(RecycleReason.MAX_RSS)

    def _wish(self, wish: RecycleReason) -> None:
        """The first reason there was is the one that is shown."""
        if self._life.slot.recycle_reason is RecycleReason.NONE:
            self._life.slot.recycle_reason = wish
            self._life.ring_master()
