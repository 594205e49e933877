"""The pollers' doorbell: a connection parked in BLPOP, and the wait on it with a local timer.

BLPOP's own timeout came 50 to 100 ms late on an idle server, and poll() counts in milliseconds; select()
with a timeout in microseconds came 0.4 ms late at most.
"""

import math
import select
import time

from rota.child.signals import StopSignals
from rota.child.wait import Orphaned
from rota.poller.listening import Listening
from rota.protocol.keys import Keys
from rota.protocol.wire import command, pack
from rota.server.connection import GRACE_SECONDS, LONG_PARK_SECONDS, Connection, unanswered
from rota.server.link import Link
from rota.server.server_errors import ServerError
from rota.server.session import NO_REPLY, PushMessage


class PollerBell:
    """Parks again by itself whenever its command was answered, and soon after its connection was lost; without a
    server it is silent. The same connection receives notifications of changed keys."""

    def __init__(self, keys: Keys, link: Link, signals: StopSignals, death_fd: int, listening: Listening) -> None:
        self._link = link
        self._listening = listening
        self._signals = signals
        self._death_fd = death_fd
        self._command = command((pack(("BLPOP", keys.poller_doorbell, LONG_PARK_SECONDS)),))
        self._parked_at: float | None = None
        self._not_before = 0.0

    def rest(self, seconds: float) -> bool:
        """Wait until the bell rings, or may have rung unheard (True); or the time is over, a stop signal came, or a
        key has changed (False). Raises Orphaned."""
        deadline, known = time.monotonic() + seconds, self._changes()
        if self._listening.is_outdated and self._parked_at is not None:
            self.let_go()
            return True  # a token may have been lost with the connection
        while True:
            if self._rang():
                return True
            now = time.monotonic()
            if now >= deadline or self._changes() > known or self._woken_by_signal(now, deadline):
                return False

    def _changes(self) -> int:
        return self._listening.rang + math.isfinite(self._listening.changed_at)

    def _rang(self) -> bool:
        try:
            return self._answered()
        except ServerError as error:
            may_have_rung = self._parked_at is not None  # a token from the list may have been lost with the connection
            self._not_before = time.monotonic() + self._link.failed(error)
            self.let_go()
            return may_have_rung

    def let_go(self) -> None:
        """Listen on another connection from now on: this one is lost, or may be, as another to the same server is."""
        self._link.close()
        self._parked_at = None
        self._listening.hears, self._listening.client_id = False, 0

    def _answered(self) -> bool:
        """Whether the parked command took a token; parks first, and again after each answer."""
        now = time.monotonic()
        if self._parked_at is None and now < self._not_before:
            return False
        connection = self._link.connection()
        if self._parked_at is None:
            self._listening.begin(connection)
            self._park(connection)
        reply = connection.try_receive()
        while isinstance(reply, PushMessage):
            self._listening.invalidated(reply[1])
            reply = connection.try_receive()
        if reply is NO_REPLY:
            if self._parked_at is not None and now - self._parked_at > LONG_PARK_SECONDS + GRACE_SECONDS:
                raise unanswered(LONG_PARK_SECONDS)
            return False
        self._link.worked()
        self._park(connection)
        return reply is not None

    def _park(self, connection: Connection) -> None:
        self._parked_at = time.monotonic()
        connection.send(self._command)

    def _woken_by_signal(self, now: float, deadline: float) -> bool:
        watched = [self._signals.fileno(), self._death_fd]
        if self._parked_at is not None:
            watched.append(self._link.connection().fileno())
        else:
            deadline = min(deadline, self._not_before)
        ready, _, _ = select.select(watched, (), (), max(0.0, deadline - now))
        if self._death_fd in ready:
            raise Orphaned
        if self._signals.fileno() in ready:
            self._signals.empty()
            return True
        return False
