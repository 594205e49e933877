"""What is noticed of Redis beside the calls of the fleet."""

import asyncio
import math
from collections.abc import Callable
from typing import Final

from rota.protocol.store import Store
from rota.server.aio_connection import AioConnection, ConnectionWatch
from rota.server.server_errors import Refused, ServerError
from rota_supervisor.master.core.events import Event, EvictionPolicySeen, RedisAnswered, RedisFailed
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.effects.slots import now_seconds
from rota_supervisor.server_check import eviction_policy_of, parse_info

_IDLE_LOOK_SECONDS: Final = 0.1


class RedisWatch:
    """What the master's connection tells. `silent_since`: since when (CLOCK_BOOTTIME seconds) it owes an answer that no
    later one has made up for; `inf` when it owes none."""

    def __init__(self, state: MasterState, happened: Callable[[Event], None]) -> None:
        self._state = state
        self._happened = happened
        self.silent_since = math.inf

    @property
    def watch(self) -> ConnectionWatch:
        """For the connection."""
        return ConnectionWatch(self._answered, self._failed, self._asked)

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


async def watch_eviction(state: MasterState, connection: AioConnection, happened: Callable[[Event], None]) -> None:
    """Ask the server for its policy as often as leases are renewed, for ever, and tell when it is another."""
    known = ""
    while True:
        await asyncio.sleep(state.config.lease.renew_seconds)
        try:
            info = await connection.execute("INFO", "memory")
        except ServerError:  # told by the connection's watch
            continue
        policy = eviction_policy_of(parse_info(info.decode(errors="replace")))
        if policy != known:
            known = policy
            happened(EvictionPolicySeen(policy))


async def leave_when_idle(
    state: MasterState, connection: AioConnection, store: Store, leave: Callable[[], None]
) -> None:
    """`rota run --burst`: call `leave` as soon as nothing is ready, running or overdue in the queues that it takes."""
    while not state.stop.is_asked:
        if await _is_idle(state, connection, store):
            leave()
            return
        await asyncio.sleep(_IDLE_LOOK_SECONDS)


async def _is_idle(state: MasterState, connection: AioConnection, store: Store) -> bool:
    ours = state.taken_queues
    try:
        overview = await connection.run(store.overview(ours))
    except ServerError:  # told by the watch; nothing is known, so nobody leaves
        return False
    started = state.rollout.current is not None
    return started and not any(
        queue.ready or queue.inflight or queue.overdue for queue in overview.queues if queue.queue in ours
    )
