"""Where the server is: a Redis URL taken apart."""

from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from rota.redaction import redact
from rota.server.sentinel_address import Sentinels, SentinelUrl, parse_sentinel_url, shown_option

DEFAULT_PORT = 6379
SCHEMES = ("redis", "rediss", "unix")


@dataclass(frozen=True, slots=True)
class Address:
    """A server's address and credentials. The password stays out of its repr.

    With `sentinels`, host and port mean nothing: they are asked for at each connection, see `rota.server.sentinel`.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    path: str = ""
    tls: bool = False
    database: int = 0
    username: str = ""
    password: str = field(default="", repr=False)
    sentinels: Sentinels | None = None

    @property
    def place(self) -> str:
        """Where that is, for messages."""
        if self.sentinels is not None:
            return f"the primary of {self.sentinels.service!r}"
        return self.path or shown_place(self.host, self.port)


def shown_place(host: str, port: int) -> str:
    """Host and port as in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@lru_cache(maxsize=8)  # so that workers share what their zygote parsed, for 0.2 MB less of each one's own
def parse_address(url: str) -> Address:
    """Take `redis://`, `rediss://`, `unix://`, `redis+sentinel://` or `rediss+sentinel://` URLs apart.

    The database is the path (with sentinels, what follows the service in it), or `?db=N`. There are no other options
    but the credentials of sentinels: what a URL says must hold for each connection of a fleet and its producers.
    Raises ValueError saying what is wrong, with the password redacted.
    """
    try:
        found = parse_sentinel_url(url)
    except ValueError as error:
        raise ValueError(f"{redact(url)!r} {error}") from None
    return _of_one_server(url) if found is None else _behind_sentinels(found)


def _of_one_server(url: str) -> Address:
    parts = _split(url)
    if parts.scheme not in SCHEMES:
        raise ValueError(
            f"{redact(url)!r} is not a Redis URL: it must begin with redis://, rediss:// or unix://, "
            "or with redis+sentinel:// to have sentinels asked for the primary"
        )
    if parts.fragment:
        raise ValueError(f"{redact(url)!r} has a '#' in it: write it as %23")
    query = parse_qs(parts.query, keep_blank_values=True)
    if unknown := sorted(query.keys() - {"db"}):
        raise ValueError(
            f"{redact(url)!r} has the option {shown_option(unknown[0])}: a URL may say host, port, user, "
            "password and database, as in redis://user:password@host:6379/0, and no more "
            "(authorities for TLS: set SSL_CERT_FILE)"
        )
    unix = parts.scheme == "unix"
    try:
        port = parts.port or DEFAULT_PORT
        database = int(query.get("db", [""])[0] or ("0" if unix else parts.path.strip("/")) or 0)
    except ValueError:  # its text may quote a password with a slash in it, taken for a port
        raise ValueError(f"{redact(url)!r} is not a Redis URL: its port or its database is not a number") from None
    return Address(
        host=parts.hostname or "127.0.0.1",
        port=port,
        path=unquote(parts.path) if unix else "",
        tls=parts.scheme == "rediss",
        database=database,
        username=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
    )


def _behind_sentinels(found: SentinelUrl) -> Address:
    return Address(
        host="",
        port=0,
        tls=found.tls,
        database=found.database,
        username=found.username,
        password=found.password,
        sentinels=found.sentinels,
    )


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # its text may quote the password
        raise ValueError(f"{redact(url)!r} is not a Redis URL: its host is none (IPv6 as in [::1])") from None
