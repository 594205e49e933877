"""Whether the server began to drop keys: refused at the start, it is an alarm when it is configured so later."""

import asyncio
from collections.abc import Callable

from rota.server.aio_connection import AioConnection
from rota.server.server_errors import ServerError
from rota.telemetry import events, log
from rota_supervisor.config.model import Config
from rota_supervisor.master.shown.gauges import Gauges
from rota_supervisor.server_check import SAFE_POLICY, eviction_policy_of, parse_info


class EvictionWatch:
    """Asks for the server's policy as often as leases are renewed; told once when it turns bad and once when good."""

    def __init__(self, connection: AioConnection, gauges: Gauges) -> None:
        self._connection = connection
        self._gauges = gauges
        self._policy = SAFE_POLICY
        gauges.show_eviction(on=False)

    async def watch(self, config: Callable[[], Config]) -> None:
        """Look now and then, for ever."""
        while True:
            await asyncio.sleep(config().lease.renew_seconds)
            try:
                info = await self._connection.execute("INFO", "memory")
            except ServerError:  # told by the connection's watch
                continue
            self._see(eviction_policy_of(parse_info(info.decode(errors="replace"))))

    def _see(self, policy: str) -> None:
        if policy == self._policy:
            return
        self._policy = policy
        is_safe = policy == SAFE_POLICY
        self._gauges.show_eviction(on=not is_safe)
        if is_safe:
            log.logger().info(events.REDIS_KEEPS_KEYS, policy=policy)
        else:
            log.logger().error(events.REDIS_EVICTS_KEYS, policy=policy, wanted=SAFE_POLICY)
