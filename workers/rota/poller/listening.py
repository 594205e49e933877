"""Hearing of classic queues: the server tells of each change of a key that begins with one of these texts, whatever its
type (`CLIENT TRACKING` in broadcasting mode). Nothing is taken from a list to hear of it, so a kill can lose nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from rota.server.connection import Connection
from rota.server.server_errors import Refused
from rota.telemetry import events, log


@dataclass(slots=True)
class Listening:
    """What the round that adopts and the bell tell each other. `wanted`: the keys to hear of, none for nothing;
    `hears`: whether the bell's connection does; `rang`: something has changed there, or may have."""

    wanted: tuple[str, ...] = ()
    hears: bool = False
    rang: bool = False
    _asked_for: tuple[str, ...] = field(default=(), init=False)

    @property
    def is_outdated(self) -> bool:
        """Whether the bell's connection was told to listen for something else: a parked one can be told no more."""
        return self.wanted != self._asked_for

    def begin(self, connection: Connection) -> None:
        """Have a fresh connection listen. Where the server does not let it, `hears` stays False. Raises ServerError."""
        self._asked_for, self.hears = self.wanted, False
        if not self.wanted:
            return
        try:
            connection.execute("HELLO", 3)
            prefixes = [word for key in prefixes_of(self.wanted) for word in ("PREFIX", key)]
            connection.execute("CLIENT", "TRACKING", "ON", "BCAST", *prefixes)
        except Refused as error:  # an ACL or a proxy may not have it
            log.logger().warning(events.ADOPT_DEAF, error=str(error))
            return
        self.hears = self.rang = True  # whatever came before nobody was told of


def prefixes_of(keys: Iterable[str]) -> list[str]:
    """The keys without those that begin with another one: the server refuses prefixes that overlap."""
    kept: list[str] = []
    for key in sorted(keys):
        if not kept or not key.startswith(kept[-1]):
            kept.append(key)
    return kept
