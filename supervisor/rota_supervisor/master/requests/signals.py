"""The master's signals: handlers only queue them, the loop asks what each one means.

TERM and INT drain. The same request again within a second counts as the same one, as when a terminal and a
supervisor both send it; later it means at once. HUP reloads, unless it comes from the loss of the controlling
terminal. The others mean the same each time.
"""

import asyncio
import functools
import os
import signal
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

REPEAT_SECONDS: Final = 1.0


class Request(Enum):
    """What a signal asks for."""

    DRAIN = auto()
    STOP_NOW = auto()
    RELOAD = auto()
    RESTART = auto()
    MORE = auto()
    LESS = auto()
    QUIET = auto()
    RESUME = auto()
    REPORT = auto()


MEANINGS: Final = {
    signal.SIGTERM: Request.DRAIN,
    signal.SIGINT: Request.DRAIN,
    signal.SIGQUIT: Request.STOP_NOW,
    signal.SIGHUP: Request.RELOAD,
    signal.SIGUSR2: Request.RESTART,
    signal.SIGTTIN: Request.MORE,
    signal.SIGTTOU: Request.LESS,
    signal.SIGTSTP: Request.QUIET,
    signal.SIGCONT: Request.RESUME,
    signal.SIGUSR1: Request.REPORT,
}


class SignalReader:
    """Reads signals in the order they came. `had_terminal`: a controlling terminal was there at the start."""

    def __init__(self, *, had_terminal: bool) -> None:
        self._had_terminal = had_terminal
        self._asked_to_stop_at: float | None = None

    def read(self, number: signal.Signals, now: float) -> Request | None:
        """What a signal at `now` (monotonic seconds) asks for; None when it repeats a request."""
        request = MEANINGS[number]
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


def let_in(ask: Callable[[Request], None], child_ended: Callable[[], None]) -> None:
    """Have the running loop call `ask` for what people's signals mean; those blocked so far come now."""
    loop = asyncio.get_running_loop()
    reader = SignalReader(had_terminal=has_terminal())

    def signalled(number: signal.Signals) -> None:
        request = reader.read(number, time.monotonic())
        if request is not None:
            ask(request)

    for number in MEANINGS:
        loop.add_signal_handler(number, functools.partial(signalled, number))
    # Explicit: under a parent that ignored it, waiting for children would fail.
    loop.add_signal_handler(signal.SIGCHLD, child_ended)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {*MEANINGS, signal.SIGCHLD})


def keep_out() -> None:
    """Block all of them again. Their handlers go with the loop: after that a TERM would end this process, with another
    exit code than it has, and a child that dies would have the interpreter write to a pipe that is closed."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {*MEANINGS, signal.SIGCHLD})
