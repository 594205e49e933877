"""Where the server is: a Redis URL taken apart."""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

DEFAULT_PORT = 6379
DEFAULT_SENTINEL_PORT = 26379
SCHEMES = ("redis", "rediss", "unix")
# Scheme, credentials, hosts, path, options. By hand, since urlsplit refuses a list of hosts with an IPv6 address in it.
_SENTINEL_URL = re.compile(
    r"(rediss?)\+sentinel://(?:([^/?#]*)@)?([^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.IGNORECASE | re.DOTALL
)
_OPTION = re.compile(r"([?&](?!db=)[^=&#]*=)[^&#]*")  # some clients take a password=


@dataclass(frozen=True, slots=True)
class Sentinels:
    """Who is asked for the primary of `service`: host and port of each sentinel, and what they want to hear first."""

    service: str
    places: tuple[tuple[str, int], ...]
    username: str = ""
    password: str = field(default="", repr=False)


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
    through_sentinels = _SENTINEL_URL.fullmatch(url)
    return _behind_sentinels(url, through_sentinels) if through_sentinels else _of_one_server(url)


def _of_one_server(url: str) -> Address:
    parts = _split(url)
    if parts.scheme not in SCHEMES:
        raise ValueError(
            f"{redact(url)!r} is not a Redis URL: it must begin with redis://, rediss:// or unix://, "
            "or with redis+sentinel:// to have sentinels asked for the primary"
        )
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


def _behind_sentinels(url: str, found: re.Match[str]) -> Address:
    scheme, credentials, hosts, path, options = (part or "" for part in found.groups())
    query = parse_qs(options, keep_blank_values=True)
    if unknown := sorted(query.keys() - {"db", "sentinel_username", "sentinel_password"}):
        raise ValueError(
            f"{redact(url)!r} has the option {unknown[0]!r}: beside db there are sentinel_username and "
            "sentinel_password, for sentinels that want them (authorities for TLS: set SSL_CERT_FILE)"
        )
    service, _, database = path.strip("/").partition("/")
    if not service:
        raise ValueError(
            f"{redact(url)!r} names no service: which primary the sentinels are asked for follows their places, "
            "as in redis+sentinel://one:26379,two:26379,three:26379/mymaster/0"
        )
    username, _, password = credentials.partition(":")
    try:
        places = tuple(_sentinel_place(member) for member in hosts.split(","))
        number = int(query.get("db", [""])[0] or database or 0)
    except ValueError:
        raise ValueError(
            f"{redact(url)!r} is not a Redis URL: a sentinel in it has no host or no port, or its database is not a "
            "number (IPv6 as in [::1]:26379)"
        ) from None
    return Address(
        host="",
        port=0,
        tls=scheme.lower() == "rediss",
        database=number,
        username=unquote(username),
        password=unquote(password),
        sentinels=Sentinels(
            unquote(service),
            places,
            query.get("sentinel_username", [""])[0],
            query.get("sentinel_password", [""])[0],
        ),
    )


def _sentinel_place(member: str) -> tuple[str, int]:
    parts = urlsplit(f"//{member}")
    if not parts.hostname:
        raise ValueError(member)
    return parts.hostname, parts.port or DEFAULT_SENTINEL_PORT


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
