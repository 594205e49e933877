"""Listening at the doorbells: BLPOP, waited for in poll() so that a stop signal is seen at once.

The turn that follows a ring is sent along behind the BLPOP. The server does not look at it before the BLPOP has ended,
and then answers both at once: a task is in hand one round trip earlier, of which each begins with waking the server's
process and ends with waking ours.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from rota.child.child_life import Waiter, Woken
from rota.child.slots import boottime_ns
from rota.durations import NANOSECONDS
from rota.protocol.command import Command
from rota.protocol.entry import MICROSECONDS
from rota.protocol.keys import Keys
from rota.protocol.tiers import Domain
from rota.protocol.turns import TurnReply
from rota.protocol.wire import command, pack
from rota.server.connection import EARLY_SECONDS, GRACE_SECONDS, NUDGE, PARK_SECONDS, Connection, unanswered
from rota.server.server_errors import REASON_SILENT, ConnectionLost, UnknownScript, read_reply
from rota.server.session import NO_REPLY

_UNHEARD: Final = (
    f"for {PARK_SECONDS + GRACE_SECONDS:g} s this worker has heard neither of the server nor that its lease was renewed"
)
_SHORTEST_SECONDS: Final = 0.02  # below this a round trip for the park would take too much of the time


class Heard(NamedTuple):
    """What a wait at the doorbells ended with: the `queue` whose token was taken, "" when nobody rang, and the answer
    of the turn."""

    queue: str
    reply: TurnReply


class Bell:
    """The doorbells of a worker's queues, those of higher tiers first.

    `park_seconds`: how long to listen at most. `heard_ns` returns when the last call that the server is known to have
    answered was sent (CLOCK_BOOTTIME), whoever sent it: a long wait ends early when there has been none for a while.
    """

    def __init__(self, keys: Keys, tiers: Iterable[Domain], park_seconds: float, heard_ns: Callable[[], int]) -> None:
        queues = [share.name for domain in tiers for share in domain.queues]
        self._queues = {keys.doorbell(queue).encode(): queue for queue in queues}
        self._start = pack(("BLPOP", *self._queues))
        self.longest_seconds = park_seconds
        self._heard_ns = heard_ns

    def patience(self, wait_us: int) -> float:
        """Return for how many seconds to listen when a rate limit or a condition opens in `wait_us` (0: none does); 0.0
        when that is too soon."""
        seconds = min(self.longest_seconds, wait_us / MICROSECONDS) if wait_us else self.longest_seconds
        return seconds if seconds >= _SHORTEST_SECONDS else 0.0

    def listen(self, connection: Connection, waiter: Waiter, seconds: float, turn: Command[TurnReply]) -> Heard | None:
        """Wait until one rings or the time is over, and take the turn; None when a signal came first.

        The turn is made at that time: the server is nudged then, which alone would be up to 0.1 s late.
        After None or an error answers may still come: close the connection. Raises ServerError, Orphaned.
        """
        parked_ns, has_nudged = boottime_ns(), False
        connection.send(self.call(seconds - EARLY_SECONDS) + turn.by_sha())
        while (rung := connection.try_receive()) is NO_REPLY:
            now_ns = boottime_ns()
            left = seconds - (now_ns - parked_ns) / NANOSECONDS
            if left <= 0 and not has_nudged:
                connection.send(NUDGE)
                has_nudged = True
            unheard = self._unheard_seconds(parked_ns, now_ns)
            if left + GRACE_SECONDS <= 0:
                raise unanswered(seconds)
            if unheard <= 0:
                raise ConnectionLost(_UNHEARD, REASON_SILENT)
            most = min(left + GRACE_SECONDS if has_nudged else left, unheard)
            if waiter.until_woken(connection.fileno(), most) is Woken.SIGNAL:
                return None
        try:
            reply = read_reply(turn, connection.receive())
        except UnknownScript:  # the server forgot its scripts meanwhile
            reply = connection.run(turn)
        return Heard(self.rung(rung), reply)

    def _unheard_seconds(self, parked_ns: int, now_ns: int) -> float:
        """In how many seconds to give the server up, though the wait is not over, if nobody hears of it by then."""
        heard_ns = max(parked_ns, self._heard_ns())
        return PARK_SECONDS - (now_ns - heard_ns) / NANOSECONDS + GRACE_SECONDS

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
