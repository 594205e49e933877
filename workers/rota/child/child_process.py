"""The environment of a child process: its descriptors, its waits, the fence, and its exit codes.

A child waits only in poll(), and the death of the master ends every wait. A child also records heartbeats while it
waits for a reply, because the reply can take longer than the heartbeat limit, and the child would then count as hung.
Signal handlers only set a flag and wake the loop.
"""

import contextlib
import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from types import FrameType
from typing import Final

from rota.child.slots import Slot, boottime_ns
from rota.durations import NANOSECONDS

# Signals from the master to a worker. They are real-time signals, which applications rarely use. SIGRTMIN itself is
# left to applications.
WAKE_SIGNAL: Final = signal.SIGRTMIN + 1  # makes the worker check its slot
SOFT_LIMIT_SIGNAL: Final = signal.SIGRTMIN + 2  # the task's soft deadline has passed, or the task was cancelled
STACK_SIGNAL: Final = signal.SIGRTMIN + 3  # makes the worker log its stack

# The share of the lease that is reserved for the time between the check of the clock and the call of the task.
_MARGIN_SHARE: Final = 0.1
_NO_FD: Final = -1
_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
# A service manager may send these signals to all processes of a service.
IGNORED_SIGNALS: Final = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def boottime_seconds() -> float:
    """Return the time of CLOCK_BOOTTIME in seconds. All processes of a machine share this clock, and all times in slots
    are times of this clock."""
    return boottime_ns() / NANOSECONDS


@dataclass(frozen=True, slots=True)
class ChildProcess:
    """The connection of a child process to its master: the child's identity, its slot and its descriptors."""

    node: str  # the name of the node
    slot_number: int
    slot: Slot
    nonce: int  # distinguishes this process from all others that have ever used the slot
    owner: str  # the name under which a worker holds tasks, "" for a poller
    death_fd: int  # becomes readable when the master dies
    master_bell_fd: int  # the eventfd that makes the master check the slots

    def ring_master(self) -> None:
        """Wake the master, so that it checks the slots now."""
        ring(self.master_bell_fd)


def ring(bell_fd: int) -> None:
    """Write to an eventfd that all children share, which wakes the process that reads it.

    Errors are ignored. A task may have closed the descriptor, and if the counter is full, the reader is already awake.
    """
    with contextlib.suppress(OSError):
        os.eventfd_write(bell_fd, 1)


class Fence:
    """A guard that keeps a worker from starting tasks when its lease may have expired.

    Without the fence, a worker that was cut off from Redis could start a task that another worker has already taken
    over. Both sides use CLOCK_BOOTTIME, which continues while a machine sleeps. The fence counts from the time at which
    the last successful renewal was *sent*. The lease counts from the time at which the server received that renewal,
    which is later. So the fence is always up before the lease expires.
    """

    def __init__(self, slot: Slot, lease_seconds: float) -> None:
        self._slot = slot
        self._allowed_ns = fence_ns(lease_seconds)

    def is_up(self, at_ns: int) -> bool:
        """Whether the fence is up at this time (CLOCK_BOOTTIME). While it is up, the worker must not start a task."""
        return at_ns - self._slot.renewed_ns > self._allowed_ns


def fence_ns(lease_seconds: float) -> int:
    """Return for how many nanoseconds the worker may start tasks after the last renewal was sent."""
    return round(lease_seconds * (1 - _MARGIN_SHARE) * NANOSECONDS)


class StopSignals:
    """The signal handlers of a child. TERM and INT set a flag. These two signals and WAKE_SIGNAL make a descriptor
    readable.

    Signals that are meant for the master have no effect on a child.
    """

    def __init__(self) -> None:
        self.stop_requested = False
        self._handlers: Final[dict[int, Callable[[int, FrameType | None], None]]] = {
            **dict.fromkeys(_STOPPING, self._stop),
            WAKE_SIGNAL: self._wake,
            **dict.fromkeys(IGNORED_SIGNALS, _do_nothing),
        }
        self._reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._forking = threading.local()

    def install(self) -> None:
        """Install the handlers, then unblock all signals, which have been blocked since before the fork.

        If a task forks a process, the signals have their default effect in the fork. Otherwise the inherited handlers
        would run there, and wake this process instead.
        """
        os.register_at_fork(
            before=self._hold_back, after_in_parent=self._let_through, after_in_child=self._leave_to_child
        )
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def fileno(self) -> int:
        """Return the descriptor that is readable once a signal has arrived."""
        return self._reading

    def empty(self) -> None:
        """Empty the descriptor, so that it becomes readable again only when another signal arrives."""
        try:
            os.read(self._reading, 4096)
        except BlockingIOError:
            return

    def wake(self) -> None:
        """Wake the loop without requesting a stop."""
        self._wake()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.stop_requested = True
        self._wake(number, frame)

    def _wake(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        try:
            os.write(self._writing, b"!")
        except BlockingIOError:  # The pipe is full of unread signals, so the loop is awake already.
            return

    # Signals are blocked during a fork, until the forked process has removed the inherited handlers.

    def _hold_back(self) -> None:
        self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._handlers)

    def _let_through(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._forking.mask)

    def _leave_to_child(self) -> None:
        for number, handler in self._handlers.items():
            if signal.getsignal(number) == handler:  # keep a handler that the task has set
                signal.signal(number, signal.SIG_DFL)
        self._let_through()


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    # Use a handler that does nothing. SIG_IGN would be inherited by the programs that tasks start.
    pass


class Orphaned(Exception):
    """Raised by a wait if the master has died."""


class Woken(Enum):
    """The reason why a wait ended."""

    READY = "ready"
    SIGNAL = "signal"
    TIMEOUT = "timeout"


class Waiter:
    """Waits for one descriptor at a time. Every wait also ends if the master dies, and some end at a signal.

    The waiter calls `heartbeat` when a wait begins, and every `heartbeat_seconds` seconds during the wait.
    """

    def __init__(
        self, signals: StopSignals, death_fd: int, heartbeat: Callable[[], None], heartbeat_seconds: float
    ) -> None:
        self._signals = signals
        self._death_fd = death_fd
        self._heartbeat = heartbeat
        self._heartbeat_seconds = heartbeat_seconds
        self._until = math.inf
        self._without_signals = _PollSet(death_fd)
        self._with_signals = _PollSet(death_fd, signals.fileno())

    def until_ready(self, fd: int, events: int, seconds: float) -> bool:
        """Wait until the descriptor is ready, and return whether it became ready in time. This method has the type
        `connection.Wait`. A signal does not end this wait. Instead, the next call of `pause` or `until_woken` returns
        at once. Raises Orphaned if the master dies."""
        if self._until < math.inf:
            seconds = min(seconds, self._until - time.monotonic())
        return fd in self._wait(self._without_signals, fd, events, seconds)

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Limit the total time of all calls of `until_ready` in a `with` block."""
        self._until = time.monotonic() + seconds
        try:
            yield
        finally:
            self._until = math.inf

    def pause(self, seconds: float) -> Woken:
        """Wait until a signal arrives or the time has passed. Raises Orphaned if the master dies."""
        return self.until_woken(_NO_FD, seconds)

    def until_woken(self, fd: int, seconds: float) -> Woken:
        """Wait until the descriptor is readable, a signal arrives or the time has passed. Raises Orphaned if the master
        dies."""
        ready = self._wait(self._with_signals, fd, select.POLLIN, seconds)
        if fd in ready:
            return Woken.READY
        if self._signals.fileno() in ready:
            self._signals.empty()
            return Woken.SIGNAL
        return Woken.TIMEOUT

    def _wait(self, watched: "_PollSet", fd: int, events: int, seconds: float) -> dict[int, int]:
        ready: dict[int, int] = {}
        while not ready and seconds > self._heartbeat_seconds:
            self._heartbeat()
            ready = watched.wait(fd, events, self._heartbeat_seconds)
            seconds -= self._heartbeat_seconds
        if not ready:
            self._heartbeat()
            ready = watched.wait(fd, events, seconds)
        if self._death_fd in ready:
            raise Orphaned
        return ready


class _PollSet:
    """A poll object that always watches the same fixed descriptors. Each wait can add one descriptor of its own."""

    def __init__(self, *fixed: int) -> None:
        self._poll = select.poll()
        self._fd = _NO_FD
        self._events = 0
        for fd in fixed:
            self._poll.register(fd, select.POLLIN)

    def wait(self, fd: int, events: int, seconds: float) -> dict[int, int]:
        """Wait for at most `seconds`, and return the descriptors that are ready, with their events."""
        if (fd, events) != (self._fd, self._events):
            if self._fd not in (_NO_FD, fd):
                self._poll.unregister(self._fd)
            if fd != _NO_FD:
                self._poll.register(fd, events)
            self._fd = fd
            self._events = events
        return dict(self._poll.poll(max(0.0, seconds) * 1000))


class StartFailed(Exception):
    """Raised if a start hook of the application failed. The message does not contain the text of the hook's error."""


# The exit codes of children. The master distinguishes orderly exits from crashes by them.
EXIT_DRAINED = 0
EXIT_LOST = 75  # the worker's owner is no longer registered, so the worker exited without changing anything
EXIT_ORPHANED = 77  # the master has died
EXIT_OVERWRITTEN = 78  # a task overwrote the worker's slot
EXIT_OTHER_VERSION = 79  # the master runs another version of Rota
