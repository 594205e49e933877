"""The reader of task events for asyncio. It shares all code that does no I/O with the blocking reader."""

import asyncio
from collections.abc import AsyncIterator
from typing import Self

from rota.client.event_stream import PARK_SECONDS, EventsReading, WantedEvents, no_events
from rota.errors import EventsOff
from rota.protocol.store import Store
from rota.protocol.task_states import TaskEvent
from rota.server.aio_connection import AioConnection
from rota.server.endpoint import AioEndpoint
from rota.server.server_errors import ServerError


class AsyncTaskEvents(AsyncIterator[TaskEvent]):
    """An asynchronous iterator over task events, in their order, for one asyncio task.

    It ends, and raises errors, in the same cases as `TaskEvents`.

    `async with` determines the position to read from at once. Otherwise this happens when the first event is requested.
    """

    def __init__(self, endpoint: AioEndpoint, seconds: float, store: Store, wanted: WantedEvents) -> None:
        """Check the wanted events. Raises ValueError if `after` is not the id of an event."""
        self._reading = EventsReading(store, wanted)
        self._seconds = seconds
        self._connection = AioConnection(endpoint.opener("rota:events"), lambda: seconds + PARK_SECONDS)
        self._has_position = False

    async def __aenter__(self) -> Self:
        await self._take_position()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection. This may be called more than once."""
        await self._connection.close()

    @property
    def position(self) -> str:
        """The position from which another reader can continue: see `TaskEvents.position`."""
        return self._reading.position

    async def __anext__(self) -> TaskEvent:
        await self._take_position()
        deadline = self._reading.deadline()
        while not self._reading.ready:
            await self._fill(deadline)
        return self._reading.take_event()

    async def _take_position(self) -> None:
        if self._has_position:
            return
        try:
            async with asyncio.timeout(self._seconds):
                await self._connection.request(self._reading.trial)
                self._reading.start_at(await self._connection.run(self._reading.first_page()))
        except EventsOff:
            await self.aclose()
            raise
        except (ServerError, TimeoutError) as error:
            await self.aclose()
            raise no_events(error) from error
        self._has_position = True

    async def _fill(self, deadline: float) -> None:
        try:
            page = await self._connection.run(self._reading.next_page())
            self._reading.take(page)
            if self._reading.waits:
                parking = self._reading.park(deadline)
                if parking is None:
                    raise StopAsyncIteration
                await self._connection.request(parking)
        except ServerError as error:
            await asyncio.sleep(self._reading.pause_seconds(no_events(error), deadline))
