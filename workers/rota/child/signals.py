"""The signals of a child: their handlers only set a flag and wake the loop."""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final

# What the master tells a worker besides. Real-time signals, as applications hardly use them; the first stays free.
WAKE_SIGNAL: Final = signal.SIGRTMIN + 1  # look at your slot
SOFT_LIMIT_SIGNAL: Final = signal.SIGRTMIN + 2  # your task's soft deadline has passed, or it was cancelled
STACK_SIGNAL: Final = signal.SIGRTMIN + 3  # write down your stack

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
OF_THE_MASTER: Final = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)  # sent to a whole service, they reach us too


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
