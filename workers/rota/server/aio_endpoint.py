"""Endpoints of an application's asyncio client, as those of `rota.server.endpoint` for one that blocks."""

from typing import Protocol

from rota.redaction import redact
from rota.server.address import NO_TLS_FILES, TlsFiles, parse_address
from rota.server.aio_streams import Opener, StreamOpener


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
    def has_failover(self) -> bool:
        """Whether another server may take over."""
        ...

    def opener(self, name: str) -> StreamOpener:
        """Return the opener of connections of this name for commands that write."""
        ...


class AioUrlEndpoint:
    """A server at a URL, or the primary that its sentinels name."""

    def __init__(self, url: str, tls_files: TlsFiles = NO_TLS_FILES) -> None:
        """Raises ValueError for a URL that is not valid, TypeError for an object of another type."""
        self._address = parse_address(url, tls_files)
        self.shown = redact(url)
        self.place = self._address.place
        self.has_failover = self._address.sentinels is not None

    def opener(self, name: str) -> StreamOpener:
        """Return the opener of connections of this name."""
        return Opener(self._address, name)
