"""Waiting, in the only way a child waits: in poll(), with the stop signals and the master's death beside it."""

import select
import time
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
    """One poll set: the stop signals, the death pipe, and one descriptor at a time."""

    def __init__(self, signals: StopSignals, death_fd: int) -> None:
        self._signals = signals
        self._death_fd = death_fd
        self._fd = _NO_FD
        self._events = 0
        self._poll = select.poll()
        self._poll.register(signals.fileno(), select.POLLIN)
        self._poll.register(death_fd, select.POLLIN)

    def until_ready(self, fd: int, events: int, seconds: float) -> bool:
        """A `connection.Wait`: whether the descriptor was ready in time; signals wait meanwhile.

        Raises Orphaned when the master dies.
        """
        deadline = time.monotonic() + seconds
        while (woken := self._wait(fd, events, deadline - time.monotonic())) is Woken.SIGNAL:
            continue
        return woken is Woken.READY

    def until_woken(self, fd: int, seconds: float) -> Woken:
        """Wait for something to read, a signal, or the time. Raises Orphaned."""
        return self._wait(fd, select.POLLIN, seconds)

    def pause(self, seconds: float) -> Woken:
        """Wait for a signal or the time. Raises Orphaned."""
        return self._wait(_NO_FD, 0, seconds)

    def _wait(self, fd: int, events: int, seconds: float) -> Woken:
        self._watch(fd, events)
        ready = {found for found, _ in self._poll.poll(max(0.0, seconds) * 1000)}
        if self._death_fd in ready:
            raise Orphaned
        if fd in ready:
            return Woken.READY
        if self._signals.fileno() in ready:
            self._signals.quiet()
            return Woken.SIGNAL
        return Woken.TIMEOUT

    def _watch(self, fd: int, events: int) -> None:
        if (fd, events) == (self._fd, self._events):
            return
        if self._fd not in (_NO_FD, fd):
            self._poll.unregister(self._fd)
        if fd != _NO_FD:
            self._poll.register(fd, events)
        self._fd, self._events = fd, events
