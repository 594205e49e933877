"""The pollers' doorbell: a connection parked in BLPOP, and the wait on it with a local timer.

BLPOP's own timeout came 50 to 100 ms late on an idle server, and poll() counts in milliseconds; select()
with a timeout in microseconds came 0.4 ms late at most.
"""

import select
import time
from typing import Final

from rota.child.signals import StopSignals
from rota.child.wait import Orphaned
from rota.protocol.keys import Keys
from rota.protocol.wire import command, pack
from rota.server.connection import NO_REPLY
from rota.server.link import Link
from rota.server.server_errors import REASON_SILENT, ConnectionLost, ServerError

PARK_SECONDS: Final = 2
_GRACE_SECONDS: Final = 3.0


class PollerBell:
    """Parks again by itself whenever its command was answered; without a server it is silent."""

    def __init__(self, keys: Keys, link: Link, signals: StopSignals, death_fd: int) -> None:
        self._link = link
        self._signals = signals
        self._death_fd = death_fd
        self._park = command((pack(("BLPOP", keys.poller_doorbell, PARK_SECONDS)),))
        self._parked_at: float | None = None
        self._not_before = 0.0

    def rest(self, seconds: float) -> bool:
        """Wait until the bell rings (True), or the time is over or a stop signal came (False). Raises Orphaned."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                if self._answered():
                    return True
            except ServerError as error:
                self._give_up(error)
            left = deadline - time.monotonic()
            if left <= 0 or self._woken_by_signal(left):
                return False

    def _answered(self) -> bool:
        """Whether the parked command took a token; parks first, and again after each answer."""
        if self._parked_at is None and time.monotonic() < self._not_before:
            return False
        connection = self._link.connection()
        if self._parked_at is None:
            connection.send(self._park)
            self._parked_at = time.monotonic()
        reply = connection.try_receive()
        if reply is NO_REPLY:
            if time.monotonic() - self._parked_at > PARK_SECONDS + _GRACE_SECONDS:
                raise ConnectionLost(f"a wait of {PARK_SECONDS} s had no end", REASON_SILENT)
            return False
        self._link.worked()
        connection.send(self._park)
        self._parked_at = time.monotonic()
        return reply is not None

    def _give_up(self, error: ServerError) -> None:
        self._not_before = time.monotonic() + self._link.failed(error)
        self._link.close()
        self._parked_at = None

    def _woken_by_signal(self, seconds: float) -> bool:
        watched = [self._signals.fileno(), self._death_fd]
        if self._parked_at is not None:
            watched.append(self._link.connection().fileno())
        ready, _, _ = select.select(watched, (), (), seconds)
        if self._death_fd in ready:
            raise Orphaned
        if self._signals.fileno() in ready:
            self._signals.quiet()
            return True
        return False
