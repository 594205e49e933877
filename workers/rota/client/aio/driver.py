"""The connections that an asyncio client has open in one event loop, and long work there in portions."""

import asyncio
import os
from collections.abc import Iterable
from typing import Final, TypeVar

from rota.client.aio.pool import AioPool
from rota.client.aio.waiting_task import AioWaiting
from rota.protocol.store import Store
from rota.server.aio_endpoint import AioEndpoint


class Connections:
    """Those of one client, made in the loop that runs."""

    def __init__(self, endpoint: AioEndpoint, seconds: float, store: Store) -> None:
        self.loop = asyncio.get_running_loop()
        self.pid = os.getpid()
        self._endpoint = endpoint
        self.pool = AioPool(endpoint, seconds)
        self.confirming = AioPool(endpoint, seconds)  # WAIT holds up what comes behind it
        self.waiting = AioWaiting(endpoint, seconds, store, self.pool)

    @property
    def is_over(self) -> bool:
        """Whether they are of no use any more: their loop was closed, or they are the parent's of a fork."""
        return self.pid != os.getpid() or self.loop.is_closed()

    async def settle(self) -> None:
        """Wait until all that was closed has ended."""
        await self.waiting.settle()
        await self._endpoint.settle()

    def close(self) -> None:
        """Close all of them, in their own loop."""
        self.waiting.close()
        self.pool.close()
        self.confirming.close()


T = TypeVar("T")

_AT_ONCE: Final = 100  # calls that are prepared: some milliseconds


async def in_portions(things: Iterable[T]) -> list[T]:
    """All of them; the loop goes on after each hundred."""
    made: list[T] = []
    for thing in things:
        made.append(thing)
        if len(made) % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return made
