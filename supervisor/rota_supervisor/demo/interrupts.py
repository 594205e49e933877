"""Ctrl-C and its like as something to wait for: the handlers only wake the loop."""

import os
import select
import signal
from types import FrameType, TracebackType
from typing import Final, Self

_ASKED_TO_LEAVE: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """While entered, INT, TERM and HUP do not end this process but are told by `wait`.

    HUP stays ignored where it was, under nohup. INT does not: shells ignore it for what they start with `&`.
    """

    def __init__(self) -> None:
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._before = {number: signal.getsignal(number) for number in _ASKED_TO_LEAVE}

    def __enter__(self) -> Self:
        for number, handler in self._before.items():
            if number != signal.SIGHUP or handler is not signal.SIG_IGN:
                signal.signal(number, self._ring)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._bell)

    def _ring(self, _number: int, _frame: FrameType | None) -> None:
        os.eventfd_write(self._bell, 1)

    def wait(self, seconds: float) -> bool:
        """Wait for an interrupt; True when there was one since the last call, at once then."""
        poller = select.poll()
        poller.register(self._bell, select.POLLIN)
        if not poller.poll(seconds * 1000):
            return False
        os.eventfd_read(self._bell)
        return True
