"""Where the server is: a Redis URL taken apart."""

from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

DEFAULT_PORT = 6379
SCHEMES = ("redis", "rediss", "unix")


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


def parse_address(url: str) -> Address:
    """Take `redis://`, `rediss://` or `unix://` URLs apart; the database is the path, or `?db=N`.

    Raises ValueError saying what is wrong, with the password redacted.
    """
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise ValueError(f"{redact(url)!r} is not a Redis URL: it must begin with redis://, rediss:// or unix://")
    query = parse_qs(parts.query)
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


def redact(url: str) -> str:
    """The URL with its password, if any, replaced by `***`, fit for logs and messages.

    Of a URL too broken to be taken apart, all between `://` and the last `@` is replaced.
    """
    before, at, host = url.rpartition("@")
    scheme, mark, credentials = before.partition("://")
    if not at or credentials.startswith("/"):
        return url
    user, colon, _ = credentials.partition(":")
    if not mark or any(sign in credentials for sign in "/?#"):
        return f"{scheme if mark else ''}{mark}***@{host}"
    return f"{scheme}://{user}:***@{host}" if colon else url
