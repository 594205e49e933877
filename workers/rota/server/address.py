"""Where the server is: a Redis URL taken apart."""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

DEFAULT_PORT = 6379
SCHEMES = ("redis", "rediss", "unix")
_OPTION = re.compile(r"([?&](?!db=)[^=&#]*=)[^&#]*")  # some clients take a password=


@dataclass(frozen=True, slots=True)
class Address:
    """A server's address and credentials. The password stays out of its repr."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    path: str = ""
    tls: bool = False
    database: int = 0
    username: str = ""
    password: str = field(default="", repr=False)


@lru_cache(maxsize=8)  # so that workers share what their zygote parsed, for 0.2 MB less of each one's own
def parse_address(url: str) -> Address:
    """Take `redis://`, `rediss://` or `unix://` URLs apart; the database is the path, or `?db=N`.

    There are no other options: what a URL says must hold for each connection of a fleet and its producers.
    Raises ValueError saying what is wrong, with the password redacted.
    """
    parts = _split(url)
    if parts.scheme not in SCHEMES:
        raise ValueError(f"{redact(url)!r} is not a Redis URL: it must begin with redis://, rediss:// or unix://")
    query = parse_qs(parts.query, keep_blank_values=True)
    if unknown := sorted(query.keys() - {"db"}):
        raise ValueError(
            f"{redact(url)!r} has the option {unknown[0]!r}: a URL may say host, port, user, password and database, "
            "as in redis://user:password@host:6379/0, and no more (authorities for TLS: set SSL_CERT_FILE)"
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


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # its text may quote the password
        raise ValueError(f"{redact(url)!r} is not a Redis URL: its host is none (IPv6 as in [::1])") from None


def redact(url: str) -> str:
    """The URL with its password and the values of its options replaced by `***`, fit for logs and messages.

    Of a URL too broken to be taken apart, all between `://` and the last `@` is replaced.
    """
    return _OPTION.sub(r"\1***", _without_password(url))


def _without_password(url: str) -> str:
    before, at, host = url.rpartition("@")
    scheme, mark, credentials = before.partition("://")
    if not at or credentials.startswith("/"):
        return url
    user, colon, _ = credentials.partition(":")
    if not mark or any(sign in credentials for sign in "/?#"):
        return f"{scheme if mark else ''}{mark}***@{host}"
    return f"{scheme}://{user}:***@{host}" if colon else url
