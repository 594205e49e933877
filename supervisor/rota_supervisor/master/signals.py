"""The master's signals: handlers only queue them, the loop asks what each one means.

TERM and INT drain. The same request again within a second counts as the same one, as when a terminal and a
supervisor both send it; later it means at once. QUIT is at once. HUP reloads, unless it comes from the loss of
the controlling terminal. TTIN and TTOU are one worker more and less.
"""

import os
import signal
from enum import Enum, auto
from typing import Final

REPEAT_SECONDS: Final = 1.0


class Request(Enum):
    """What a signal asks for."""

    DRAIN = auto()
    STOP_NOW = auto()
    RELOAD = auto()
    MORE = auto()
    LESS = auto()


# STOP would be without effect on TSTP and the rest: they are queued, and dropped.
UNUSED: Final = frozenset({signal.SIGTSTP, signal.SIGCONT, signal.SIGUSR1, signal.SIGUSR2})
QUEUED: Final = frozenset(
    {
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGHUP,
        signal.SIGTTIN,
        signal.SIGTTOU,
    }
)
_MEANINGS: Final = {
    signal.SIGTERM: Request.DRAIN,
    signal.SIGINT: Request.DRAIN,
    signal.SIGQUIT: Request.STOP_NOW,
    signal.SIGHUP: Request.RELOAD,
    signal.SIGTTIN: Request.MORE,
    signal.SIGTTOU: Request.LESS,
}


class SignalReader:
    """Reads signals in the order they came. `had_terminal`: a controlling terminal was there at the start."""

    def __init__(self, *, had_terminal: bool) -> None:
        self._had_terminal = had_terminal
        self._asked_to_stop_at: float | None = None

    def read(self, number: signal.Signals, now: float) -> Request | None:
        """What a signal at `now` (monotonic seconds) asks for; None when it repeats a request."""
        request = _MEANINGS[number]
        if request is Request.RELOAD and self._had_terminal and not has_terminal():
            request = Request.DRAIN
        if request is not Request.DRAIN:
            return request
        first = self._asked_to_stop_at
        if first is None:
            self._asked_to_stop_at = now
            return Request.DRAIN
        return None if now - first < REPEAT_SECONDS else Request.STOP_NOW


def has_terminal() -> bool:
    """Whether this process has a controlling terminal."""
    try:
        fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    os.close(fd)
    return True
