"""The one connection of a client that blocks: parked at the list to which transitions push what woke its waits."""

import math
import time
from typing import Any

from rota.client.blocking.timed_connection import TimedConnection
from rota.client.failures import unavailable
from rota.errors import Unavailable
from rota.protocol.store import BATCH
from rota.protocol.wire import command, pack, text_of
from rota.server.connection import GRACE_SECONDS, PARK_SECONDS, unanswered
from rota.server.endpoint import Endpoint
from rota.server.server_errors import ServerError
from rota.server.session import NO_REPLY


class ReplyList:
    """The list `key`, listened to for PARK_SECONDS at a time: so a connection that is dead is found.

    `silent_at`: when an answer is overdue (monotonic); inf when it is not parked.
    """

    def __init__(self, endpoint: Endpoint, timeout_seconds: float, key: str) -> None:
        """Connects when it is first parked."""
        self._endpoint = endpoint
        self._timeout_seconds = timeout_seconds
        self._connection: TimedConnection | None = None
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
            if self._connection is None:
                self._connection = TimedConnection(self._endpoint, self._timeout_seconds)
            self._connection.send(self._parking)
        except ServerError as error:
            raise self._lost(error) from error
        self.silent_at = time.monotonic() + PARK_SECONDS + GRACE_SECONDS

    def fileno(self) -> int:
        """The descriptor to wait on, while it is parked."""
        return -1 if self._connection is None else self._connection.fileno()

    def words(self) -> list[str] | None:
        """What was pushed; nothing when the time was over; None when no answer has come. Raises Unavailable."""
        if self._connection is None or not self.is_parked:
            return None
        try:
            first: Any = self._connection.try_receive()
            if first is NO_REPLY:
                if time.monotonic() > self.silent_at:
                    raise unanswered(PARK_SECONDS)
                return None
            rest: Any = self._connection.receive()
        except ServerError as error:
            raise self._lost(error) from error
        self.silent_at = math.inf
        return [text_of(word) for word in ([first[1]] if first else []) + (rest or [])]

    def close(self) -> None:
        """Close the connection; the next `park` makes another."""
        self.silent_at = math.inf
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _lost(self, error: Exception) -> Unavailable:
        self.close()
        return unavailable(str(error), error)
