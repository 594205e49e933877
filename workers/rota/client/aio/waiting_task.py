"""The waits for tasks in an event loop. A single asyncio task with one blocking connection serves all waits of a
client."""

import asyncio
import math
import time
from contextlib import suppress
from typing import Final

from rota.client.aio.pool import AioPool
from rota.client.command_replies import Denied, Exchange, unavailable
from rota.client.waits import CLOSED, OpenWait, WaitQuery, WaitResult, WaitRounds, limit_of, results_in
from rota.durations import Duration
from rota.errors import Unavailable
from rota.protocol.store import BATCH, Store
from rota.protocol.wire import text_of
from rota.server.aio_connection import AioConnection
from rota.server.connection import GRACE_SECONDS, PARK_SECONDS
from rota.server.endpoint import AioEndpoint
from rota.server.server_errors import ServerError

_NAME: Final = "rota:waiting"


class AioWait(OpenWait):
    """The wait of one call, which sleeps on an asyncio event."""

    __slots__ = ("_woken",)

    def __init__(self, query: WaitQuery) -> None:
        super().__init__(query)
        self._woken = asyncio.Event()

    def _wake(self) -> None:
        self._woken.set()

    async def sleep(self, seconds: float | None) -> bool:
        """Sleep until the awaited event occurs. Return False if `seconds` passed first."""
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass
        finally:
            self.is_over = True
        return self._woken.is_set()


class AioWaiting:
    """All waits of one client in one event loop, and the asyncio task that serves them."""

    def __init__(self, endpoint: AioEndpoint, seconds: float, store: Store, pool: AioPool) -> None:
        self._seconds = seconds
        self._pool = pool
        self._rounds = WaitRounds(store)
        self._bell = asyncio.Event()
        self._connection = AioConnection(endpoint.opener(_NAME), lambda: PARK_SECONDS + GRACE_SECONDS)
        self._parked: asyncio.Task[list[str] | Unavailable] | None = None
        self._serving: asyncio.Task[None] | None = None

    async def wait(self, query: WaitQuery, timeout: Duration | None) -> WaitResult:
        """Wait until the event that the query describes has happened.

        Raises WaitTimeout if that takes longer than the timeout, and Unavailable if the client is closed or the server
        does not permit this user to wait.
        """
        limit = limit_of(timeout)
        wait = AioWait(query)
        self._rounds.open.add(wait)
        self._bell.set()
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve(), name="rota-waiting")
        in_time = await wait.sleep(limit)
        return wait.outcome(limit, self._rounds.trouble, in_time=in_time)

    def close(self) -> None:
        """End all waits. This may be called more than once."""
        # Called here too, because a task that is cancelled before it first runs does not run its `finally`.
        self._rounds.open.give_up(CLOSED)
        if self._serving is not None:
            self._serving.cancel()

    async def settle(self) -> None:
        """Wait until the asyncio task that serves the waits has closed its connection."""
        if self._serving is not None:
            await asyncio.wait([self._serving])

    async def _serve(self) -> None:
        try:
            while self._rounds.has_more:
                if time.monotonic() >= self._rounds.retry_at:
                    await self._converse()
                await self._rest()
        finally:  # Even if a bug in Rota ended this task, no call may wait forever.
            self._rounds.open.give_up(CLOSED)
            await self._leave()

    async def _converse(self) -> None:
        try:
            if self._parked is not None and self._parked.done():
                received = self._parked.result()
                self._parked = None
                if isinstance(received, Unavailable):
                    raise received
                self._rounds.receive(received)
            while queries := self._rounds.next_queries():
                exchange = Exchange([self._rounds.query_command(queries)], None, time.monotonic() + self._seconds)
                [reply] = await self._pool.exchange(await self._pool.ready(exchange), exchange)
                self._rounds.resolve(queries, results_in(reply))
            if self._rounds.open and self._parked is None:
                self._parked = asyncio.create_task(self._listen(), name="rota-waiting-parked")
                self._parked.add_done_callback(lambda _: self._bell.set())
        except Denied as error:  # This is not a network error, so another attempt would fail too.
            self._rounds.open.give_up(str(error))
        except Unavailable as error:
            await self._leave()
            self._rounds.fail(str(error))

    async def _listen(self) -> list[str] | Unavailable:
        """Return the messages that scripts have pushed, or the error if the connection failed.

        The error is returned, not raised, because asyncio logs exceptions that are never retrieved from a task.
        """
        try:
            first = await self._connection.execute("BLPOP", self._rounds.key, PARK_SECONDS)
            rest = await self._connection.execute("LPOP", self._rounds.key, BATCH) if first else None
        except ServerError as error:
            return unavailable(str(error), error)
        return [text_of(message) for message in ([first[1]] if first else []) + (rest or [])]

    async def _rest(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._rounds.seconds_to_rest(math.inf)):
                await self._bell.wait()
        self._bell.clear()

    async def _leave(self) -> None:
        if self._parked is not None:
            self._parked.cancel()
            self._parked = None
        await self._connection.close()
