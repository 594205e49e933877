"""A client's connection: its request is read and its answer sent as the socket lets us. Nothing here waits.

Each part has a time by which it is over, however busily the client sends or reads a byte now and then.
"""

import socket
from enum import Enum, auto
from typing import Final

from rota_supervisor.exporter.exchange import Answer, Exchange, HttpRequest

REQUEST_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 10.0  # as long as Prometheus waits for a scrape by default
LEAVE_SECONDS: Final = 2.0
_CHUNK_BYTES: Final = 1 << 14


class ClientTurn(Enum):
    """What is next."""

    ASKING = auto()  # it sends its request
    WAITING = auto()  # its answer is being made
    TAKING = auto()  # its answer is being sent
    LEAVING = auto()  # it has its answer, and closes; what it still sends is thrown away
    GONE = auto()


class HttpClient:
    """One connection from its acceptance to its end. What talks to the client raises OSError when it has gone, and
    BlockingIOError when it is not ready. `until` and all times are monotonic."""

    def __init__(self, connection: socket.socket, now: float) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._exchange = Exchange()
        self._unsent = memoryview(b"")
        self.turn = ClientTurn.ASKING
        self.until = now + REQUEST_SECONDS

    def fileno(self) -> int:
        """Its descriptor, -1 once it is closed."""
        return self._connection.fileno()

    def hear(self) -> HttpRequest | Answer | None:
        """Its request, once that is whole, or the refusal of it."""
        return self._exchange.take(self._receive())

    def wait(self) -> None:
        """Let it wait for its answer."""
        self.turn, self.until = ClientTurn.WAITING, float("inf")

    def answer(self, answer: Answer, now: float) -> None:
        """Begin to send its answer."""
        self._unsent = memoryview(self._exchange.give(answer))
        self.turn, self.until = ClientTurn.TAKING, now + ANSWER_SECONDS
        self.send(now)

    def send(self, now: float) -> None:
        """Send more of the answer."""
        sent = self._connection.send(self._unsent)
        self._unsent = self._unsent[sent:]
        if not self._unsent:
            # A close while something of it is unread would take the answer back from a client that has yet to read it.
            self._connection.shutdown(socket.SHUT_WR)
            self.turn, self.until = ClientTurn.LEAVING, now + LEAVE_SECONDS

    def discard(self) -> None:
        """Throw away what it sends."""
        self._receive()

    def close(self) -> None:
        """Hang up."""
        self.turn = ClientTurn.GONE
        self._unsent = memoryview(b"")
        self._connection.close()

    def _receive(self) -> bytes:
        data = self._connection.recv(_CHUNK_BYTES)
        if not data:
            raise ConnectionResetError
        return data
