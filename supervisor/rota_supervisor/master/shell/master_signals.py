"""The master's signals. The master installs no signal handlers. Instead, its loop reads signals as data and decides
what each one requests.

The signals are blocked for the whole life of the master. Handlers could interrupt each other: in a test with six
pending signals, the nested handlers overflowed the alternate stack that `faulthandler` sets up, and the interpreter
crashed. The kernel keeps each pending signal only once, so not even a flood of other signals can displace a TERM or
fill a pipe.

TERM and INT make the fleet drain. A repeated request within a second is ignored, because a terminal and a supervisor
may both send it. After a second, a repeated request stops the fleet at once. HUP requests a reload, unless the master
has lost its controlling terminal. In that case, HUP makes the fleet drain. The meaning of the other signals is fixed.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from typing import Final

from rota_supervisor.control.port import RequestKind
from rota_supervisor.process import open_inbox, take_from

REPEAT_SECONDS: Final = 1.0


MEANINGS: Final = {
    signal.SIGTERM: RequestKind.DRAIN,
    signal.SIGINT: RequestKind.DRAIN,
    signal.SIGQUIT: RequestKind.STOP_NOW,
    signal.SIGHUP: RequestKind.RELOAD,
    signal.SIGUSR2: RequestKind.RESTART,
    signal.SIGTTIN: RequestKind.MORE,
    signal.SIGTTOU: RequestKind.LESS,
    signal.SIGTSTP: RequestKind.QUIET,
    signal.SIGCONT: RequestKind.RESUME,
    signal.SIGUSR1: RequestKind.REPORT,
}
TAKEN: Final = frozenset({*MEANINGS, signal.SIGCHLD})


class SignalReader:
    """A reader that turns signals into requests, in the order in which they arrive.

    `had_terminal`: whether there was a controlling terminal at the start.
    """

    def __init__(self, *, had_terminal: bool) -> None:
        self._had_terminal = had_terminal
        self._stop_requested_at: float | None = None

    def read(self, number: signal.Signals, now: float) -> RequestKind | None:
        """Return the request of a signal at `now` (monotonic seconds), or None if the signal repeats a request."""
        request = MEANINGS[number]
        if request is RequestKind.RELOAD and self._had_terminal and not has_terminal():
            request = RequestKind.DRAIN
        if request is not RequestKind.DRAIN:
            return request
        first = self._stop_requested_at
        if first is None:
            self._stop_requested_at = now
            return RequestKind.DRAIN
        return None if now - first < REPEAT_SECONDS else RequestKind.STOP_NOW


def has_terminal() -> bool:
    """Whether this process has a controlling terminal."""
    try:
        fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    os.close(fd)
    return True


def watch_signals(handle: Callable[[RequestKind], None], child_ended: Callable[[], None]) -> None:
    """Make the running event loop call `handle` with the request of each signal, even if the signal is already pending.
    `child_ended` is called for SIGCHLD."""
    signal.pthread_sigmask(signal.SIG_BLOCK, TAKEN)
    # If SIGCHLD was ignored by the parent, waiting for children would fail.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    inbox = open_inbox(TAKEN)
    reader = SignalReader(had_terminal=has_terminal())

    def arrived() -> None:
        for number in map(signal.Signals, take_from(inbox)):
            if number is signal.SIGCHLD:
                child_ended()
            elif (request := reader.read(number, time.monotonic())) is not None:
                handle(request)

    asyncio.get_running_loop().add_reader(inbox, arrived)
