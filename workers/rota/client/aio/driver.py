"""What an asyncio client sends, asks and waits by, in one event loop. Long work is done in portions, between which
others run."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from rota.client.aio.pool import AioPool
from rota.client.aio.waiting_task import AioWaiting
from rota.client.answers import ClientWarnings, Exchange, Uncertain, known_names, value_of
from rota.client.blocking.driver import Driver
from rota.client.enqueue_options import AWAITED_NOW, Interceptor, OnCommit, check_nothing_waits, interception
from rota.client.sender import Cut, Sending, WithId, intercepted
from rota.client.waits import GroupQuestion, Question, WaitAnswer
from rota.durations import Duration
from rota.errors import RotaError, Unavailable
from rota.protocol.command import Command, Steps
from rota.protocol.groups import Room
from rota.protocol.store import Store
from rota.server.address import ServerAccess
from rota.server.endpoint import AioEndpoint, RedisClient, aio_endpoint_of

if TYPE_CHECKING:
    from rota.client.aio.consumer import AsyncConsumer
    from rota.client.consumer import Terms

W = TypeVar("W")
H = TypeVar("H", bound=WithId)
T = TypeVar("T")

REPEATS: Final = "await arepeat()"  # what callers write to repeat an enqueue that is in doubt
MAP_AT_ONCE: Final = AWAITED_NOW
_WANTS_BLOCKING: Final = (
    "a consumer works by connections that block: make it with rota.Client(redis=...).consumer(...), or give this "
    "AsyncClient a redis_url"
)
_AT_ONCE: Final = 100  # calls that are prepared: some milliseconds


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


class AsyncDriver:
    """The connections of a client to one namespace of one server, as `Driver`. They belong to the event loop that uses
    them first, and to another one only when that was closed."""

    def __init__(
        self,
        redis_url: str | None,
        access: ServerAccess,
        redis: RedisClient | None,
        namespace: str,
        timeout_seconds: float,
    ) -> None:
        """Connects at the first call. Raises as `Driver`."""
        self.namespace = namespace
        self.timeout_seconds = timeout_seconds
        self.store = Store(namespace)
        self.endpoint = aio_endpoint_of(redis_url, access, redis, self.store.keys.tasks)
        self.warned = ClientWarnings(namespace, self.endpoint.place)
        self._url = redis_url
        self._access = access
        self._connections: Connections | None = None

    async def aclose(self) -> None:
        """Close the connections, and wait until they are closed. May be repeated; a later call connects again."""
        there = self._connections
        self.close()
        if there is not None and there.loop is asyncio.get_running_loop():
            await asyncio.sleep(0)  # it closes in this step
            await there.settle()

    def close(self) -> None:
        """Close the connections, from whichever thread. May be repeated; a later call connects again."""
        there, self._connections = self._connections, None
        if there is not None and not there.is_over:
            there.loop.call_soon_threadsafe(there.close)

    def interceptor(self) -> Interceptor | None:
        """Return the stand-in of the server, if there is one."""
        return interception.interceptor

    async def run(self, command: Command[T], ids: Sequence[str] = (), deadline: float | None = None) -> T:
        """Send a command, which is about these tasks, and return its answer."""
        if (interceptor := interception.interceptor) is not None:
            return interceptor.run(self.namespace, command)
        until = time.monotonic() + self.timeout_seconds if deadline is None else deadline
        exchange = Exchange([command], None, until)
        pool = self._here().pool
        line = await pool.ready(exchange)
        try:
            [answer] = await pool.exchange(line, exchange)
        except asyncio.CancelledError as cancelled:
            raise cancelled from Uncertain("the await was cancelled; it may have been carried out", ids)
        return value_of(answer, ids)

    async def follow(self, steps: Steps[T], /) -> T:
        """Send the commands of the steps, all by one deadline, and return what the steps return."""
        deadline = time.monotonic() + self.timeout_seconds
        answer: Any = None
        try:
            while True:
                answer = await self.run(steps.send(answer), (), deadline)
        except StopIteration as end:
            value: T = end.value
            return value

    async def send(self, sending: Sending[H]) -> list[H]:
        """Send an enqueue, and return its handles."""
        if (interceptor := interception.interceptor) is not None:
            return intercepted(interceptor, self.namespace, sending)
        return await self.drive(sending)

    async def drive(self, sending: Sending[H]) -> list[H]:
        """Send an enqueue, and check the names of tasks that this process does not declare, each once."""
        handles = await self._driven(sending)
        if self.warned.to_check:
            names = self.warned.names_to_check()
            with suppress(RotaError):
                self.warned.of_names(names, await self.follow(known_names(self.store)))
        return handles

    async def _driven(self, sending: Sending[H]) -> list[H]:
        here = self._here()
        try:
            exchange = next(sending)
            while True:
                pool, line = here.pool if exchange.confirmation is None else here.confirming, None
                try:
                    line = await pool.ready(exchange)
                    answers = await pool.exchange(line, exchange)  # sends by its first step
                except Unavailable as error:
                    exchange = sending.throw(error)
                except asyncio.CancelledError as cancelled:
                    raise cancelled from _cut(sending, is_sent=line is not None)
                else:
                    exchange = sending.send(answers)
        except StopIteration as end:
            handles: list[H] = end.value
            return handles

    def doubt(self, why: str, ids: Sequence[str], again: Callable[[], Sending[Any]]) -> Uncertain:
        """Return the error of an enqueue that is in doubt."""
        return Uncertain(why, ids, aagain=lambda: self._driven(again()))

    async def wait(self, question: Question, timeout: Duration | None) -> WaitAnswer:
        """Wait until what is asked about has come. Raises WaitTimeout, or Unavailable when the client is closed."""
        return await self._here().waiting.wait(question, timeout)

    async def wait_for_group(self, question: GroupQuestion, timeout: Duration | None) -> Room:
        """Wait for room in a group, or for its end."""
        if (interceptor := interception.interceptor) is not None:
            return interceptor.wait_for_group(self.namespace, question)
        found = await self.wait(question, timeout)
        assert isinstance(found, Room), "it is asked about a group"
        return found

    def consumer(self, terms: "Terms") -> "AsyncConsumer":
        """Return a consumer of these terms, which were checked. Raises TypeError without a URL."""
        from rota.client.aio.consumer import AsyncConsumer  # noqa: PLC0415 - as in Driver

        if self._url is None:
            raise TypeError(_WANTS_BLOCKING)
        return AsyncConsumer(Driver(self._url, self._access, None, self.namespace, self.timeout_seconds), terms)

    def _here(self) -> Connections:
        there = self._connections
        if there is None or there.is_over:
            there = self._connections = Connections(self.endpoint, self.timeout_seconds, self.store)
        elif there.loop is not asyncio.get_running_loop():
            raise RuntimeError("this AsyncClient is in use in another event loop: make one for each loop")
        return there


class AsyncLifecycle:
    """The end of a client, which closes its connections."""

    is_async: Final = True
    _driver: AsyncDriver

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; whoever waits is told so by Unavailable. May be repeated; a later call connects
        anew."""
        await self._driver.aclose()

    def close_soon(self) -> None:
        """Close the connections, from whichever thread."""
        self._driver.close()


async def in_portions(things: Iterable[T]) -> list[T]:
    """Return all of them; the loop goes on after each hundred."""
    made: list[T] = []
    for thing in things:
        made.append(thing)
        if len(made) % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return made


async def once_committed(
    on_commit: OnCommit, waiting: W, send: Callable[[W], Awaitable[list[H]]], expected: Callable[[], list[H]]
) -> list[H]:
    """Send what is awaited now. Raises RuntimeError where `on_commit` would have it wait."""
    del expected  # of a client that blocks: its callers go on before the commit
    check_nothing_waits(on_commit)
    return await send(waiting)


def _cut(sending: Sending[Any], *, is_sent: bool) -> Unavailable | Uncertain | None:
    """Return what an enqueue raises for which nobody waits any more."""
    try:
        sending.throw(Cut(is_sent=is_sent))
    except (Unavailable, Uncertain) as cause:
        return cause
    return None
