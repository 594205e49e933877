"""When a worker has done enough, and asks for a fresh one in its place."""

import math
import mmap
import os
import sys
from typing import Final, NamedTuple

from rota.child.life import Life
from rota.child.slots import RecycleReason

_MEBIBYTE: Final = 1 << 20
_EVERY_NS: Final = 100_000_000  # a look at memory takes 3 us, a short task no more than 10
_LINE_BYTES: Final = 128


class Span(NamedTuple):
    """How many attempts a worker makes: from `ask_at` on it asks to be replaced, and works on until the master has it
    leave; at `end_at` it claims no more."""

    ask_at: int
    end_at: int


ENDLESS: Final = Span(sys.maxsize, sys.maxsize)


def span_of(max_tasks: int, jitter: float, random: float) -> Span:
    """The span of a life of `max_tasks` attempts at most, 0 for no limit.

    `random` in [0, 1): workers that started together must not all ask together, so up to the share `jitter` is taken
    off.
    """
    if max_tasks == 0:
        return ENDLESS
    return Span(max(1, math.ceil(max_tasks * (1 - jitter * random))), max_tasks)


class Growth:
    """Resident memory less what was resident when this was made. Pages that it shares with its zygote count in both."""

    def __init__(self, max_mb: int) -> None:
        self._most_pages = max_mb * _MEBIBYTE // mmap.PAGESIZE
        self._fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._first_pages = self._resident_pages()
        self._looked_ns = 0

    def is_due(self, at_ns: int) -> bool:
        """Whether it is time for another look, between two tasks."""
        return at_ns - self._looked_ns > _EVERY_NS

    def is_over(self, at_ns: int) -> bool:
        """Look whether it has grown by more than it may."""
        self._looked_ns = at_ns
        return self._resident_pages() - self._first_pages > self._most_pages

    def _resident_pages(self) -> int:
        return int(os.pread(self._fd, _LINE_BYTES, 0).split()[1])


class Recycling:
    """Shows the master why this worker asks to be replaced. `growth` is None where memory has no limit."""

    def __init__(self, life: Life, span: Span, growth: Growth | None) -> None:
        self._life = life
        self._span = span
        self._growth = growth

    def is_spent(self, attempts: int) -> bool:
        """Whether it has made all attempts of its span."""
        return attempts >= self._span.end_at

    def left(self, attempts: int) -> int:
        """How many more it may make."""
        return max(0, self._span.end_at - attempts)

    def worked(self, attempts: int, at_ns: int) -> None:
        """It has run what it had, `attempts` in its life so far; ask if that is enough, or too much memory is held."""
        if attempts >= self._span.ask_at:
            self._ask(RecycleReason.MAX_TASKS)
        if self._growth is not None and self._growth.is_due(at_ns):
            self.look_at_memory(at_ns)

    def look_at_memory(self, at_ns: int) -> None:
        """Ask if too much memory is held."""
        if self._growth is not None and self._growth.is_over(at_ns):
            self._ask(RecycleReason.MAX_RSS)

    def _ask(self, reason: RecycleReason) -> None:
        """The first reason there was is the one that is shown."""
        if self._life.slot.recycle_reason is RecycleReason.NONE:
            self._life.slot.recycle_reason = reason
            self._life.ring_master()
