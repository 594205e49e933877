"""Connections that a client borrows from the application's redis-py or valkey-py client.

The application's connection pool connects, authenticates, finds the primary through its sentinels, and takes each
connection back after use. Rota itself reads and writes on the connection's socket. So Rota controls every round trip
and every deadline. Retries by redis-py can only repeat an attempt to connect, never a command. This module does not
import redis-py, but recognises its objects by their methods.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from rota.server.aio_connection import AioStream, StreamOpener
from rota.server.connection import Connection, ConnectionOptions
from rota.server.server_errors import REASON_NETWORK, ConnectionLost, Refused, ServerError
from rota.server.session import PushMessage, Session

_DENIED: Final = frozenset({"AuthenticationError", "AuthorizationError", "NoPermissionError"})
_GIVE: Final = "pass a Redis client, a ConnectionPool, a RedisCluster, or the result of Sentinel.master_for"


class Borrowing:
    """The base class of the blocking and the asyncio endpoint for an application's Redis client. It checks the client
    and stores it, with the names that messages use for its server."""

    def __init__(self, source: Any, key: str, *, is_of_asyncio: bool) -> None:
        """Check that the application's object can be used. `key` is any key of the namespace. Raises TypeError or
        ValueError if it cannot."""
        check_source(source)
        if is_asyncio(source) != is_of_asyncio:
            raise TypeError(_OF_ASYNCIO_WANTED if is_of_asyncio else _BLOCKING_WANTED)
        self.source = source
        self.key = key
        self.credentials_in = "the client given as redis"
        self.is_cluster = _is_cluster(source)
        self.pool: Any = None if self.is_cluster else getattr(source, "connection_pool", source)
        self.is_stale = False  # whether to look up again which cluster node has the hash slot of the namespace
        self.place = self._place()
        self.shown = f"the application's Redis client ({self.place})"
        self.has_failover = self.is_cluster or hasattr(self.pool, "service_name")

    def moved(self) -> None:
        """Record that the hash slot is on another node of the cluster. The next connection then looks up again which
        node has it."""
        self.is_stale = True

    def _place(self) -> str:
        if self.is_cluster:
            return "a cluster"
        if hasattr(self.pool, "service_name"):
            return f"the primary of {self.pool.service_name!r}"
        known = self.pool.connection_kwargs
        return str(known.get("path") or f"{known.get('host', 'localhost')}:{known.get('port', 6379)}")


_OF_ASYNCIO_WANTED: Final = (
    "redis: rota.AsyncClient needs a Redis client for asyncio, such as redis.asyncio.Redis, but this one blocks"
)
_BLOCKING_WANTED: Final = (
    "redis: rota.Client needs a Redis client that blocks, such as redis.Redis; use rota.AsyncClient for this one"
)


class RedisEndpoint(Borrowing):
    """Lends blocking connections from a pool. In a cluster, these are connections to the primary that has the hash slot
    of the namespace."""

    # Clients give connections back after each use. Between uses, the pool renews credentials, checks the connections,
    # and lends them to other users.
    keeps: Final = False

    def __init__(self, source: Any, key: str) -> None:
        """Check that the application's object can be used. `key` is any key of the namespace. Raises TypeError or
        ValueError if it cannot."""
        super().__init__(source, key, is_of_asyncio=False)

    def connect(self, options: ConnectionOptions) -> Connection:
        """Borrow a connection. Raises ServerError if there is none."""
        try:
            pool = self._pool_of_slot() if self.is_cluster else self.pool
            lent = borrow(pool)
            try:
                return BorrowedConnection(lent, pool, options, self.moved)
            # The constructor fails, for example, if the connection's class has no socket. If the connection were not
            # given back then, the pool would run out of connections.
            except BaseException:
                pool.release(lent)
                raise
        except Exception as error:
            self.is_stale = True
            raise error_of_source(error) from error

    def _pool_of_slot(self) -> Any:
        cluster = self.source
        if self.is_stale:
            cluster.nodes_manager.initialize()
            self.is_stale = False
        client_of = getattr(cluster, "get_redis_connection", None) or cluster.get_valkey_connection
        return client_of(cluster.get_node_from_key(self.key)).connection_pool


class BorrowedConnection(Connection):
    """A connection that uses the socket of a pool's connection. `give_back` and `close` return the pool's connection to
    its pool."""

    def __init__(self, lent: Any, pool: Any, options: ConnectionOptions, moved: Callable[[], None]) -> None:
        """Take over a lent connection. `moved` is called if another server turns out to have the hash slot."""
        self._options = options
        self._session = Session()
        self._socket = lent._sock  # noqa: SLF001 - it has no public name; redis-py 5 to 8 and valkey-py 6 are tested
        self._seconds_before = self._socket.gettimeout()
        self._socket.setblocking(False)
        self._pool = pool
        # The list holds the lent connection. Two threads may close this object at the same time, but only one of them
        # can pop the connection and return it to the pool.
        self._lent = [lent]
        self._moved = moved

    def try_receive(self) -> Any:
        """Return the next reply if it has arrived, or else NO_REPLY. Raises ServerError if the connection fails or the
        reply is an error."""
        return self._of_commands(super().try_receive)

    def receive(self) -> Any:
        """Wait for the next reply. Raises ServerError if the connection fails or the reply is an error."""
        return self._of_commands(super().receive)

    def give_back(self) -> None:
        """Return the connection to its pool for its next user. All replies must have been read."""
        with suppress(IndexError):
            lent = self._lent.pop()
            self._socket.settimeout(self._seconds_before)
            self._pool.release(lent)

    def close(self, *, everywhere: bool = False) -> None:
        """Close the connection at once and return it to its pool, which connects it again. It is safe to call this
        twice."""
        with suppress(IndexError):
            lent = self._lent.pop()
            super().close(everywhere=everywhere)
            lent.disconnect()
            self._pool.release(lent)

    def _of_commands(self, receive: Callable[[], Any]) -> Any:
        try:
            while isinstance(reply := receive(), PushMessage):  # with RESP3, a server may send push messages
                pass
        except ConnectionLost as error:
            if error.is_redirection:
                self._moved()
            raise
        return reply


def check_source(source: Any) -> None:
    """Check that an object lends connections on which commands can write. Raises TypeError or ValueError if it does
    not, with advice on what to pass instead."""
    pool = getattr(source, "connection_pool", source)
    if callable(getattr(source, "master_for", None)):
        raise TypeError('redis: a Sentinel may know many services: pass the result of sentinel.master_for("mymaster")')
    if not _is_cluster(source) and not callable(getattr(pool, "get_connection", None)):
        raise TypeError(f"redis: expected a Redis client, got {type(source).__name__}: {_GIVE}")
    if getattr(pool, "is_master", True) is False:
        raise ValueError("redis: a replica accepts no tasks: pass the result of Sentinel.master_for, not of slave_for")
    if getattr(pool, "cache", None) is not None:
        raise ValueError(
            "redis: a client with a client-side cache cannot share its connections: pass a client without cache_config"
        )


def _is_cluster(source: Any) -> bool:
    return callable(getattr(source, "get_node_from_key", None))


def is_asyncio(source: Any) -> bool:
    """Whether a client, a pool or a cluster is for asyncio."""
    method = getattr(getattr(source, "connection_pool", source), "disconnect", None) or getattr(
        source, "initialize", None
    )
    return inspect.iscoroutinefunction(method)


def borrow(pool: Any) -> Any:
    """Borrow a connection from a pool with its `get_connection`. In valkey-py, and in redis-py before 5.3,
    `get_connection` requires the name of a command."""
    named = inspect.signature(pool.get_connection).parameters.get("command_name")
    return pool.get_connection() if named is None or named.default is None else pool.get_connection("EVALSHA")


def error_of_source(error: Exception) -> ServerError:
    """Return the error for a connection that could not be borrowed."""
    if isinstance(error, ServerError):
        return error
    text = str(error) or type(error).__name__
    is_denied = _DENIED & {kind.__name__ for kind in type(error).__mro__}
    return Refused(text, "noauth") if is_denied else ConnectionLost(text, REASON_NETWORK)


class BorrowedStream(AioStream):
    """A stream that uses the transport of a pool's connection. The connection returns to its pool when the stream has
    ended."""

    def __init__(self, lent: Any, give_back: Callable[[], None], moved: Callable[[], None]) -> None:
        """Take over a lent connection. `moved` is called if another server turns out to have the hash slot."""
        super().__init__()
        self._give_back = give_back
        self._moved = moved
        transport = lent._writer.transport  # noqa: SLF001 - as its own subclasses use it; see BorrowedConnection
        transport.set_protocol(self)
        self.connection_made(transport)
        if transport.is_closing():
            self.close()

    def _give(self, reply: Any) -> None:
        if isinstance(reply, PushMessage):  # with RESP3, a server may send push messages
            return
        if isinstance(reply, ConnectionLost) and reply.is_redirection:
            self._moved()
        super()._give(reply)

    def _finish(self, why: ServerError) -> None:
        is_first = not self._end.done()
        super()._finish(why)
        if is_first:
            self._give_back()


class AioRedisEndpoint(Borrowing):
    """Lends asyncio connections from a pool. In a cluster, these are connections to the primary that has the hash slot
    of the namespace."""

    def __init__(self, source: Any, key: str) -> None:
        """Check that the application's object can be used. `key` is any key of the namespace. Raises TypeError or
        ValueError if it cannot."""
        super().__init__(source, key, is_of_asyncio=True)
        self._returning: set[asyncio.Task[None]] = set()

    def opener(self, name: str) -> StreamOpener:  # noqa: ARG002 - connections have the name that the application gives
        """Return this object, which is itself the opener. `name` is not used, because the pool names its
        connections."""
        return self

    def patience(self, seconds: float) -> float:
        """Return how many seconds it may take to borrow a connection."""
        return seconds

    async def settle(self) -> None:
        """Wait until all closed connections are back in the pool."""
        while self._returning:
            await asyncio.wait(self._returning)

    async def open(self) -> AioStream:
        """Borrow a connection. Raises ServerError if there is none."""
        try:
            lent, release = await (self._of_cluster() if self.is_cluster else self._of_pool())
        except Exception as error:
            self.is_stale = True
            raise error_of_source(error) from error
        return BorrowedStream(lent, lambda: self._take_back(lent, release), self.moved)

    async def _of_pool(self) -> "tuple[Any, Callable[[Any], Any]]":
        return await borrow(self.pool), self.pool.release

    async def _of_cluster(self) -> "tuple[Any, Callable[[Any], Any]]":
        cluster = await self.source.initialize()
        if self.is_stale:
            await cluster.nodes_manager.initialize()
            self.is_stale = False
        node = cluster.get_node_from_key(self.key)
        lent = node.acquire_connection()
        release = getattr(node, "release", node._free.append)  # noqa: SLF001 - before 6
        try:
            if lent._reader is not None and lent._reader.at_eof():  # noqa: SLF001 - as in BorrowedStream
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
