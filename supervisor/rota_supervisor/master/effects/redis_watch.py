"""The master's connections to Redis, and what is noticed of the server there."""

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Callable
from typing import Final

from rota.protocol.command import load_script
from rota.protocol.store import Store
from rota.protocol.views import Overview
from rota.server.address import address_of
from rota.server.aio_connection import AioConnection, ConnectionWatch, Opener
from rota.server.connection import PARK_SECONDS
from rota.server.server_errors import Refused, ServerError
from rota_supervisor.config import resolution
from rota_supervisor.master.core import master_events as seen
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.effects.slots import now_seconds
from rota_supervisor.server_check import eviction_policy_of, parse_info

# What a master runs.
_SCRIPTS: Final = (
    "announce",
    "conditions",
    "declare",
    "overview",
    "progress",
    "recall",
    "register",
    "remove_schedule",
    "renew",
    "retire",
)
_IDLE_LOOK_SECONDS: Final = 0.1
_MOST_PATIENCE_SECONDS: Final = 5.0  # with an answer
# The quickest of the last six is reported: on a busy machine some take long although the server is quick.
_ROUND_TRIPS: Final = 6


class RedisWatch:
    """The connection, and what is noticed there. `parked` is another, for calls that wait.

    `silent_since`: since when (CLOCK_BOOTTIME seconds) the server owes an answer that no later one has made up for;
    `inf` when it owes none. `works`: set while it answers.
    """

    def __init__(self, state: MasterState, happened: Callable[[seen.Event], None]) -> None:
        self._state = state
        self._happened = happened
        self.silent_since = math.inf
        self._asked_at = math.inf
        self._round_trips: deque[float] = deque(maxlen=_ROUND_TRIPS)
        self.works = asyncio.Event()
        self.store = Store(state.config.namespace)
        for name in _SCRIPTS:  # later there may be no descriptor left, or another version's text in the file
            load_script(name)
        watch = ConnectionWatch(self._answered, self._failed, self._asked)
        address = address_of(resolution.server_settings(state.config))
        self.connection = AioConnection(Opener(address, "rota:master"), self._patience, watch)
        waiting = ConnectionWatch(down=self._parked_failed)
        self.parked = AioConnection(Opener(address, "rota:orders"), lambda: PARK_SECONDS + self._patience(), waiting)
        self._doubted = asyncio.Event()

    def _patience(self) -> float:
        # One lost answer must not cost a lease, which a reload may have made shorter.
        return min(_MOST_PATIENCE_SECONDS, self._state.config.lease.seconds / 4)

    def _asked(self) -> None:
        self._asked_at = now_seconds()
        self.silent_since = min(self.silent_since, self._asked_at)

    def _answered(self) -> None:
        self.silent_since = math.inf
        self.works.set()
        self._round_trips.append(now_seconds() - self._asked_at)
        if not self._state.redis_up:
            self._happened(seen.RedisAnswered())
        self._happened(seen.RoundTripSeen(round(min(self._round_trips), 6)))

    def _failed(self, error: ServerError) -> None:
        is_away = not isinstance(error, Refused)
        if not is_away:  # it answers, though not as we like
            self.silent_since = math.inf
        else:
            self.works.clear()
            self._round_trips.clear()
        self._happened(seen.RedisFailed(error.reason, str(error), is_away, error.is_reply))

    def _parked_failed(self, error: ServerError) -> None:
        if self._state.redis_up and not isinstance(error, Refused):
            self._doubted.set()

    # In these a ServerError needs no more: the watch above has reported it.

    async def ask_when_in_doubt(self) -> None:
        """Ask the server at once when the connection that waits has lost it, for ever: the next renewal may be seconds
        away, and until then it would count as there."""
        while True:
            await self._doubted.wait()
            self._doubted.clear()
            with contextlib.suppress(ServerError):
                await self.connection.execute("TIME")

    async def watch_eviction(self) -> None:
        """Ask the server for its policy once a lease, for ever, and report when it is another."""
        known = ""
        while True:
            await asyncio.sleep(self._state.config.lease.seconds)
            if not self._state.redis_up:  # a server that takes no writes would answer this, and count as back
                continue
            try:
                info = await self.connection.execute("INFO", "memory")
            except ServerError:
                continue
            policy = eviction_policy_of(parse_info(info.decode(errors="replace")))
            if policy != known:
                known = policy
                self._happened(seen.EvictionPolicySeen(policy))

    async def leave_when_idle(self, leave: Callable[[], None]) -> None:
        """For `--burst`: call `leave` as soon as nothing is ready, running or overdue in the queues that are taken."""
        while not self._state.stop.is_asked:
            if await self._is_idle():
                leave()
                return
            await asyncio.sleep(_IDLE_LOOK_SECONDS)

    async def _is_idle(self) -> bool:
        if self._state.rollout.current is None:
            return False
        try:
            portion = await self.connection.run(self.store.overview(()))
            while portion.more and not self._has_work(portion):
                portion = await self.connection.run(self.store.overview((), portion.cursor))
        except ServerError:  # nothing is known, so nobody leaves
            return False
        return not self._has_work(portion)

    def _has_work(self, portion: Overview) -> bool:
        ours, label_of = self._state.taken_queues, self._state.label_of_queue
        return any(
            queue.ready or queue.inflight or queue.overdue for queue in portion.queues if label_of(queue.queue) in ours
        )
