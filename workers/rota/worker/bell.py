"""Listening at the doorbells: BLPOP, waited for in poll() so that a stop signal is seen at once.

The turn that follows a ring is sent along behind the BLPOP. The server does not look at it before the BLPOP has ended,
and then answers both at once: a task is in hand one round trip earlier, of which each begins with waking the server's
process and ends with waking ours.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from rota.child.wait import Waiter, Woken
from rota.protocol.command import Command
from rota.protocol.entry import MICROSECONDS
from rota.protocol.keys import Keys
from rota.protocol.replies import TurnReply
from rota.protocol.tiers import Domain
from rota.protocol.wire import command, pack
from rota.server.connection import GRACE_SECONDS, PARK_SECONDS, Connection, unanswered
from rota.server.server_errors import UnknownScript, read_reply
from rota.server.session import NO_REPLY

_SHORTEST_SECONDS: Final = 0.02  # below this the server's timers, up to 0.1 s late, are no use


class Heard(NamedTuple):
    """What a wait at the doorbells ended with: the `queue` whose token was taken, "" when nobody rang, and the answer
    of the turn."""

    queue: str
    reply: TurnReply


class Bell:
    """The doorbells of a worker's queues, those of higher tiers first."""

    def __init__(self, keys: Keys, tiers: Iterable[Domain], beat_seconds: float) -> None:
        queues = [share.name for domain in tiers for share in domain.queues]
        self._queues = {keys.doorbell(queue).encode(): queue for queue in queues}
        self._start = pack(("BLPOP", *self._queues))
        self.longest_seconds = min(float(PARK_SECONDS), beat_seconds / 2)

    def patience(self, wait_us: int) -> float:
        """How many seconds to listen when a rate limit opens in `wait_us` (0: none does); 0.0 when that is too soon."""
        seconds = min(self.longest_seconds, wait_us / MICROSECONDS) if wait_us else self.longest_seconds
        return seconds if seconds >= _SHORTEST_SECONDS else 0.0

    def listen(self, connection: Connection, waiter: Waiter, seconds: float, turn: Command[TurnReply]) -> Heard | None:
        """Wait until one rings or the time is over, and take the turn; None when a signal came first.

        After None or an error answers may still come: close the connection. Raises ServerError, Orphaned.
        """
        connection.send(self.call(seconds) + turn.by_sha())
        while (rung := connection.try_receive()) is NO_REPLY:
            match waiter.until_woken(connection.fileno(), seconds + GRACE_SECONDS):
                case Woken.READY:
                    continue
                case Woken.SIGNAL:
                    return None
                case Woken.TIMEOUT:
                    raise unanswered(seconds)
        try:
            reply = read_reply(turn, connection.receive())
        except UnknownScript:  # the server forgot its scripts meanwhile
            reply = connection.run(turn)
        return Heard(self.rung(rung), reply)

    def call(self, seconds: float) -> bytes:
        """The command that waits so long, in wire form."""
        return command((self._start, pack((f"{seconds:.3f}",))))

    def rung(self, reply: list[bytes] | None) -> str:
        """The queue whose token that took; "" when nobody rang."""
        return "" if reply is None else self._queues[reply[0]]

    @property
    def queues(self) -> Iterable[str]:
        """All queues and patterns whose doorbells these are."""
        return self._queues.values()
