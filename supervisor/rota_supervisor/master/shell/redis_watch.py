"""The master's connection to Redis, and what is noticed of the server beside the calls of the fleet."""

import asyncio
import math
from collections.abc import Callable
from typing import Final

from rota.protocol.store import Store
from rota.server.address import parse_address
from rota.server.aio_connection import AioConnection, ConnectionWatch
from rota.server.server_errors import Refused, ServerError
from rota_supervisor.master.core.events import Event, EvictionPolicySeen, RedisAnswered, RedisFailed
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.effects.slots import now_seconds
from rota_supervisor.server_check import eviction_policy_of, parse_info

_IDLE_LOOK_SECONDS: Final = 0.1
_MOST_PATIENCE_SECONDS: Final = 5.0  # with an answer


class RedisWatch:
    """`silent_since`: since when (CLOCK_BOOTTIME seconds) the server owes an answer that no later one has made up for;
    `inf` when it owes none."""

    def __init__(self, state: MasterState, happened: Callable[[Event], None]) -> None:
        self._state = state
        self._happened = happened
        self.silent_since = math.inf
        self.store = Store(state.config.namespace)
        watch = ConnectionWatch(self._answered, self._failed, self._asked)
        address = parse_address(state.config.redis_url)
        self.connection = AioConnection(address, "rota:master", self._patience, watch)

    def _patience(self) -> float:
        # One lost answer must not cost a lease, which a reload may have made shorter.
        return min(_MOST_PATIENCE_SECONDS, self._state.config.lease.seconds / 4)

    def _asked(self) -> None:
        self.silent_since = min(self.silent_since, now_seconds())

    def _answered(self) -> None:
        self.silent_since = math.inf
        if not self._state.redis_up:
            self._happened(RedisAnswered())

    def _failed(self, error: ServerError) -> None:
        is_away = not isinstance(error, Refused)
        if not is_away:  # it answers, though not as we like
            self.silent_since = math.inf
        self._happened(RedisFailed(error.reason, str(error), is_away))

    # In these two a ServerError needs no more: the watch above has reported it.

    async def watch_eviction(self) -> None:
        """Ask the server for its policy as often as leases are renewed, for ever, and report when it is another."""
        known = ""
        while True:
            await asyncio.sleep(self._state.config.lease.renew_seconds)
            try:
                info = await self.connection.execute("INFO", "memory")
            except ServerError:
                continue
            policy = eviction_policy_of(parse_info(info.decode(errors="replace")))
            if policy != known:
                known = policy
                self._happened(EvictionPolicySeen(policy))

    async def leave_when_idle(self, leave: Callable[[], None]) -> None:
        """For `--burst`: call `leave` as soon as nothing is ready, running or overdue in the queues that are taken."""
        while not self._state.stop.is_asked:
            if await self._is_idle():
                leave()
                return
            await asyncio.sleep(_IDLE_LOOK_SECONDS)

    async def _is_idle(self) -> bool:
        ours = self._state.taken_queues
        try:
            overview = await self.connection.run(self.store.overview(ours))
        except ServerError:  # nothing is known, so nobody leaves
            return False
        started = self._state.rollout.current is not None
        return started and not any(
            queue.ready or queue.inflight or queue.overdue for queue in overview.queues if queue.queue in ours
        )
