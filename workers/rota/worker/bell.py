"""Listening at the doorbells: BLPOP, waited for in poll() so that a stop signal is seen at once."""

from collections.abc import Iterable
from typing import Final

from rota.child.wait import Waiter, Woken
from rota.protocol.entry import MICROSECONDS
from rota.protocol.keys import Keys
from rota.protocol.store import Domain
from rota.protocol.wire import command, pack
from rota.server.connection import NO_REPLY, Connection
from rota.server.parking import GRACE_SECONDS, PARK_SECONDS, unanswered

_SHORTEST_SECONDS: Final = 0.02  # below this the server's timers, up to 0.1 s late, are no use


class Bell:
    """The doorbells of a worker's queues, those of higher tiers first."""

    def __init__(self, keys: Keys, tiers: Iterable[Domain]) -> None:
        queues = [share.name for domain in tiers for share in domain.queues]
        self._queues = {keys.doorbell(queue).encode(): queue for queue in queues}
        self._start = pack(("BLPOP", *self._queues))

    @staticmethod
    def patience(wait_us: int) -> float:
        """How many seconds to listen when a rate limit opens in `wait_us` (0: none does); 0.0 for too short
        a time to listen at all."""
        seconds = min(PARK_SECONDS, wait_us / MICROSECONDS) if wait_us else PARK_SECONDS
        return seconds if seconds >= _SHORTEST_SECONDS else 0.0

    def listen(self, connection: Connection, waiter: Waiter, seconds: float) -> str | None:
        """The queue whose token was taken, "" when nobody rang, None when a signal came first.

        After None the command still stands in the server: close the connection. Raises ServerError, Orphaned.
        """
        connection.send(command((self._start, pack((f"{seconds:.3f}",)))))
        while (reply := connection.try_receive()) is NO_REPLY:
            match waiter.until_woken(connection.fileno(), seconds + GRACE_SECONDS):
                case Woken.READY:
                    continue
                case Woken.SIGNAL:
                    reply = connection.try_receive()
                    return None if reply is NO_REPLY else self._queue_of(reply)
                case Woken.TIMEOUT:
                    raise unanswered(seconds)
        return self._queue_of(reply)

    def _queue_of(self, reply: list[bytes] | None) -> str:
        return "" if reply is None else self._queues[reply[0]]
