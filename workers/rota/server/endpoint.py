"""Endpoints of an application's client: a server named by a URL, or the one that a redis-py or valkey-py client of
the application talks to (`rota.server.borrowed`)."""

from typing import Final, Protocol

from rota.redaction import redact
from rota.server.address import NO_TLS_FILES, TlsFiles, parse_address
from rota.server.connection import Connection, ConnectionOptions, connect


class Endpoint(Protocol):
    """An opener of the blocking connections of a client."""

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

    @property
    def keeps(self) -> bool:
        """Whether a client keeps connections between calls; if not, it gives them back."""
        ...

    def connect(self, options: ConnectionOptions) -> Connection:
        """Return a connection for commands that write. Raises ServerError."""
        ...


class UrlEndpoint:
    """A server at a URL, or the primary that its sentinels name."""

    keeps: Final = True

    def __init__(self, url: str, tls_files: TlsFiles = NO_TLS_FILES) -> None:
        """Raises ValueError for a URL that is not valid, TypeError for an object of another type."""
        self._address = parse_address(url, tls_files)
        self.shown = redact(url)
        self.place = self._address.place
        self.has_failover = self._address.sentinels is not None

    def connect(self, options: ConnectionOptions) -> Connection:
        """Return a new connection. Raises ServerError."""
        return connect(self._address, options)
