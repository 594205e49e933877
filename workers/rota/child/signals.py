"""The stop signals of a child: their handlers only set a flag and wake the loop."""

import os
import signal
import threading
from types import FrameType
from typing import Final

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """TERM and INT, as a flag and a descriptor to wait on."""

    def __init__(self) -> None:
        self.asked = False
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
        for number in _STOPPING:
            signal.signal(number, self._note)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def fileno(self) -> int:
        """Readable once a signal has come."""
        return self._reading

    def quiet(self) -> None:
        """Empty the descriptor, so that waiting on it waits for the next signal."""
        try:
            os.read(self._reading, 4096)
        except BlockingIOError:
            return

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True
        try:
            os.write(self._writing, b"!")
        except BlockingIOError:  # thousands of unread signals: the loop is awake already
            return

    # Around a fork. A signal sent to the child at once waits until our handlers are gone from it.

    def _hold_back(self) -> None:
        self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)

    def _let_through(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._forking.mask)

    def _leave_to_child(self) -> None:
        for number in _STOPPING:
            if signal.getsignal(number) == self._note:  # the task may have set one of its own
                signal.signal(number, signal.SIG_DFL)
        self._let_through()
