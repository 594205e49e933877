"""A simulated worker. It sends the commands of a real worker, but it shares its process with thousands of others.

The worker waits at its doorbells as `rota.worker.worker_loop` does: it sends a `BLPOP` and the next turn together, and
receives both replies at the end of the wait. The tasks that it claims end at once.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

from rota.child.child_settings import WorkerSettings
from rota.child.slots import boottime_ns
from rota.protocol.outcome import DONE, Settlement
from rota.protocol.store import Store
from rota.protocol.tiers import pack_tiers
from rota.protocol.turns import Turn, TurnReply
from rota.server.address import Address
from rota.server.connection import EARLY_SECONDS, NUDGE, ConnectionOptions, connect
from rota.server.server_errors import read_reply
from rota.server.session import NO_REPLY
from rota.worker.claims import InFlight
from rota.worker.doorbells import Bell
from rota.worker.loop_state import is_passed_on
from rota.worker.redis_times import Anchor, RedisClock
from rota.worker.worker_loop import CLAIM_LIMIT

_REPLIES: Final = 2  # the reply to the BLPOP, and the reply to the turn behind it


@dataclass(slots=True)
class Parked:
    """A wait at the doorbells that is under way."""

    call: Any  # the turn that was sent behind the BLPOP
    sent_ns: int  # CLOCK_BOOTTIME
    nudge: asyncio.TimerHandle  # sends the server an empty command at the timeout
    replies: list[Any] = field(default_factory=list)


class SimulatedWorker:
    """A worker that runs tasks in no time. Its owner must be registered before `start`."""

    def __init__(self, address: Address, store: Store, settings: WorkerSettings, owner: str) -> None:
        self._store = store
        self._tiers = pack_tiers(settings.tiers)
        self._owner = owner
        self._bell = Bell(store.keys, settings.tiers, settings.park_seconds, boottime_ns)
        self._in_flight = InFlight()
        self._clock = RedisClock()
        self._connection = connect(address, ConnectionOptions("rota:worker"))
        self._parked: Parked | None = None

    def start(self) -> None:
        """Make the first turn, and wait at the doorbells from then on. Raises ServerError."""
        asyncio.get_running_loop().add_reader(self._connection.fileno(), self._receive)
        self._work()

    def _work(self) -> None:
        """Make turns until one claims nothing, then wait at the doorbells."""
        while True:
            sent_ns = boottime_ns()
            reply = self._connection.run(self._call(self._in_flight.turn(CLAIM_LIMIT)))
            self._take(reply, self._clock.from_immediate_reply(reply.now_us, sent_ns, boottime_ns()))
            if not reply.claims:
                break
        self._park()

    def _call(self, turn: Turn) -> Any:
        return self._store.turn(self._owner, self._tiers, turn)

    def _take(self, reply: TurnReply, anchor: Anchor) -> None:
        self._in_flight.take_reply(reply, anchor)
        while self._in_flight.waiting:
            self._in_flight.finish(Settlement(self._in_flight.next().entry, DONE))

    def _park(self) -> None:
        seconds = self._bell.wait_seconds(0)
        call = self._call(self._in_flight.turn(CLAIM_LIMIT))
        nudge = asyncio.get_running_loop().call_later(seconds, self._connection.send, NUDGE)
        self._parked = Parked(call, boottime_ns(), nudge)
        self._connection.send(self._bell.call(seconds - EARLY_SECONDS) + call.by_sha())

    def _receive(self) -> None:
        parked = self._parked
        if parked is None:
            return
        while (reply := self._connection.try_receive()) is not NO_REPLY:
            parked.replies.append(reply)
        if len(parked.replies) == _REPLIES:
            self._parked = None
            parked.nudge.cancel()
            self._end_wait(parked)

    def _end_wait(self, parked: Parked) -> None:
        rung = self._bell.rung(parked.replies[0])
        reply = read_reply(parked.call, parked.replies[1])
        now_ns = boottime_ns()
        self._take(reply, self._clock.from_delayed_reply(reply.now_us, parked.sent_ns, now_ns))
        if rung and not is_passed_on(rung, reply, lambda queue: queue):
            self._in_flight.tokens.append(rung)
        if self._in_flight.has_unconfirmed or not self._clock.is_good(now_ns):
            self._work()
        else:
            self._park()
