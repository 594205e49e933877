"""The stop signals of a child: their handlers only set a flag and wake the loop."""

import os
import signal
from types import FrameType


class StopSignals:
    """TERM and INT, as a flag and a descriptor to wait on."""

    def __init__(self) -> None:
        self.asked = False
        self._reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def install(self) -> None:
        """Take the signals over, then let through all that were blocked since before the fork."""
        for number in (signal.SIGTERM, signal.SIGINT):
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
