"""`rota run --burst`: the fleet drains as soon as nothing is ready, running or overdue in the queues it takes."""

import asyncio
from collections.abc import Callable
from typing import Final

from rota.protocol.store import Store
from rota.server.aio_connection import AioConnection
from rota.server.server_errors import ServerError
from rota_supervisor.master.planning.targets import Stage
from rota_supervisor.master.records import Records

_LOOK_SECONDS: Final = 0.1


async def leave_when_idle(records: Records, connection: AioConnection, store: Store, leave: Callable[[], None]) -> None:
    """Look until there is nothing left to do, and call `leave` then."""
    while records.stop.stage is Stage.RUNNING:
        if await _is_idle(records, connection, store):
            leave()
            return
        await asyncio.sleep(_LOOK_SECONDS)


async def _is_idle(records: Records, connection: AioConnection, store: Store) -> bool:
    ours = records.taken_queues
    try:
        overview = await connection.run(store.overview(ours))
    except ServerError:  # told by the watch; nothing is known, so nobody leaves
        return False
    started = records.reloading.rollout.current is not None
    return started and not any(
        queue.ready or queue.inflight or queue.overdue for queue in overview.queues if queue.queue in ours
    )
