"""The doorbell of the pollers: a connection that waits in BLPOP, and a local timer that ends the wait.

The timer is select(), because its timeout is in microseconds and ended at most 0.4 ms late in measurements. The timeout
of poll() is in whole milliseconds, and BLPOP timed out 50 to 100 ms late on an idle server.

The same connection receives notifications of changed keys (`CLIENT TRACKING`). Legacy lists are tracked in broadcasting
mode, in which the server reports every change of every key that begins with one of the given prefixes. The fleet's
lanes are tracked in the default mode, in which the server reports only the next change of each key that `EXISTS` has
read. So a busy fleet gets few notifications. Neither mode removes anything from a list, so nothing is lost if a poller
is killed.
"""

import math
import select
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rota.child.child_process import Orphaned, StopSignals
from rota.protocol.keys import Keys
from rota.protocol.wire import command, pack
from rota.server.connection import GRACE_SECONDS, LONG_PARK_SECONDS, Connection, silence_error
from rota.server.link import Link
from rota.server.server_errors import Refused, ServerError
from rota.server.session import NO_REPLY, PushMessage
from rota.telemetry import log, log_events


@dataclass(slots=True)
class BellState:
    """The state that the rounds of a poller share with its doorbell: which keys the server is to watch for this poller,
    and whether any of them has changed."""

    wanted: tuple[str, ...] = ()  # keys of the legacy lists, which the server tracks as prefixes
    is_notified: bool = False  # whether the server tracks the prefixes in `wanted`
    rang: bool = False  # whether a legacy list has changed or may have changed
    is_reserve: bool = False  # whether enough other pollers sweep and promote, so that this one does not listen
    client_id: int = 0  # the id of the bell's connection as the server's CLIENT ID returns it, 0 for no connection
    changed_at: float = math.inf  # when a tracked key of the fleet first changed since the last check (monotonic)
    _tracked_prefixes: tuple[str, ...] = field(
        default=(), init=False
    )  # the prefixes that the current connection tracks

    @property
    def is_outdated(self) -> bool:
        """Whether the bell's connection tracks keys other than those in `wanted`. The bell then replaces the
        connection, because the tracked keys cannot be changed while it waits in BLPOP."""
        return self.wanted != self._tracked_prefixes

    def set_up(self, connection: Connection) -> None:
        """Set up a new connection to receive notifications. If the server refuses to send notifications, `is_notified`
        remains False.

        Raises ServerError.
        """
        self._tracked_prefixes = self.wanted
        self.is_notified = False
        self.client_id = 0
        try:
            connection.execute("HELLO", 3)
            if self.wanted:
                prefixes = [part for key in prefixes_of(self.wanted) for part in ("PREFIX", key)]
                connection.execute("CLIENT", "TRACKING", "ON", "BCAST", *prefixes)
                # The server has not reported earlier changes, so the lists must be checked once.
                self.is_notified = self.rang = True
            self.client_id = connection.execute("CLIENT", "ID")
        except Refused as error:  # an ACL or a proxy may forbid tracking
            if self.wanted and not self.is_notified:
                log.logger().warning(log_events.ADOPT_TRACKING_REFUSED, error=str(error))

    def invalidated(self, keys: Sequence[bytes] | None) -> None:
        """Record that these keys have changed. None means that any key may have changed."""
        prefixes = tuple(prefix.encode() for prefix in self.wanted)
        if prefixes and (keys is None or any(key.startswith(prefixes) for key in keys)):
            self.rang = True
        if keys is None or not all(key.startswith(prefixes) for key in keys):
            self.changed_at = min(self.changed_at, time.monotonic())


class KeyTracking:
    """Makes the server watch keys. The poller reads the keys with `EXISTS` on one connection, and the server reports
    their next change on another one, that of the bell."""

    def __init__(self, listening: BellState) -> None:
        self._listening = listening
        self._route: tuple[Connection | None, int] = (None, 0)
        self._keys: tuple[str, ...] = ()
        self._is_refused = False
        self.is_armed = False

    @property
    def changed_at(self) -> float:
        """The time at which a tracked key first changed (monotonic), or `inf` if none has."""
        return self._listening.changed_at if self.is_armed else math.inf

    def disarm(self) -> None:
        """Ignore notifications until the next `arm`."""
        self.is_armed = False

    def arm(self, connection: Connection, keys: tuple[str, ...]) -> bool:
        """Track these keys unless they are tracked already.

        Returns True if the caller must read the keys with its next command, because that command starts the tracking.
        Raises ServerError.
        """
        route = connection, self._listening.client_id
        if route != self._route:
            self._route = route
            self.is_armed = False
            self._is_refused = not self._accepts("TRACKING", "ON", "REDIRECT", str(route[1]), "OPTIN")
        if self._is_refused or (self.is_armed and keys == self._keys):
            return False
        self._keys = keys
        self._listening.changed_at = math.inf
        self.is_armed = self._accepts("CACHING", "YES")
        self._is_refused = not self.is_armed
        return self.is_armed

    def _accepts(self, *args: str) -> bool:
        connection, client_id = self._route
        if connection is None or not client_id:
            return False
        try:
            connection.execute("CLIENT", *args)
        except Refused:  # either an ACL or a proxy forbids tracking, or the bell has just lost its connection
            return False
        return True


def prefixes_of(keys: Iterable[str]) -> list[str]:
    """Return the keys that are to be tracked as prefixes. A key that begins with another of the keys is left out,
    because the server refuses overlapping prefixes, and the shorter key covers it."""
    kept: list[str] = []
    for key in sorted(keys):
        if not kept or not key.startswith(kept[-1]):
            kept.append(key)
    return kept


class PollerBell:
    """The doorbell of a poller, a connection that waits in BLPOP.

    The bell sends the next BLPOP after each reply, and soon after the connection was lost. The bell never rings while
    the server cannot be reached. The same connection receives notifications of changed keys. A reserve does not wait at
    the bell, so each token wakes a poller that promotes.
    """

    def __init__(self, keys: Keys, link: Link, signals: StopSignals, death_fd: int, listening: BellState) -> None:
        self._link = link
        self._listening = listening
        self._signals = signals
        self._death_fd = death_fd
        self._command = command((pack(("BLPOP", keys.poller_doorbell, LONG_PARK_SECONDS)),))
        self._parked_at: float | None = None
        self._not_before = 0.0

    def rest(self, seconds: float) -> bool:
        """Wait until the bell rings, and return True. Return False at the timeout, at a signal, or if a key has
        changed.

        Also return True if the bell may have rung without this process noticing. Raises Orphaned if the master dies.
        """
        deadline = time.monotonic() + seconds
        known = self._changes()
        if self._parked_at is not None and (self._listening.is_outdated or self._listening.is_reserve):
            self.disconnect()
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
            return self._poll()
        except ServerError as error:
            may_have_rung = self._parked_at is not None  # a token may be lost with the connection
            self._not_before = time.monotonic() + self._link.failed(error)
            self.disconnect()
            return may_have_rung

    def disconnect(self) -> None:
        """Close the connection. Call this if the connection, or another one to the same server, was lost."""
        self._link.close()
        self._parked_at = None
        self._listening.is_notified = False
        self._listening.client_id = 0

    def _poll(self) -> bool:
        """Whether the BLPOP has taken a token. This method sends the first BLPOP, and another one after each reply."""
        now = time.monotonic()
        if self._parked_at is None and (self._listening.is_reserve or now < self._not_before):
            return False
        connection = self._link.connection(is_parked=self._parked_at is not None)
        if self._parked_at is None:
            self._listening.set_up(connection)
            self._park(connection)
        reply = connection.try_receive()
        while isinstance(reply, PushMessage):
            self._listening.invalidated(reply[1])
            reply = connection.try_receive()
        if reply is NO_REPLY:
            if self._parked_at is not None and now - self._parked_at > LONG_PARK_SECONDS + GRACE_SECONDS:
                raise silence_error(LONG_PARK_SECONDS)
            return False
        self._link.succeeded()
        if connection.is_to_renew:
            self.disconnect()
        else:
            self._park(connection)
        return reply is not None

    def _park(self, connection: Connection) -> None:
        self._parked_at = time.monotonic()
        connection.send(self._command)

    def _woken_by_signal(self, now: float, deadline: float) -> bool:
        watched = [self._signals.fileno(), self._death_fd]
        if self._parked_at is not None:
            watched.append(self._link.connection(is_parked=True).fileno())
        elif not self._listening.is_reserve:
            deadline = min(deadline, self._not_before)
        ready, _, _ = select.select(watched, (), (), max(0.0, deadline - now))
        if self._death_fd in ready:
            raise Orphaned
        if self._signals.fileno() in ready:
            self._signals.empty()
            return True
        return False
