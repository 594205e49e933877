"""Hearing of what nobody rings for: the server tells the bell's connection of changes of keys (`CLIENT TRACKING`).

Of classic queues it tells each change of a key that begins with one of these texts, whatever its type (broadcasting
mode). Of the fleet's own lanes it tells the next change only, of each key that a look has read: a busy fleet hears no
more than one of each a second. Nothing is taken from a list to hear of it, so a kill can lose nothing.
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
    """What the rounds and the bell tell each other. `wanted`: the keys to hear of, none for nothing; `hears`: whether
    the bell's connection does; `rang`: something has changed there, or may have. `bell_id`: the bell's connection by
    CLIENT ID, to which others may have changes told, 0 for none; `heard_at`: when it was told of one (monotonic)."""

    wanted: tuple[str, ...] = ()
    hears: bool = False
    rang: bool = False
    bell_id: int = 0
    heard_at: float = math.inf
    _asked_for: tuple[str, ...] = field(default=(), init=False)

    @property
    def is_outdated(self) -> bool:
        """Whether the bell's connection was told to listen for something else: a parked one can be told no more."""
        return self.wanted != self._asked_for

    def begin(self, connection: Connection) -> None:
        """Have a fresh connection listen. Where the server does not let it, `hears` stays False. Raises ServerError."""
        self._asked_for, self.hears, self.bell_id = self.wanted, False, 0
        try:
            connection.execute("HELLO", 3)
            if self.wanted:
                prefixes = [word for key in prefixes_of(self.wanted) for word in ("PREFIX", key)]
                connection.execute("CLIENT", "TRACKING", "ON", "BCAST", *prefixes)
                self.hears = self.rang = True  # whatever came before nobody was told of
            self.bell_id = connection.execute("CLIENT", "ID")
        except Refused as error:  # an ACL or a proxy may not have it
            if self.wanted and not self.hears:
                log.logger().warning(events.ADOPT_DEAF, error=str(error))

    def told(self, keys: Sequence[bytes] | None) -> None:
        """These keys have changed; None for all of them."""
        for key in keys or ():
            if key.startswith(tuple(each.encode() for each in self.wanted)):
                self.rang = True
            else:
                self.heard_at = min(self.heard_at, time.monotonic())
        if keys is None:
            self.rang, self.heard_at = True, min(self.heard_at, time.monotonic())


class Watch:
    """Has the server tell the bell of the next change of each key that a look reads, by one other connection.
    `is_set`: it will, or has."""

    def __init__(self, listening: Listening) -> None:
        self._listening = listening
        self._route: tuple[Connection | None, int] = (None, 0)
        self._is_refused = False
        self.is_set = False

    @property
    def heard_at(self) -> float:
        """When a change was heard of (monotonic), `inf` for none since the last look that was watched."""
        return self._listening.heard_at if self.is_set else math.inf

    def end(self) -> None:
        """What was heard of is seen to; the next look is to be watched again."""
        self.is_set = False

    def begin(self, connection: Connection) -> bool:
        """Have the next command on this connection watched, unless its keys are already; returns whether they were not.
        Raises ServerError."""
        route = connection, self._listening.bell_id
        if route != self._route:
            self._route, self.is_set = route, False
            self._is_refused = not self._asks("TRACKING", "ON", "REDIRECT", str(route[1]), "OPTIN")
        if self.is_set or self._is_refused:
            return False
        self._listening.heard_at = math.inf
        self.is_set = self._asks("CACHING", "YES")
        self._is_refused = not self.is_set
        return self.is_set

    def _asks(self, *args: str) -> bool:
        connection, bell_id = self._route
        if connection is None or not bell_id:
            return False
        try:
            connection.execute("CLIENT", *args)
        except Refused:  # as above, or the bell's connection has ended just now: the next one has another id
            return False
        return True


def prefixes_of(keys: Iterable[str]) -> list[str]:
    """The keys without those that begin with another one: the server refuses prefixes that overlap."""
    kept: list[str] = []
    for key in sorted(keys):
        if not kept or not key.startswith(kept[-1]):
            kept.append(key)
    return kept
