"""Waiting that another thread, or a signal handler, can end; and waiting at doorbells so."""

import contextlib
import select
import socket
import time
from collections.abc import Callable, Iterable
from typing import Final

from rota.protocol.keys import Keys
from rota.protocol.wire import command, pack
from rota.server.connection import EARLY_SECONDS, GRACE_SECONDS, NUDGE, Connection, unanswered
from rota.server.session import NO_REPLY

_NO_FD: Final = -1
_BYTES: Final = 1024


class Wakeup:
    """A bell of this process. Sockets, so that ringing one that was closed reaches nobody else's descriptor."""

    def __init__(self) -> None:
        self._heard, self._rung = socket.socketpair()
        self._heard.setblocking(False)
        self._rung.setblocking(False)

    def ring(self) -> None:
        """End the wait that goes on, or the next one. May be called from anywhere."""
        with contextlib.suppress(OSError):  # it is full, which is heard too; or closed
            self._rung.send(b"\0")

    def wait(self, seconds: float, fd: int = _NO_FD) -> None:
        """Wait until it rings, or there is something to read, or the time is over."""
        poll = select.poll()
        for each in {self._heard.fileno(), fd} - {_NO_FD}:
            poll.register(each, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)
        with contextlib.suppress(OSError):
            self._heard.recv(_BYTES)

    def close(self) -> None:
        """Close it. May be repeated."""
        self._heard.close()
        self._rung.close()


class Doorbells:
    """The doorbells of a consumer's queues."""

    def __init__(self, keys: Keys, queues: Iterable[str]) -> None:
        self._queues = {keys.doorbell(queue).encode(): queue for queue in queues}
        self._start = pack(("BLPOP", *self._queues))

    def listen(self, connection: Connection, seconds: float, wakeup: Wakeup, is_over: Callable[[], bool]) -> str | None:
        """Wait until one rings or the time is over. Returns the queue whose token was taken, "" when nobody rang, and
        None when it was over before: an answer may still come, so close the connection. Raises ServerError."""
        connection.send(command((self._start, pack((f"{seconds - EARLY_SECONDS:.3f}",)))))
        over_at, has_nudged = time.monotonic() + seconds, False
        while (rung := connection.try_receive()) is NO_REPLY:
            if is_over():
                return None
            left = over_at - time.monotonic()
            if left <= 0 and not has_nudged:
                connection.send(NUDGE)
                has_nudged = True
            if left + GRACE_SECONDS <= 0:
                raise unanswered(seconds)
            wakeup.wait(left + GRACE_SECONDS if has_nudged else left, connection.fileno())
        return "" if rung is None else self._queues[rung[0]]
