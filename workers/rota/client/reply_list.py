"""The one connection of a client that blocks: parked at the list to which transitions push what woke its waits."""

import math
import socket
import time
from typing import Any, Final

import redis
from redis.exceptions import RedisError

from rota.client.failures import unavailable
from rota.client.primary_connection import connection_settings
from rota.errors import Unavailable
from rota.protocol.store import BATCH
from rota.protocol.wire import command, pack, text_of
from rota.server.address import Address
from rota.server.server_errors import without_arguments

PARK_SECONDS: Final = 5
GRACE_SECONDS: Final = 3.0  # the server's own timers run late; the rest is for a busy one


class ReplyList:
    """The list `key`, listened to for PARK_SECONDS at a time: so a connection that is dead is found.

    `silent_at`: when an answer is overdue (monotonic); inf when it is not parked.
    """

    def __init__(self, address: Address, timeout_seconds: float, key: str) -> None:
        """Connects when it is first parked."""
        settings = connection_settings(address, timeout_seconds)
        self._connection: redis.Connection = settings.pop("connection_class")(**settings)
        # The LPOP is answered with the BLPOP: whatever came at once is told at once.
        self._parking = command((pack(("BLPOP", key, PARK_SECONDS)),)) + command((pack(("LPOP", key, BATCH)),))
        self.silent_at = math.inf

    @property
    def is_parked(self) -> bool:
        """Whether an answer is to come."""
        return self.silent_at < math.inf

    def park(self) -> None:
        """Begin to listen. Raises Unavailable."""
        try:
            self._connection.send_packed_command([self._parking])  # type: ignore[no-untyped-call]  # not typed
        except (RedisError, OSError) as error:
            raise self._lost(error) from error
        self.silent_at = time.monotonic() + PARK_SECONDS + GRACE_SECONDS

    def fileno(self) -> int:
        """The descriptor to wait on, while it is parked."""
        parked: socket.socket = self._connection._sock  # type: ignore[assignment]  # noqa: SLF001 - nothing else tells it
        return parked.fileno()

    def words(self) -> list[str] | None:
        """What was pushed; nothing when the time was over; None when no answer has come. Raises Unavailable."""
        if not self.is_parked:
            return None
        try:
            if not self._connection.can_read():
                if time.monotonic() > self.silent_at:
                    raise redis.TimeoutError(f"a wait of {PARK_SECONDS} s had no end")
                return None
            first: Any = self._connection.read_response()
            rest: Any = self._connection.read_response()
        except (RedisError, OSError) as error:
            raise self._lost(error) from error
        self.silent_at = math.inf
        return [text_of(word) for word in ([first[1]] if first else []) + (rest or [])]

    def close(self) -> None:
        """Close the connection; the next `park` makes another."""
        self.silent_at = math.inf
        self._connection.disconnect()  # type: ignore[no-untyped-call]  # redis-py does not type it

    def _lost(self, error: Exception) -> Unavailable:
        self.close()
        return unavailable(without_arguments(str(error)), error)
