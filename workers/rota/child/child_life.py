"""One life of a child: what its process holds besides its settings, what wakes it, how long it may start tasks, and the
codes it leaves with.

A child waits in poll() only, with the master's death beside it, and the stop signals. A child that waits is not hung,
so it beats while it waits, too: an answer may take longer than the beat's limit. Handlers of signals only set a flag
and wake the loop.
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

# What the master tells a worker besides. Real-time signals, as applications hardly use them; the first stays free.
WAKE_SIGNAL: Final = signal.SIGRTMIN + 1  # look at your slot
SOFT_LIMIT_SIGNAL: Final = signal.SIGRTMIN + 2  # your task's soft deadline has passed, or it was cancelled
STACK_SIGNAL: Final = signal.SIGRTMIN + 3  # write down your stack

_MARGIN_SHARE: Final = 0.1  # of the lease: time to get from the look at the clock into the task
_NO_FD: Final = -1
_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
OF_THE_MASTER: Final = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)  # sent to a whole service, they reach us too


def boottime_seconds() -> float:
    """Return the time by the clock of the slots, which all processes of a machine share."""
    return boottime_ns() / NANOSECONDS


@dataclass(frozen=True, slots=True)
class Life:
    """A child's place and its lines to the master.

    `node`: the name of its master's life. `owner` is the name it claims under, "" for a poller. `death_fd` becomes
    readable when the master is gone. `master_bell_fd` is an eventfd: writing to it has the master look at the slots.
    """

    node: str
    slot_number: int
    slot: Slot
    nonce: int
    owner: str
    death_fd: int
    master_bell_fd: int

    def ring_master(self) -> None:
        """Have the master look at the slots now."""
        ring(self.master_bell_fd)


def ring(bell_fd: int) -> None:
    """Ring a bell that all children share. A task may have closed it, or rung it to the brim, which is heard too."""
    with contextlib.suppress(OSError):
        os.eventfd_write(bell_fd, 1)


class Fence:
    """Keeps a worker whose master may have lost its lease from starting anything.

    Both sides use CLOCK_BOOTTIME, which goes on while a machine sleeps. What counts is when the last successful renewal
    was *sent*: the server cannot have received it earlier, so the lease cannot end earlier than we think.
    """

    def __init__(self, slot: Slot, lease_seconds: float) -> None:
        self._slot = slot
        self._allowed_ns = fence_ns(lease_seconds)

    def is_up(self, at_ns: int) -> bool:
        """Whether nothing may be started at this time (CLOCK_BOOTTIME)."""
        return at_ns - self._slot.renewed_ns > self._allowed_ns


def fence_ns(lease_seconds: float) -> int:
    """How long after a renewal was sent tasks may still be started, in nanoseconds."""
    return round(lease_seconds * (1 - _MARGIN_SHARE) * NANOSECONDS)


class StopSignals:
    """TERM and INT, as a flag; these and WAKE_SIGNAL, as a descriptor to wait on. What is meant for the master does
    nothing here."""

    def __init__(self) -> None:
        self.asked = False
        self._handlers: Final[dict[int, Callable[[int, FrameType | None], None]]] = {
            **dict.fromkeys(_STOPPING, self._stop),
            WAKE_SIGNAL: self._wake,
            **dict.fromkeys(OF_THE_MASTER, _do_nothing),
        }
        self._reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._forking = threading.local()

    def install(self) -> None:
        """Take the signals over, then let through all that were blocked since before the fork.

        A process that this one forks (a task may) is stopped by them as any process is: our handlers would
        wake us instead.
        """
        os.register_at_fork(
            before=self._hold_back, after_in_parent=self._let_through, after_in_child=self._leave_to_child
        )
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def fileno(self) -> int:
        """Readable once a signal has come."""
        return self._reading

    def empty(self) -> None:
        """Empty the descriptor, so that waiting on it waits for the next signal."""
        try:
            os.read(self._reading, 4096)
        except BlockingIOError:
            return

    def wake(self) -> None:
        """As if a signal had come that says no more than that."""
        self._wake()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self._wake(number, frame)

    def _wake(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        try:
            os.write(self._writing, b"!")
        except BlockingIOError:  # thousands of unread signals: the loop is awake already
            return

    # Around a fork. A signal sent to the child at once waits until our handlers are gone from it.

    def _hold_back(self) -> None:
        self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._handlers)

    def _let_through(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._forking.mask)

    def _leave_to_child(self) -> None:
        for number, handler in self._handlers.items():
            if signal.getsignal(number) == handler:  # the task may have set one of its own
                signal.signal(number, signal.SIG_DFL)
        self._let_through()


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    # A handler, as programs that tasks start would inherit that a signal is ignored.
    pass


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


class StartFailed(Exception):
    """The application has this worker not start; says why, without what the application's error may hold."""


# Exit codes of children: how the master tells an orderly end from a crash.
EXIT_DRAINED = 0
EXIT_LOST = 75  # the owner is no longer registered: leave without touching anything
EXIT_ORPHANED = 77  # the master is gone
EXIT_OVERWRITTEN = 78  # a task wrote over the slot
EXIT_OTHER_VERSION = 79  # the master runs another version of the package
