"""Listening at the doorbells. The worker waits for the reply to a BLPOP with poll(), so that a stop signal takes effect
at once.

The worker sends its next turn directly after the BLPOP. The server processes the turn only when the BLPOP has ended,
and then replies to both at once. This saves a round trip, for which the server and then the worker would have to wake
up once more.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from rota.child.child_process import Waiter, Woken
from rota.child.slots import boottime_ns
from rota.durations import NANOSECONDS
from rota.protocol.entry import MICROSECONDS
from rota.protocol.keys import Keys
from rota.protocol.scripts import ScriptCall
from rota.protocol.tiers import Domain
from rota.protocol.turns import TurnReply
from rota.protocol.wire import command, pack
from rota.server.connection import EARLY_SECONDS, GRACE_SECONDS, NUDGE, PARK_SECONDS, Connection, silence_error
from rota.server.server_errors import REASON_SILENT, ConnectionLost, UnknownScript, read_reply
from rota.server.session import NO_REPLY

_NO_SIGN: Final = f"no reply from the server and no renewal of the lease for {PARK_SECONDS + GRACE_SECONDS:g} s"
_SHORTEST_SECONDS: Final = 0.02  # a shorter wait is not worth the round trip of a BLPOP


class DoorbellWait(NamedTuple):
    """The result of a wait at the doorbells, with the reply to the turn that followed the wait."""

    queue: str  # the queue whose token was taken, "" if no doorbell rang
    reply: TurnReply  # the reply to the turn that was sent with the BLPOP


class Bell:
    """The doorbells of a worker's queues. The doorbells of higher tiers come first.

    `park_seconds` is the longest wait. `last_reply_ns` returns when this process or the master last sent a call that
    got a reply (CLOCK_BOOTTIME). A long wait ends early if neither has had a reply for a while, because the server may
    be gone.
    """

    def __init__(
        self, keys: Keys, tiers: Iterable[Domain], park_seconds: float, last_reply_ns: Callable[[], int]
    ) -> None:
        queues = [share.name for domain in tiers for share in domain.queues]
        self._queues = {keys.doorbell(queue).encode(): queue for queue in queues}
        self._start = pack(("BLPOP", *self._queues))
        self.longest_seconds = park_seconds
        self._last_reply_ns = last_reply_ns

    def wait_seconds(self, wait_us: int) -> float:
        """Return for how many seconds to listen at the doorbells. `wait_us` is the time until a rate limit or a
        condition permits more tasks to start, or 0 if there is none. The wait ends no later than that. Returns 0.0 if
        the wait would be too short for a BLPOP."""
        seconds = min(self.longest_seconds, wait_us / MICROSECONDS) if wait_us else self.longest_seconds
        return seconds if seconds >= _SHORTEST_SECONDS else 0.0

    def listen(
        self, connection: Connection, waiter: Waiter, seconds: float, turn: ScriptCall[TurnReply]
    ) -> DoorbellWait | None:
        """Wait until a doorbell rings or the wait times out, then receive the reply to `turn`, which was sent directly
        after the BLPOP. Returns None if a signal comes first.

        At the timeout, this sends the server an empty command (`NUDGE`), because the server would otherwise end the
        BLPOP up to 0.1 s late. After None or an error, the caller must close the connection, because replies may still
        arrive. Raises ServerError, and Orphaned if the master has died.
        """
        parked_ns = boottime_ns()
        has_nudged = False
        connection.send(self.call(seconds - EARLY_SECONDS) + turn.by_sha())
        while (rung := connection.try_receive()) is NO_REPLY:
            now_ns = boottime_ns()
            left = seconds - (now_ns - parked_ns) / NANOSECONDS
            if left <= 0 and not has_nudged:
                connection.send(NUDGE)
                has_nudged = True
            give_up_seconds = self._seconds_to_give_up(parked_ns, now_ns)
            if left + GRACE_SECONDS <= 0:
                raise silence_error(seconds)
            if give_up_seconds <= 0:
                raise ConnectionLost(_NO_SIGN, REASON_SILENT)
            most = min(left + GRACE_SECONDS if has_nudged else left, give_up_seconds)
            if waiter.until_woken(connection.fileno(), most) is Woken.SIGNAL:
                return None
        try:
            reply = read_reply(turn, connection.receive())
        except UnknownScript:  # the server lost its scripts during the wait
            reply = connection.run(turn)
        return DoorbellWait(self.rung(rung), reply)

    def _seconds_to_give_up(self, parked_ns: int, now_ns: int) -> float:
        """Return how many more seconds to wait for the end of the BLPOP before the connection counts as lost. Whenever
        a call of this process or of the master gets a reply, this time starts again."""
        last_reply_ns = max(parked_ns, self._last_reply_ns())
        return PARK_SECONDS - (now_ns - last_reply_ns) / NANOSECONDS + GRACE_SECONDS

    def call(self, seconds: float) -> bytes:
        """Return the BLPOP command that waits for `seconds`, in wire form."""
        return command((self._start, pack((f"{seconds:.3f}",))))

    def rung(self, reply: list[bytes] | None) -> str:
        """Return the queue whose token the reply contains, or "" if no doorbell rang."""
        return "" if reply is None else self._queues[reply[0]]

    @property
    def queues(self) -> Iterable[str]:
        """The queues and patterns that have these doorbells."""
        return self._queues.values()
