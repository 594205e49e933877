"""Waiting, in the only way a child waits: in poll(), with the master's death beside it, and the stop signals.

A child that waits is not hung, so it beats while it waits, too: an answer may take longer than the beat's limit.
"""

import math
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum

from rota.child.signals import StopSignals

_NO_FD = -1


class Orphaned(Exception):
    """The master is gone."""


class Woken(Enum):
    """Why a wait ended."""

    READY = "ready"
    SIGNAL = "signal"
    TIMEOUT = "timeout"


class Waiter:
    """Waits for one descriptor at a time, beside the death pipe; and beside the stop signals, or without them.

    It calls `beat` when a wait begins, and again every `beat_every` seconds while it lasts.
    """

    def __init__(self, signals: StopSignals, death_fd: int, beat: Callable[[], None], beat_every: float) -> None:
        self._signals = signals
        self._death_fd = death_fd
        self._beat = beat
        self._beat_every = beat_every
        self._until = math.inf
        self._deaf = _PollSet(death_fd)
        self._alert = _PollSet(death_fd, signals.fileno())

    def until_ready(self, fd: int, events: int, seconds: float) -> bool:
        """A `connection.Wait`: whether the descriptor was ready in time.

        A signal does not end it, and stays to be seen: the next wait that listens to signals ends at once.
        Raises Orphaned when the master dies.
        """
        if self._until < math.inf:
            seconds = min(seconds, self._until - time.monotonic())
        return fd in self._wait(self._deaf, fd, events, seconds)

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Have all waits of `until_ready` in a block of code take no longer than this together."""
        self._until = time.monotonic() + seconds
        try:
            yield
        finally:
            self._until = math.inf

    def pause(self, seconds: float) -> Woken:
        """Wait for a signal or the time. Raises Orphaned."""
        return self.until_woken(_NO_FD, seconds)

    def until_woken(self, fd: int, seconds: float) -> Woken:
        """Wait for something to read, a signal, or the time. Raises Orphaned."""
        ready = self._wait(self._alert, fd, select.POLLIN, seconds)
        if fd in ready:
            return Woken.READY
        if self._signals.fileno() in ready:
            self._signals.empty()
            return Woken.SIGNAL
        return Woken.TIMEOUT

    def _wait(self, watched: "_PollSet", fd: int, events: int, seconds: float) -> dict[int, int]:
        ready: dict[int, int] = {}
        while not ready and seconds > self._beat_every:
            self._beat()
            ready = watched.wait(fd, events, self._beat_every)
            seconds -= self._beat_every
        if not ready:
            self._beat()
            ready = watched.wait(fd, events, seconds)
        if self._death_fd in ready:
            raise Orphaned
        return ready


class _PollSet:
    """A poll() on descriptors that stay, and one that changes."""

    def __init__(self, *staying: int) -> None:
        self._poll = select.poll()
        self._fd = _NO_FD
        self._events = 0
        for fd in staying:
            self._poll.register(fd, select.POLLIN)

    def wait(self, fd: int, events: int, seconds: float) -> dict[int, int]:
        """The descriptors that are ready, and for what, at the latest after so many seconds."""
        if (fd, events) != (self._fd, self._events):
            if self._fd not in (_NO_FD, fd):
                self._poll.unregister(self._fd)
            if fd != _NO_FD:
                self._poll.register(fd, events)
            self._fd, self._events = fd, events
        return dict(self._poll.poll(max(0.0, seconds) * 1000))
