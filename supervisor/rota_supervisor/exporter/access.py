"""Who may come in, and how: the bearer token and the certificate of `[http]`.

They are read from their files, and again when these change: certificates are renewed while a fleet runs.
"""

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rota.telemetry import events, log
from rota.telemetry.once_a_minute import OnceAMinute
from rota_supervisor.exporter.settings import ExporterSettings

if TYPE_CHECKING:
    import ssl

_BEARER: Final = "bearer"
_rarely: Final = OnceAMinute()


class Door:
    """What `[http]` says of both. Raises OSError, as `ssl.SSLError`, where its files cannot be used."""

    def __init__(self, settings: ExporterSettings) -> None:
        self._token = Token(settings.token_file) if settings.token_file else None
        self._tls = Tls(settings.tls_cert, settings.tls_key) if settings.tls_cert else None

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Whether a request with these headers, whose names are in lower case, bears the token, if there is one."""
        return self._token is None or self._token.admits(headers)

    def wrap(self, accepted: socket.socket) -> socket.socket:
        """Put TLS on a connection that was accepted, if there is a certificate."""
        return accepted if self._tls is None else self._tls.wrap(accepted)


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
    """The token in a file. One that cannot be read any more stays as it was."""

    def __init__(self, file: str) -> None:
        from hmac import compare_digest  # noqa: PLC0415 - 1 MB, for those who have a token

        self._are_equal = compare_digest
        self._file = file
        self._files = _Files(file)
        self._token = b""
        self._look()

    def admits(self, headers: Mapping[str, str]) -> bool:
        """As the door's."""
        try:
            self._look()
        except OSError as error:
            _tell(self._file, error)
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == _BEARER and self._are_equal(given.strip().encode(), self._token)

    def _look(self) -> None:
        if self._files.have_changed():
            self._token = Path(self._file).read_bytes().strip() or self._token


class Tls:
    """The certificate, with its chain, and the key."""

    def __init__(self, certificate: str, key: str) -> None:
        self._of_files = certificate, key
        self._files = _Files(certificate, key)
        self._files.have_changed()
        self._context = self._load()

    def wrap(self, plain: socket.socket) -> socket.socket:
        """As the door's. The handshake comes with what is read first."""
        try:
            if self._files.have_changed():
                self._context = self._load()
        except OSError as error:  # half of a new pair is there: the next connection finds both
            _tell(self._of_files[0], error)
        plain.setblocking(False)
        return self._context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)

    def _load(self) -> "ssl.SSLContext":
        import ssl  # noqa: PLC0415 - 3 MB, for those who have TLS

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self._of_files)
        return context


def _tell(file: str, error: OSError) -> None:
    if _rarely.is_due(file):
        log.logger().error(events.CONFIG_WARNING, path=file, warning=f"it stays as it was: {error}")
