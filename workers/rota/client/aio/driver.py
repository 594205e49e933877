"""The connections of an asyncio client in one event loop, and the calls that the client makes over them.

Code that prepares many calls yields to the event loop from time to time.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from rota.client.aio.pool import AioPool
from rota.client.aio.waiting_task import AioWaiting
from rota.client.blocking.driver import Driver
from rota.client.command_replies import ClientWarnings, Exchange, Uncertain, known_names, value_of
from rota.client.enqueue_options import AWAITED_NOW, Interceptor, OnCommit, check_nothing_waits, interception
from rota.client.sender import Cut, Sending, WithId, intercepted
from rota.client.waits import GroupQuery, WaitQuery, WaitResult
from rota.durations import Duration
from rota.errors import RotaError, Unavailable
from rota.protocol.groups import Room
from rota.protocol.scripts import ScriptCall, Steps
from rota.protocol.store import Store
from rota.server.address import ServerAccess
from rota.server.endpoint import AioEndpoint, RedisClient, aio_endpoint_of

if TYPE_CHECKING:
    from rota.client.aio.consumer import AsyncConsumer
    from rota.client.consumer import ConsumerOptions

W = TypeVar("W")
H = TypeVar("H", bound=WithId)
T = TypeVar("T")

# The code that error messages suggest for repeating an enqueue that may have been accepted.
REPEATS: Final = "await arepeat()"
MAP_AT_ONCE: Final = AWAITED_NOW
_WANTS_BLOCKING: Final = (
    "a consumer needs blocking connections: create it with rota.Client(redis=...).consumer(...), or create this "
    "AsyncClient with a redis_url"
)
_AT_ONCE: Final = 100  # number of calls to prepare before other coroutines may run; this takes a few milliseconds


class Connections:
    """The connections of one client in the running event loop."""

    def __init__(self, endpoint: AioEndpoint, seconds: float, store: Store) -> None:
        self.loop = asyncio.get_running_loop()
        self.pid = os.getpid()
        self._endpoint = endpoint
        self.pool = AioPool(endpoint, seconds)
        # A separate connection for confirmations, because WAIT blocks all later commands of its connection.
        self.confirming = AioPool(endpoint, seconds)
        self.waiting = AioWaiting(endpoint, seconds, store, self.pool)

    @property
    def is_over(self) -> bool:
        """Whether the connections are obsolete, because their loop is closed or they belong to the parent process of a
        fork."""
        return self.pid != os.getpid() or self.loop.is_closed()

    async def settle(self) -> None:
        """Wait until all closed connections have ended."""
        await self.waiting.settle()
        await self._endpoint.settle()

    def close(self) -> None:
        """Close all connections. Call this in the event loop of the connections."""
        self.waiting.close()
        self.pool.close()
        self.confirming.close()


class AsyncDriver:
    """The connections of an asyncio client to one namespace of one server: the counterpart of `Driver`.

    The connections belong to the event loop that uses them first. Another loop can use them only after the first loop
    is closed.
    """

    def __init__(
        self,
        redis_url: str | None,
        access: ServerAccess,
        redis: RedisClient | None,
        namespace: str,
        timeout_seconds: float,
    ) -> None:
        """Check the arguments. The first call connects. Raises the errors of `Driver`."""
        self.namespace = namespace
        self.timeout_seconds = timeout_seconds
        self.store = Store(namespace)
        self.endpoint = aio_endpoint_of(redis_url, access, redis, self.store.keys.tasks)
        self.warnings = ClientWarnings(namespace, self.endpoint.place)
        self._url = redis_url
        self._access = access
        self._connections: Connections | None = None

    async def aclose(self) -> None:
        """Close the connections, and wait until they have ended. This may be called more than once. The next request
        connects again."""
        there = self._connections
        self.close()
        if there is not None and there.loop is asyncio.get_running_loop():
            await asyncio.sleep(0)  # Let the loop run the callback that closes the connections.
            await there.settle()

    def close(self) -> None:
        """Close the connections, from any thread. This may be called more than once. The next request connects
        again."""
        there = self._connections
        self._connections = None
        if there is not None and not there.is_over:
            there.loop.call_soon_threadsafe(there.close)

    def interceptor(self) -> Interceptor | None:
        """Return the stand-in that replies in place of the server, or None outside of tests."""
        return interception.interceptor

    async def run(self, command: ScriptCall[T], ids: Sequence[str] = (), deadline: float | None = None) -> T:
        """Send a command and return its reply. If the outcome is not known, the error names the tasks in `ids`."""
        if (interceptor := interception.interceptor) is not None:
            return interceptor.run(self.namespace, command)
        until = time.monotonic() + self.timeout_seconds if deadline is None else deadline
        exchange = Exchange([command], None, until)
        pool = self._here().pool
        stream = await pool.ready(exchange)
        try:
            [reply] = await pool.exchange(stream, exchange)
        except asyncio.CancelledError as cancelled:
            raise cancelled from Uncertain("the await was cancelled, but the server may have carried out the call", ids)
        return value_of(reply, ids)

    async def follow(self, steps: Steps[T], /) -> T:
        """Send the commands that the generator yields, all within one timeout, and return the generator's result."""
        deadline = time.monotonic() + self.timeout_seconds
        reply: Any = None
        try:
            while True:
                reply = await self.run(steps.send(reply), (), deadline)
        except StopIteration as end:
            value: T = end.value
            return value

    async def send(self, sending: Sending[H]) -> list[H]:
        """Send an enqueue, and return its handles."""
        if (interceptor := interception.interceptor) is not None:
            return intercepted(interceptor, self.namespace, sending)
        return await self.drive(sending)

    async def drive(self, sending: Sending[H]) -> list[H]:
        """Send an enqueue, then warn about task names that no running fleet declares.

        Only names that this process does not declare are checked, and each name is checked only once.
        """
        handles = await self._driven(sending)
        if self.warnings.to_check:
            names = self.warnings.names_to_check()
            with suppress(RotaError):
                self.warnings.check_names(names, await self.follow(known_names(self.store)))
        return handles

    async def _driven(self, sending: Sending[H]) -> list[H]:
        here = self._here()
        try:
            exchange = next(sending)
            while True:
                pool = here.pool if exchange.confirmation is None else here.confirming
                stream = None
                try:
                    stream = await pool.ready(exchange)
                    # `exchange` sends the first command before it yields to the event loop. So if it is cancelled, the
                    # enqueue was sent.
                    replies = await pool.exchange(stream, exchange)
                except Unavailable as error:
                    exchange = sending.throw(error)
                except asyncio.CancelledError as cancelled:
                    raise cancelled from _cut(sending, is_sent=stream is not None)
                else:
                    exchange = sending.send(replies)
        except StopIteration as end:
            handles: list[H] = end.value
            return handles

    def doubt(self, why: str, ids: Sequence[str], again: Callable[[], Sending[Any]]) -> Uncertain:
        """Return the error for an enqueue of the tasks `ids` that may have been accepted. The error's method `arepeat`
        carries out the steps that `again` returns."""
        return Uncertain(why, ids, aagain=lambda: self._driven(again()))

    async def wait(self, query: WaitQuery, timeout: Duration | None) -> WaitResult:
        """Wait until the event that the query describes has happened.

        Raises WaitTimeout if that takes longer than the timeout, and Unavailable if the client is closed or the server
        does not permit this user to wait.
        """
        return await self._here().waiting.wait(query, timeout)

    async def wait_for_group(self, query: GroupQuery, timeout: Duration | None) -> Room:
        """Wait until the group has ended, or until at most `query.most_left` of its members have not ended."""
        if (interceptor := interception.interceptor) is not None:
            return interceptor.wait_for_group(self.namespace, query)
        found = await self.wait(query, timeout)
        assert isinstance(found, Room), "a query about a group is answered with its room"
        return found

    def consumer(self, options: "ConsumerOptions") -> "AsyncConsumer":
        """Return a consumer with these checked options. Raises TypeError if the client has no URL."""
        from rota.client.aio.consumer import AsyncConsumer  # noqa: PLC0415 - as in Driver

        if self._url is None:
            raise TypeError(_WANTS_BLOCKING)
        return AsyncConsumer(Driver(self._url, self._access, None, self.namespace, self.timeout_seconds), options)

    def _here(self) -> Connections:
        there = self._connections
        if there is None or there.is_over:
            there = self._connections = Connections(self.endpoint, self.timeout_seconds, self.store)
        elif there.loop is not asyncio.get_running_loop():
            raise RuntimeError("this AsyncClient is in use in another event loop: create one client for each loop")
        return there


class AsyncLifecycle:
    """The part of a client that closes its connections."""

    is_async: Final = True
    _driver: AsyncDriver

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. Waiting calls raise Unavailable.

        This may be called more than once. The next request connects again.
        """
        await self._driver.aclose()

    def close_soon(self) -> None:
        """Request that the connections be closed, and return before they are. This may be called from any thread."""
        self._driver.close()


async def in_chunks(things: Iterable[T]) -> list[T]:
    """Return all items of the iterable as one list. Other coroutines may run after each hundred items, because making
    an item can mean checking a call."""
    made: list[T] = []
    for thing in things:
        made.append(thing)
        if len(made) % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return made


async def once_committed(
    on_commit: OnCommit, waiting: W, send: Callable[[W], Awaitable[list[H]]], expected: Callable[[], list[H]]
) -> list[H]:
    """Send the enqueue `waiting` now, and return its handles. A blocking client sends it when `on_commit` calls back,
    but an awaited enqueue cannot wait for a commit.

    Raises RuntimeError, and sends nothing, if `on_commit` does not call back at once, because a transaction is open.
    """
    del expected  # Only a blocking client returns handles before the commit.
    check_nothing_waits(on_commit)
    return await send(waiting)


def _cut(sending: Sending[Any], *, is_sent: bool) -> Unavailable | Uncertain | None:
    """End an enqueue whose await was cancelled, and return the error that becomes the cause of the CancelledError:
    Uncertain if the enqueue was sent, and Unavailable if it was not."""
    try:
        sending.throw(Cut(is_sent=is_sent))
    except (Unavailable, Uncertain) as cause:
        return cause
    return None
