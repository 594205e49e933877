"""Connections over asyncio that a client borrows from a redis-py or valkey-py client: as `rota.server.borrowed`."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from rota.server.aio_connection import AioStreams, StreamOpener
from rota.server.borrowed import MOVED, Borrowing, borrow, error_of_source
from rota.server.server_errors import ConnectionLost, Refused
from rota.server.session import PushMessage


class BorrowedStreams(AioStreams):
    """The streams of a pool's connection, which goes back to the pool when it is closed."""

    def __init__(self, lent: Any, give_back: Callable[[], None], moved: Callable[[], None]) -> None:
        """`moved` is called when the server answers that another one has the namespace's slot."""
        super().__init__(lent._reader, lent._writer)  # noqa: SLF001 - as its own subclasses use them, see `borrowed`
        self._give_back = give_back
        self._moved = moved
        self._is_closed = False

    async def receive(self) -> Any:
        """Wait for the next reply, leaving out what nobody asked for. Raises ServerError or OSError."""
        try:
            while isinstance(reply := await super().receive(), PushMessage):
                pass
        except Refused as error:
            if error.reason != MOVED:
                raise
            self._moved()
            raise ConnectionLost(str(error), MOVED) from None
        return reply

    def close(self) -> None:
        """Close the connection at once and return it to its pool, which connects it again. May be repeated."""
        if not self._is_closed:
            self._is_closed = True
            super().close()
            self._give_back()


class AioRedisEndpoint(Borrowing):
    """The server of a pool of asyncio, or the primary of a cluster that has the namespace's slot."""

    def __init__(self, source: Any, key: str) -> None:
        """`key` is one of the namespace. Raises TypeError or ValueError for an object that cannot be used."""
        super().__init__(source, key, is_of_asyncio=True)
        self._returning: set[asyncio.Task[None]] = set()

    def opener(self, name: str) -> StreamOpener:  # noqa: ARG002 - connections have the name that the application gives
        """Return the opener of connections."""
        return self

    def patience(self, seconds: float) -> float:
        """Return how long borrowing a connection may take."""
        return seconds

    async def settle(self) -> None:
        """Wait until the pool has all connections that were closed."""
        while self._returning:
            await asyncio.wait(self._returning)

    async def open(self) -> AioStreams:
        """Borrow a connection. Raises ServerError."""
        try:
            lent, release = await (self._of_cluster() if self.is_cluster else self._of_pool())
        except Exception as error:
            self.is_stale = True
            raise error_of_source(error) from error
        return BorrowedStreams(lent, lambda: self._take_back(lent, release), self.moved)

    async def _of_pool(self) -> "tuple[Any, Callable[[Any], Any]]":
        return await borrow(self.pool), self.pool.release

    async def _of_cluster(self) -> "tuple[Any, Callable[[Any], Any]]":
        cluster = await self.source.initialize()
        if self.is_stale:
            await cluster.nodes_manager.initialize()
            self.is_stale = False
        node = cluster.get_node_from_key(self.key)
        lent, release = node.acquire_connection(), getattr(node, "release", node._free.append)  # noqa: SLF001 - before 6
        try:
            if lent._reader is not None and lent._reader.at_eof():  # noqa: SLF001 - as in BorrowedStreams
                await lent.disconnect(nowait=True)
            await lent.connect()
        except BaseException:
            release(lent)
            raise
        return lent, release

    def _take_back(self, lent: Any, release: Callable[[Any], Any]) -> None:
        task = asyncio.get_running_loop().create_task(_give_back(lent, release), name="rota-client-returning")
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)


async def _give_back(lent: Any, release: "Callable[[Any], Awaitable[None] | None]") -> None:
    await lent.disconnect(nowait=True)
    released = release(lent)
    if inspect.isawaitable(released):
        await released
