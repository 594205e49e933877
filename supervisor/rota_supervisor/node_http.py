"""A client for the HTTP server of a node's exporter, used by commands and the demo.

It does not use urllib, because urllib would send requests through a proxy that is set in the environment.
"""

import contextlib
import http.client
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

RESPONSE_SECONDS: Final = 5.0
_UNKNOWN_ISSUER: Final = {18, 19, 20}  # OpenSSL's error codes for self-signed certificates and unknown issuers
_EVERY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "*": "127.0.0.1"}  # noqa: S104 - the address to reach a server that listens everywhere


class NodeUnreachable(Exception):
    """Raised if no server replies. The message contains the address and the reason."""


class NodeResponse(NamedTuple):
    """The response of a node: its HTTP status, its text, and the media type of the text."""

    status: int
    text: str
    kind: str = ""

    @property
    def line(self) -> str:
        """The text if it is a single line of plain text, or "" if it is anything else, for example an HTML page."""
        text = self.text.strip()
        return text if self.kind.startswith("text/plain") and "\n" not in text else ""


class NodeHttp(NamedTuple):
    """The address of a node's HTTP server."""

    scheme: str  # http or https
    host: str
    port: int
    token: str = ""  # the bearer token to send, or "" for none
    certificate: str = ""  # the file with the certificate to trust, or "" to use the system's trust store

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def get(self, path: str, seconds: float = RESPONSE_SECONDS) -> NodeResponse:
        """Request a path, and wait up to `seconds` for the reply. Raises NodeUnreachable."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        with contextlib.closing(self._connection(seconds)) as connection:
            try:
                connection.request("GET", path, headers=headers)
                response = connection.getresponse()
                text = response.read().decode(errors="replace")
                return NodeResponse(response.status, text, response.getheader("Content-Type", ""))
            except (OSError, http.client.HTTPException) as error:
                what = getattr(error, "strerror", None) or error
                raise NodeUnreachable(f"no server responds at {self.url}{path}: {what}{_what_to_do(error)}") from None

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        if self.scheme == "http":
            return http.client.HTTPConnection(self.host, self.port, timeout=seconds)
        import ssl  # noqa: PLC0415 - only needed with TLS

        context = ssl.create_default_context(cafile=self.certificate or None)
        if self.certificate:
            context.check_hostname = False
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return http.client.HTTPSConnection(self.host, self.port, timeout=seconds, context=context)


def token_in(file: Path) -> str:
    """Return the bearer token in a file. Raises OSError if the file cannot be read, and ValueError if its contents are
    not a valid token.
    """
    text = file.read_bytes()
    if not text.isascii() or len(text.split()) != 1:
        raise ValueError("expected one word of ASCII characters, the token")
    return text.decode("ascii").strip()


def _what_to_do(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return ": start a fleet there with `rota run`, or see [http]"
    if getattr(error, "verify_code", None) in _UNKNOWN_ISSUER:
        return ": set SSL_CERT_FILE to a file with the certificate of the server or of its authority"
    if getattr(error, "reason", None) == "WRONG_VERSION_NUMBER":
        return ": the server does not use TLS: use http://"
    if isinstance(error, http.client.RemoteDisconnected):
        return ": does the server require https://?"
    return ""


def node_at(listen: str, token: str = "", certificate: str = "") -> NodeHttp:
    """Return the address of a node that has these values of `[http] listen` (`host:port`) and `tls_cert`. Raises
    ValueError if `listen` is not valid.
    """
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    return NodeHttp("https" if certificate else "http", _EVERY_ADDRESS.get(host, host), int(port), token, certificate)


def node_of_url(url: str, token: str = "") -> NodeHttp:
    """Return the address of the node at this URL. Raises ValueError if the URL is not valid."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"expected a URL such as http://host:9477, got {url!r}")
    return NodeHttp(parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80), token)
