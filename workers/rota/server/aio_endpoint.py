"""Endpoints of an application's asyncio client, as those of `rota.server.endpoint` for one that blocks."""

import asyncio
from typing import Protocol

from rota.redaction import redact
from rota.server.address import NO_TLS_FILES, TlsFiles, parse_address
from rota.server.aio_connection import Opener, StreamOpener
from rota.server.endpoint import URL_SETTING, RedisClient, is_url


class AioEndpoint(Protocol):
    """An opener of the asyncio connections of a client."""

    @property
    def shown(self) -> str:
        """The server in error messages: a URL without secrets, or a phrase."""
        ...

    @property
    def place(self) -> str:
        """The server in warnings, for example `127.0.0.1:6379`."""
        ...

    @property
    def credentials_in(self) -> str:
        """The place of user and password, for messages: for example `redis_url`."""
        ...

    @property
    def has_failover(self) -> bool:
        """Whether another server may take over."""
        ...

    def opener(self, name: str) -> StreamOpener:
        """Return the opener of connections of this name for commands that write."""
        ...

    async def settle(self) -> None:
        """Wait until connections that were closed are where they came from."""
        ...


class AioUrlEndpoint:
    """A server at a URL, or the primary that its sentinels name."""

    def __init__(self, url: str, tls_files: TlsFiles = NO_TLS_FILES) -> None:
        """Raises ValueError for a URL that is not valid, TypeError for an object of another type."""
        self._address = parse_address(url, tls_files)
        self.shown = redact(url)
        self.credentials_in = URL_SETTING
        self.place = self._address.place
        self.has_failover = self._address.sentinels is not None

    def opener(self, name: str) -> StreamOpener:
        """Return the opener of connections of this name."""
        return Opener(self._address, name)

    async def settle(self) -> None:
        """Wait for the transports' last callbacks."""
        await asyncio.sleep(0)


def aio_endpoint_of(url: str | None, tls_files: TlsFiles, redis: RedisClient | None, key: str) -> AioEndpoint:
    """Return the endpoint of a URL or of an asyncio client of the application: see `endpoint_of`."""
    if is_url(url, tls_files, redis):
        return AioUrlEndpoint(url, tls_files)
    from rota.server.aio_borrowed import AioRedisEndpoint  # noqa: PLC0415 - for those alone who give a client

    return AioRedisEndpoint(redis, key)
