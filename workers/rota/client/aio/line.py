"""One connection on which many wait at once: replies come in the order of what was sent.

Who gives up leaves its replies to be thrown away, and disturbs nobody. A line that was silent for longer than somebody
would wait takes nothing more: what comes next goes over a new one, and what waits on this one may still be answered.
"""

import asyncio
from collections import deque
from typing import Any

from rota.client.waits import CLOSED
from rota.server.aio_connection import AioStreams
from rota.server.server_errors import REASON_NETWORK, REASON_PROTOCOL, ConnectionLost, ServerError


class Line:
    """An open connection, read by a task of its own. A reply, or the error in its place, is the result of a future."""

    def __init__(self, streams: AioStreams) -> None:
        self.takes_more = True
        self._streams = streams
        self._loop = asyncio.get_running_loop()
        self._awaited: deque[asyncio.Future[Any]] = deque()
        self._reading = self._loop.create_task(self._read(), name="rota-client")

    @property
    def is_to_renew(self) -> bool:
        """Whether to replace it, since the password that it was made with expires soon."""
        return self._streams.is_to_renew

    def send(self, data: bytes) -> "asyncio.Future[Any]":
        """Send one command; returns what its reply will be the result of."""
        reply: asyncio.Future[Any] = self._loop.create_future()
        if self._reading.done():
            reply.set_result(ConnectionLost("the connection ended", REASON_NETWORK))
            return reply
        self._awaited.append(reply)
        self._streams.write(data)
        return reply

    async def drain(self) -> None:
        """Wait while the server takes nothing. Whoever reads hears of a connection that is lost."""
        try:
            await self._streams.drain()
        except OSError as error:
            self._end(ConnectionLost(str(error), REASON_NETWORK))

    def retire(self) -> None:
        """Take nothing more, and close when nobody waits."""
        self.takes_more = False
        if all(reply.done() for reply in self._awaited):
            self.close()

    def close(self) -> None:
        """Close at once; whoever waits is told so. May be repeated."""
        self._end(ConnectionLost(CLOSED, REASON_NETWORK))
        self._reading.cancel()

    async def _read(self) -> None:
        why: ServerError = ConnectionLost(CLOSED, REASON_NETWORK)
        try:
            while True:
                self._answer(await self._reply())
        except ServerError as error:
            why = error
        except OSError as error:
            why = ConnectionLost(str(error), REASON_NETWORK)
        finally:  # also cancelled, at the end of the loop
            self._end(why)

    async def _reply(self) -> Any:
        try:
            return await self._streams.receive()
        except ServerError as error:
            if not error.is_reply:
                raise
            return error

    def _answer(self, reply: Any) -> None:
        if not self._awaited:
            raise ConnectionLost("the server said something that nobody asked for", REASON_PROTOCOL)
        waits = self._awaited.popleft()
        if not waits.done():
            waits.set_result(reply)
        if isinstance(reply, ConnectionLost):  # it is no primary any more, or cut off from its replicas
            raise reply
        if not self.takes_more:
            self.retire()

    def _end(self, why: ServerError) -> None:
        self.takes_more = False
        self._streams.close()
        lost = ConnectionLost(f"the connection ended: {why}", REASON_NETWORK) if why.is_reply else why
        while self._awaited:
            waits = self._awaited.popleft()
            if not waits.done():
                waits.set_result(lost)
