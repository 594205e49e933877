"""Access control, based on the bearer token, the host names and the certificate of `[http]`.

1. If a token is set, only requests with this token are admitted, because a foreign web page cannot know the token. A
   second token can be set, which admits only read requests. An address that sends several wrong tokens has to wait
   before it may try again.
2. Without a token, paths other than the metrics are served only to this machine, and only under one of its own names.
   If an attacker makes the name of a web page resolve to this machine (DNS rebinding), the browser sends that name as
   `Host`, so the request is refused. Numeric addresses cannot be redirected in this way, so all of them are admitted.
3. Without a token, other machines may read only the metrics, but under any name, because a scraper may use a name that
   this node does not know.
4. An action sent by a page of another origin is refused, even if the request has the token.

The token and the certificate are read from their files, and are read again when the files change, because certificates
are renewed while a fleet runs.
"""

import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rota.display_text import printable
from rota.telemetry import log, log_events
from rota.telemetry.log import OnceAMinute
from rota_supervisor.exporter.exporter_settings import ExporterSettings
from rota_supervisor.exporter.http_connection import HttpRequest, HttpResponse, text_response

if TYPE_CHECKING:
    import ssl

METRICS: Final = "/metrics"
_ACTION: Final = "POST"  # the method of actions, and of no other request
_BEARER: Final = "bearer"
_LOCALHOST: Final = "localhost"
_MAX_SHOWN: Final = 80  # the maximum length of a host name in a response
_NO_TOKEN: Final = text_response(
    "send the token of [http] token_file: Authorization: Bearer TOKEN\n",
    ("WWW-Authenticate", "Bearer"),
    status=HTTPStatus.UNAUTHORIZED,
)
_OTHER_MACHINE: Final = text_response(
    "without a token, other machines may read only /metrics, /livez and /readyz: set [http] token_file, and send the "
    "token (Authorization: Bearer TOKEN), or send the request from the machine of the fleet\n",
    status=HTTPStatus.FORBIDDEN,
)
_ONLY_READS: Final = text_response(
    "the token of [http] read_token_file permits only reading: to perform actions, send the token of [http] "
    "token_file\n",
    status=HTTPStatus.FORBIDDEN,
)
_OTHER_ORIGIN: Final = text_response(
    "the page that sent this action is not from this node: open the status page of the node. A program must not send "
    "an Origin header\n",
    status=HTTPStatus.FORBIDDEN,
)
_TOO_MANY: Final = text_response(
    "too many wrong tokens from this address: wait a second\n",
    ("Retry-After", "1"),
    status=HTTPStatus.TOO_MANY_REQUESTS,
)
_FAILURES_AT_ONCE: Final = 10  # how many wrong tokens an address may send at once; one more is permitted each second
_MOST_ADDRESSES: Final = 1000
_rarely: Final = OnceAMinute()


class AccessRules:
    """The access rules of `[http]`. Raises OSError, for example `ssl.SSLError`, if the files cannot be used."""

    def __init__(self, settings: ExporterSettings) -> None:
        self._token = BearerToken(settings.token_file) if settings.token_file else None
        self._read_token = BearerToken(settings.read_token_file) if settings.read_token_file else None
        self._wrong_tokens = WrongTokens()
        self._tls = Tls(settings.tls_cert, settings.tls_key) if settings.tls_cert else None
        self._hosts = Hosts((os.uname().nodename, *settings.allowed_hosts))

    def refusal_of(self, request: HttpRequest, *, is_public: bool = False) -> HttpResponse | None:
        """Return the response that refuses the request, or None if the request is admitted.

        `is_public`: whether the path is a file of the status page, which needs no token.
        """
        if self._token is not None:
            return None if is_public else self._refusal_by_token(self._token, request)
        if not request.is_local:
            return None if request.path == METRICS else _OTHER_MACHINE
        host = request.headers.get("host", "")
        return None if self._hosts.include(host) else _unknown_host(host)

    def _refusal_by_token(self, token: "BearerToken", request: HttpRequest) -> HttpResponse | None:
        is_action = request.method == _ACTION
        if is_action and is_cross_origin(request.headers):
            return _OTHER_ORIGIN
        if self._wrong_tokens.are_too_many(request.peer):
            return _TOO_MANY
        if token.admits(request.headers):
            return None
        if self._read_token is not None and self._read_token.admits(request.headers):
            return _ONLY_READS if is_action else None
        if "authorization" in request.headers:
            self._wrong_tokens.add(request.peer)
        return _NO_TOKEN

    def wrap(self, accepted: socket.socket) -> socket.socket:
        """Return the accepted connection, wrapped in TLS if there is a certificate."""
        return accepted if self._tls is None else self._tls.wrap(accepted)


def is_cross_origin(headers: Mapping[str, str]) -> bool:
    """Whether a browser sent the request on behalf of a page of another origin. Header names must be in lower case.

    The algorithm is that of `http.CrossOriginProtection` in Go's standard library.
    """
    if site := headers.get("sec-fetch-site"):
        return site not in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2] != headers.get("host", "")


class WrongTokens:
    """A limit on wrong tokens, enforced by a token bucket for each address. An address may send a few wrong tokens at
    once, and then one a second.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._free_at: dict[str, float] = {}  # when each address may again send `_FAILURES_AT_ONCE` wrong tokens

    def are_too_many(self, address: str) -> bool:
        """Whether this address has to wait before its next token is compared."""
        return self._free_at.get(address, 0.0) > self._clock() + _FAILURES_AT_ONCE - 1

    def add(self, address: str) -> None:
        """Count a wrong token from this address."""
        now = self._clock()
        self._free_at[address] = max(self._free_at.pop(address, 0.0), now) + 1
        if len(self._free_at) > _MOST_ADDRESSES:
            del self._free_at[next(iter(self._free_at))]


class Hosts:
    """The names under which clients may reach this node."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {_LOCALHOST, *(name.lower().rstrip(".") for name in names if name)}

    def include(self, host: str) -> bool:
        """Whether a `Host` header names this node, with or without a port.

        Valid names are the names of this node, `localhost` with its subdomains, and numeric addresses. An empty header
        is valid as well, because only a program can omit it: every browser sends a `Host`.
        """
        name = _without_port(host).lower().rstrip(".")
        return not host or name in self._names or name.endswith(f".{_LOCALHOST}") or _is_address(name)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0].removeprefix("[")
    return host.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in name else socket.AF_INET, name)
    except (OSError, ValueError):  # A name with a NUL or a non-ASCII character raises ValueError.
        return False
    return True


def _unknown_host(host: str) -> HttpResponse:
    shown = printable(_without_port(host)[:_MAX_SHOWN])
    text = f"this node is not known as {shown!r}: if that is a name of the node, add it to [http] allowed_hosts\n"
    return text_response(text, status=HTTPStatus.FORBIDDEN)


class _Files:
    """A set of files that are read again when one of them has changed."""

    def __init__(self, *paths: str) -> None:
        self._paths = paths
        self._seen: tuple[tuple[int, int], ...] = ()

    def have_changed(self) -> bool:
        """Whether the files have changed since the last check. Raises OSError."""
        found = tuple((stat.st_mtime_ns, stat.st_ino) for stat in map(os.stat, self._paths))
        has_changed = found != self._seen
        self._seen = found
        return has_changed


class BearerToken:
    """The token in a file. If the file becomes unreadable, the last token stays valid."""

    def __init__(self, file: str) -> None:
        from hmac import compare_digest  # noqa: PLC0415 - 1 MB, which only fleets with a token need

        self._are_equal = compare_digest
        self._file = file
        self._files = _Files(file)
        self._token = b""
        self._read_if_changed()

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Whether these request headers contain the token. Header names must be in lower case."""
        try:
            self._read_if_changed()
        except OSError as error:
            _log_failure(self._file, error)
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == _BEARER and self._are_equal(given.strip().encode(), self._token)

    def _read_if_changed(self) -> None:
        if self._files.have_changed():
            self._token = Path(self._file).read_bytes().strip() or self._token


class Tls:
    """The certificate with its chain, and its key, from their files."""

    def __init__(self, certificate: str, key: str) -> None:
        self._of_files = certificate, key
        self._files = _Files(certificate, key)
        self._files.have_changed()
        self._context = self._load()

    def wrap(self, plain: socket.socket) -> socket.socket:
        """Wrap the connection in TLS. The handshake happens at the first read."""
        try:
            if self._files.have_changed():
                self._context = self._load()
        except OSError as error:  # Perhaps only one of two new files exists yet. A later connection reads both.
            _log_failure(self._of_files[0], error)
        plain.setblocking(False)
        return self._context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)

    def _load(self) -> "ssl.SSLContext":
        import ssl  # noqa: PLC0415 - 3 MB, which only fleets with TLS need

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self._of_files)
        return context


def _log_failure(file: str, error: OSError) -> None:
    if _rarely.is_due(file):
        log.logger().error(
            log_events.CONFIG_WARNING, path=file, warning=f"the previous content of the file stays in use: {error}"
        )
