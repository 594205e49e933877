"""Who may come in, and how: the bearer token and the certificate of `[http]`, read from their files, and read again when
these change, as certificates are renewed and tokens replaced while a fleet runs."""

import hmac
import os
import socket
import ssl
from collections.abc import Mapping
from typing import Final

from rota.telemetry import events, log

_BEARER: Final = "bearer"


class _Files:
    """Files that are read again when one of them has changed."""

    def __init__(self, *paths: str) -> None:
        self._paths = paths
        self._seen: tuple[tuple[int, int], ...] = ()

    def have_changed(self) -> bool:
        """Whether they are others than at the last look. Raises OSError."""
        found = tuple((stat.st_mtime_ns, stat.st_ino) for stat in map(os.stat, self._paths))
        has_changed, self._seen = found != self._seen, found
        return has_changed


class Token:
    """The token in a file. One that cannot be read any more stays as it was. Raises OSError where it never could."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._files = _Files(file)
        self._token = b""
        self._look()

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Whether a request with these headers, whose names are in lower case, bears it."""
        try:
            self._look()
        except OSError as error:
            _tell(self._file, error)
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == _BEARER and hmac.compare_digest(given.strip().encode(), self._token)

    def _look(self) -> None:
        if self._files.have_changed():
            with open(self._file, "rb") as opened:  # noqa: PTH123 - pathlib would be imported for this
                self._token = opened.read().strip() or self._token


class Tls:
    """The certificate, with its chain, and the key. Raises OSError, as `ssl.SSLError`, where they cannot be used."""

    def __init__(self, certificate: str, key: str) -> None:
        self._of_files = certificate, key
        self._files = _Files(certificate, key)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._look()

    def wrap(self, plain: socket.socket) -> socket.socket:
        """Put TLS on a connection that was accepted; its handshake comes with what is read first."""
        try:
            self._look()
        except OSError as error:  # half of a new pair is there: the next connection finds both
            _tell(self._of_files[0], error)
        plain.setblocking(False)
        return self._context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)

    def _look(self) -> None:
        if self._files.have_changed():
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._of_files)
            self._context = context


def _tell(file: str, error: OSError) -> None:
    log.logger().error(events.CONFIG_WARNING, path=file, warning=f"it stays as it was: {error}")
