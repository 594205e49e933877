"""The endpoints from which an application's clients get their connections. An endpoint is for a server given by a URL,
or for the server of the application's own redis-py or valkey-py client (`rota.server.borrowed`)."""

from typing import TYPE_CHECKING, Any, Final, Protocol, TypeGuard

from rota.display_text import redact
from rota.server.address import NO_ACCESS, ServerAccess, address_with
from rota.server.connection import Connection, ConnectionOptions, connect
from rota.server.logins import SETTING, URL_SETTING

if TYPE_CHECKING:
    from rota.server.aio_connection import StreamOpener


class HasConnectionPool(Protocol):
    """A client of redis-py or valkey-py, such as `redis.Redis`."""

    @property
    def connection_pool(self) -> Any: ...


class LendsConnections(Protocol):
    """A pool of redis-py or valkey-py, such as `redis.ConnectionPool`."""

    def get_connection(self, *args: Any, **options: Any) -> Any: ...

    def release(self, connection: Any) -> Any: ...


class HasNodes(Protocol):
    """A cluster of redis-py or valkey-py, such as `redis.RedisCluster`."""

    def get_node_from_key(self, key: Any, *args: Any, **options: Any) -> Any: ...


RedisClient = HasConnectionPool | LendsConnections | HasNodes
"""The objects that an application may pass as `redis=`."""


class NamedServer(Protocol):
    """The names that messages use for the server of a client."""

    @property
    def shown(self) -> str:
        """The name of the server in error messages: a URL without secrets, or a phrase."""
        ...

    @property
    def place(self) -> str:
        """The name of the server in warnings, for example `127.0.0.1:6379`."""
        ...

    @property
    def credentials_in(self) -> str:
        """The name in messages for the setting that contains the user and the password, for example `redis_url`."""
        ...

    @property
    def has_failover(self) -> bool:
        """Whether another server may take over in a failover."""
        ...


class Endpoint(NamedServer, Protocol):
    """Opens the blocking connections of a client."""

    @property
    def keeps(self) -> bool:
        """Whether a client keeps its connections between calls. If false, the client gives each connection back after
        use."""
        ...

    def connect(self, options: ConnectionOptions) -> Connection:
        """Return a connection for commands that write. Raises ServerError if that fails."""
        ...


class AioEndpoint(NamedServer, Protocol):
    """Opens the asyncio connections of a client."""

    def opener(self, name: str) -> "StreamOpener":
        """Return an opener of connections for commands that write. The server lists the connections under `name`."""
        ...

    async def settle(self) -> None:
        """Wait until closed connections have been returned to the pool that lent them."""
        ...


class UrlEndpoint:
    """Opens connections to the server at a URL, or to the primary that its sentinels or its cluster name."""

    keeps: Final = True

    def __init__(self, url: str, access: ServerAccess, key: str) -> None:
        """Parse the URL. `key` is any key of the namespace. Raises ValueError if the URL is not valid, and TypeError if
        it is not a text."""
        self._address = address_with(url, access, key)
        self.shown = redact(url)
        self.credentials_in = URL_SETTING if access.logins is None else access.logins.setting
        self.place = self._address.place
        self.has_failover = self._address.has_failover

    def connect(self, options: ConnectionOptions) -> Connection:
        """Return a new connection. Raises ServerError if that fails."""
        return connect(self._address, options)

    def opener(self, name: str) -> "StreamOpener":
        """Return an opener of asyncio connections. The server lists them under `name`."""
        from rota.server.aio_connection import Opener  # noqa: PLC0415 - only users of asyncio load it

        return Opener(self._address, name)

    async def settle(self) -> None:
        """Let the event loop run the last callbacks of closed connections."""
        import asyncio  # noqa: PLC0415 - only users of asyncio load it

        await asyncio.sleep(0)


def endpoint_of(url: str | None, access: ServerAccess, redis: RedisClient | None, key: str) -> Endpoint:
    """Return the endpoint for a URL or for the application's own client. `key` is any key of the namespace. Raises
    TypeError unless exactly one of the two is given, and the same errors as the constructor of the endpoint."""
    if is_url(url, access, redis):
        return UrlEndpoint(url, access, key)
    from rota.server.borrowed import RedisEndpoint  # noqa: PLC0415 - only applications that pass a client load it

    return RedisEndpoint(redis, key)


def aio_endpoint_of(url: str | None, access: ServerAccess, redis: RedisClient | None, key: str) -> AioEndpoint:
    """Return the endpoint for a URL or for the application's own asyncio client, as `endpoint_of` does."""
    if is_url(url, access, redis):
        return UrlEndpoint(url, access, key)
    from rota.server.borrowed import AioRedisEndpoint  # noqa: PLC0415 - only applications that pass a client load it

    return AioRedisEndpoint(redis, key)


def is_url(url: str | None, access: ServerAccess, redis: RedisClient | None) -> TypeGuard[str]:
    """Whether the server is given by a URL. Raises TypeError unless exactly one of a URL and a client is given."""
    if url is None and redis is None:
        raise TypeError("a client needs a server: pass redis_url=, or your own Redis client as redis=")
    if redis is None:
        return True
    if url is not None or access != NO_ACCESS:
        more = "redis_tls_ca, redis_tls_cert or redis_tls_key" if access.logins is None else SETTING
        given = "redis_url" if url is not None else more
        raise TypeError(
            f"pass either redis or {given}: a client passed as redis already has a server, TLS and a password"
        )
    return False
