"""The connection of an asyncio client, and the commands that are sent over it. A lost connection is replaced."""

import asyncio
import time
from collections.abc import Iterable
from typing import Any, Final, TypeVar

from rota.client.command_replies import Exchange, Redirections, Reply, ReplyReader, not_sent_again, redirected
from rota.client.waits import CLOSED
from rota.errors import Unavailable
from rota.protocol.scripts import ScriptCall
from rota.server.aio_connection import AioStream, too_slow, within
from rota.server.endpoint import AioEndpoint
from rota.server.server_errors import REASON_NETWORK, REASON_SILENT, ConnectionLost, ServerError, UnknownScript
from rota.server.session import Confirmation

T = TypeVar("T")

_NAME: Final = "rota:client"
_CLOSED: Final = ConnectionLost(CLOSED, REASON_NETWORK)


class AioPool:
    """One connection for one event loop, either to a server or to the primary that sentinels name."""

    def __init__(self, endpoint: AioEndpoint, timeout_seconds: float) -> None:
        """Store the settings. The first use connects."""
        self._opener = endpoint.opener(_NAME)
        self._has_failover = endpoint.has_failover
        self._seconds = timeout_seconds
        self._reader = ReplyReader(endpoint.shown, endpoint.credentials_in)
        self._stream: AioStream | None = None
        self._opening: asyncio.Task[AioStream | ServerError] | None = None
        self._tried: Confirmation | None = None
        self._is_closed = False

    async def ready(self, exchange: Exchange[Any]) -> AioStream:
        """Return the connection for this exchange, and connect first if necessary. This sends no command of the
        exchange.

        Raises Unavailable if there is no connection, or if the exchange needs a confirmation that this server cannot
        give.
        """
        stream = self._stream
        if stream is not None and stream.is_to_renew:
            stream.retire()
        if stream is None or not stream.takes_more:
            stream = await self._connected(exchange.deadline)
        if exchange.confirmation is not None and exchange.confirmation != self._tried:
            await self._try(stream, exchange.confirmation, exchange.deadline)
        return stream

    async def exchange(self, stream: AioStream, exchange: Exchange[T]) -> list[Reply[T]]:
        """Send all commands, and return one reply for each. Commands that a cluster redirects are sent again until the
        deadline. The first command is sent before this yields to the event loop."""
        sent, replies = await self._exchange_once(stream, exchange)
        redirections = Redirections(exchange, has_failover=self._has_failover)
        while (seconds := redirections.pause_before(replies)) is not None:
            await asyncio.sleep(seconds)
            again = redirected(replies)
            rest = exchange._replace(commands=[sent[n] for n in again])
            repeated: list[Reply[T]]
            try:
                _, repeated = await self._exchange_once(await self.ready(rest), rest)
            except Unavailable as error:  # in most cases no node has the slot yet
                repeated = [not_sent_again(error, is_over=self._is_closed)] * len(again)
            for n, reply in zip(again, repeated, strict=True):
                replies[n] = reply
        return replies

    async def _exchange_once(
        self, stream: AioStream, exchange: Exchange[T]
    ) -> tuple[list[ScriptCall[T]], list[Reply[T]]]:
        """Send all commands, and return them with one reply for each."""
        seconds = exchange.deadline - time.monotonic()
        give_up_at = time.monotonic() + seconds * exchange.share
        confirmation = None if exchange.confirmation is None else exchange.confirmation.within(seconds)
        tail = [] if confirmation is None else [confirmation.waiting]
        commands: list[ScriptCall[T]] = []

        def packed() -> Iterable[bytes]:
            for command in exchange.commands:
                commands.append(command)
                yield command.by_sha()
            yield from tail

        raw = await _replies(stream, packed(), give_up_at)
        unknown = [n for n, each in enumerate(raw) if isinstance(each, UnknownScript)]
        if unknown:
            repeated = await _replies(stream, [*[commands[n].by_text() for n in unknown], *tail], give_up_at)
            for n, each in zip([*unknown, *[-1 for _ in tail]], repeated, strict=True):
                raw[n] = each
        confirmed = raw.pop() if tail else None
        replies = [self._reader.read(command, each) for command, each in zip(commands, raw, strict=True)]
        if confirmation is not None:
            replies = self._reader.confirmed(replies, confirmation, confirmed)
        return commands, replies

    def close(self) -> None:
        """Close the connection permanently. This may be called more than once.

        A call that is still in progress then opens no other connection, because nothing would close it.
        """
        self._is_closed = True
        if self._opening is not None:
            self._opening.cancel()
        if self._stream is not None:
            self._stream.close(CLOSED)
            self._stream = None

    async def _connected(self, deadline: float) -> AioStream:
        found = _CLOSED if self._is_closed else await self._opened(deadline)
        if isinstance(found, ServerError):
            raise self._reader.no_connection(found) from found
        return found

    async def _opened(self, deadline: float) -> AioStream | ServerError:
        if self._opening is None:
            self._opening = asyncio.create_task(self._open(), name="rota-client-opening")
        opening = self._opening
        # If this call gives up waiting, the connection is still opened for the other calls.
        await asyncio.wait([opening], timeout=deadline - time.monotonic())
        if not opening.done():
            return too_slow(self._seconds)
        return _CLOSED if opening.cancelled() else opening.result()

    async def _open(self) -> AioStream | ServerError:
        try:
            self._stream = stream = await within(self._seconds, self._opener.open())
        except ServerError as error:
            return error
        finally:
            self._opening = None
        stream.close_with_loop()
        return stream

    async def _try(self, stream: AioStream, confirmation: Confirmation, deadline: float) -> None:
        [reply] = await _replies(stream, [confirmation.trial], deadline)
        if isinstance(reply, ConnectionLost):
            raise self._reader.no_connection(reply) from reply
        if isinstance(reply, ServerError):
            raise self._reader.never_confirms(confirmation, reply) from reply
        self._tried = confirmation


async def _replies(stream: AioStream, commands: Iterable[bytes], deadline: float) -> list[Any]:
    """Send the commands, and return a reply or an error for each."""
    replies: list[asyncio.Future[Any]] = []
    coming = iter(commands)
    try:
        async with asyncio.timeout(deadline - time.monotonic()):
            for data in coming:
                # Nothing is awaited between taking a command from `coming` and this line, so each command taken has a
                # future.
                replies.append(stream.send(data))
                await stream.drain()
                if len(replies) > 1:
                    await asyncio.sleep(0)  # Packing many commands takes time, so let other tasks run in between.
            await asyncio.wait(replies)
    except TimeoutError:
        pass  # Each missing reply is replaced by an error below.
    finally:
        for reply in replies:
            reply.cancel()  # Has no effect on futures that already have a reply.
    if any(reply.cancelled() for reply in replies):
        stream.retire()
    silent = ConnectionLost("no reply came in time", REASON_SILENT)
    found = [silent if reply.cancelled() else reply.result() for reply in replies]
    return found + [silent for _ in coming]
