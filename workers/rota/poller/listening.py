"""Notifications of changed keys (`CLIENT TRACKING`), received on the connection of the pollers' bell.

Classic queues are tracked in broadcasting mode: the server reports each change of a key with one of the prefixes,
whatever its type. The fleet's own lanes are tracked in the default mode: the server reports only the next change of
each key that `EXISTS` has read, so a busy fleet gets few notifications. Neither mode takes anything from a list, so a
killed poller loses nothing.
"""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rota.server.connection import Connection
from rota.server.server_errors import Refused
from rota.telemetry import events, log


@dataclass(slots=True)
class Listening:
    """State shared by the rounds of a poller and its bell."""

    wanted: tuple[str, ...] = ()  # prefixes of classic queues to track
    hears: bool = False  # whether the server tracks them
    rang: bool = False  # a classic queue has changed, or may have
    client_id: int = 0  # CLIENT ID of the bell's connection, 0 for none
    changed_at: float = math.inf  # when a key of the fleet changed first since the last look (monotonic)
    _asked_for: tuple[str, ...] = field(default=(), init=False)

    @property
    def is_outdated(self) -> bool:
        """Whether the bell's connection was told to listen for something else: a parked one can be told no more."""
        return self.wanted != self._asked_for

    def begin(self, connection: Connection) -> None:
        """Have a fresh connection listen. Where the server does not let it, `hears` stays False. Raises ServerError."""
        self._asked_for, self.hears, self.client_id = self.wanted, False, 0
        try:
            connection.execute("HELLO", 3)
            if self.wanted:
                prefixes = [word for key in prefixes_of(self.wanted) for word in ("PREFIX", key)]
                connection.execute("CLIENT", "TRACKING", "ON", "BCAST", *prefixes)
                self.hears = self.rang = True  # whatever came before nobody was told of
            self.client_id = connection.execute("CLIENT", "ID")
        except Refused as error:  # an ACL or a proxy may not have it
            if self.wanted and not self.hears:
                log.logger().warning(events.ADOPT_DEAF, error=str(error))

    def invalidated(self, keys: Sequence[bytes] | None) -> None:
        """Record that these keys have changed; None stands for all keys."""
        prefixes = tuple(prefix.encode() for prefix in self.wanted)
        if prefixes and (keys is None or any(key.startswith(prefixes) for key in keys)):
            self.rang = True
        if keys is None or not all(key.startswith(prefixes) for key in keys):
            self.changed_at = min(self.changed_at, time.monotonic())


class KeyTracking:
    """Tracking of the keys that the next `EXISTS` reads, with notifications redirected to the bell's connection."""

    def __init__(self, listening: Listening) -> None:
        self._listening = listening
        self._route: tuple[Connection | None, int] = (None, 0)
        self._keys: tuple[str, ...] = ()
        self._is_refused = False
        self.is_armed = False

    @property
    def changed_at(self) -> float:
        """When the first tracked key changed (monotonic), `inf` if none has."""
        return self._listening.changed_at if self.is_armed else math.inf

    def disarm(self) -> None:
        """Ignore notifications until the next `arm`."""
        self.is_armed = False

    def arm(self, connection: Connection, keys: tuple[str, ...]) -> bool:
        """Track these keys if they are not tracked already.

        Return whether the caller has to read them now with its next command. Raises ServerError.
        """
        route = connection, self._listening.client_id
        if route != self._route:
            self._route, self.is_armed = route, False
            self._is_refused = not self._accepts("TRACKING", "ON", "REDIRECT", str(route[1]), "OPTIN")
        if self._is_refused or (self.is_armed and keys == self._keys):
            return False
        self._keys, self._listening.changed_at = keys, math.inf
        self.is_armed = self._accepts("CACHING", "YES")
        self._is_refused = not self.is_armed
        return self.is_armed

    def _accepts(self, *args: str) -> bool:
        connection, client_id = self._route
        if connection is None or not client_id:
            return False
        try:
            connection.execute("CLIENT", *args)
        except Refused:  # an ACL or a proxy forbids it, or the bell has just lost its connection
            return False
        return True


def prefixes_of(keys: Iterable[str]) -> list[str]:
    """The keys without those that begin with another one: the server refuses prefixes that overlap."""
    kept: list[str] = []
    for key in sorted(keys):
        if not kept or not key.startswith(kept[-1]):
            kept.append(key)
    return kept
