"""Where the server is: a Redis URL taken apart."""

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from rota.child.child_settings import ServerSettings
from rota.redaction import HIDDEN, redact
from rota.redaction import OPTIONS as OPTIONS_OF_CLIENTS

DEFAULT_PORT: Final = 6379
DEFAULT_SENTINEL_PORT: Final = 26379
SCHEMES: Final = ("redis", "rediss", "unix")
_SENTINEL_OPTIONS: Final = frozenset({"db", "sentinel_username", "sentinel_password"})
# Scheme, credentials, hosts, path, options. By hand, since urlsplit refuses a list of hosts with an IPv6 address in it.
_SENTINEL_URL: Final = re.compile(
    r"(rediss?)\+sentinel://(?:([^/?#]*)@)?([^/?#]*)([^?#]*)(?:\?([^#]*))?(#.*)?", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files of PEM for TLS to the server: the certificates of the authorities to trust ("" for those of the system),
    and the certificate and key to show it, where it asks for one."""

    ca: str = ""
    cert: str = ""
    key: str = ""


NO_TLS_FILES: Final = TlsFiles()


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
    tls_files: TlsFiles = NO_TLS_FILES

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
def parse_address(url: str, tls_files: TlsFiles = NO_TLS_FILES) -> Address:
    """Take `redis://`, `rediss://`, `unix://`, `redis+sentinel://` or `rediss+sentinel://` URLs apart.

    The database is the path (with sentinels, what follows the service in it), or `?db=N`. There are no other options
    but the credentials of sentinels: what a URL says must hold for each connection of a fleet and its producers.
    Raises ValueError saying what is wrong, with the password redacted; TypeError for what is no text.
    """
    if not isinstance(url, str):
        raise TypeError(
            f"the server is named by a URL, as redis://localhost:6379/0, got {type(url).__name__}; "
            "a Redis client of yours is given as redis=..."
        )
    behind_sentinels = _SENTINEL_URL.fullmatch(url)
    try:
        found = _of_one_server(url) if behind_sentinels is None else _of_sentinels(behind_sentinels)
    except ValueError as error:
        shown = redact(url)
        named = "the value, which is not shown as it may be a password," if shown == HIDDEN else repr(shown)
        raise ValueError(f"{named} {error}") from None
    _check_files(tls_files, tls=found.tls)
    return replace(found, tls_files=tls_files)


def address_of(server: ServerSettings) -> Address:
    """Return the address of a fleet's server. Raises as `parse_address`."""
    files = TlsFiles(server.redis_tls_ca, server.redis_tls_cert, server.redis_tls_key)
    return parse_address(server.redis_url, files)


def _check_files(files: TlsFiles, *, tls: bool) -> None:
    if files != NO_TLS_FILES and not tls:
        raise ValueError("redis_tls_ca, redis_tls_cert and redis_tls_key want TLS: a redis_url with rediss://")
    if bool(files.cert) != bool(files.key):
        raise ValueError("TLS takes both, redis_tls_cert and redis_tls_key")


# These raise ValueError saying what is wrong, with no part of the URL: a password may stand in any wrong place.


def _of_one_server(url: str) -> Address:
    parts = _split(url)
    if parts.scheme not in SCHEMES or "://" not in url:
        raise ValueError(
            "is not a Redis URL: it must begin with redis://, rediss:// or unix://, "
            "or with redis+sentinel:// to have sentinels asked for the primary"
        )
    may_say = (
        "a URL may say host, port, user, password and database, as in redis://user:password@host:6379/0, and no more"
    )
    query = _options(parts.query, parts.fragment, frozenset({"db"}), may_say)
    unix = parts.scheme == "unix"
    try:
        port = parts.port or DEFAULT_PORT
        database = int(query.get("db") or ("0" if unix else parts.path.strip("/")) or 0)
    except ValueError:
        raise ValueError("is not a Redis URL: its port or its database is not a number") from None
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
    except ValueError:
        raise ValueError("is not a Redis URL: its host is none (IPv6 as in [::1])") from None


def _of_sentinels(found: re.Match[str]) -> Address:
    scheme, credentials, hosts, path, options, fragment = (part or "" for part in found.groups())
    may_say = "beside db there are sentinel_username and sentinel_password, for sentinels that want them"
    query = _options(options, fragment, _SENTINEL_OPTIONS, may_say)
    service, _, database = path.strip("/").partition("/")
    if not service:
        raise ValueError(
            "names no service: which primary the sentinels are asked for follows their places, "
            "as in redis+sentinel://one:26379,two:26379,three:26379/mymaster/0"
        )
    username, _, password = credentials.partition(":")
    try:
        places = tuple(_place(member) for member in hosts.split(","))
        number = int(query.get("db") or database or 0)
    except ValueError:
        raise ValueError(
            "is not a Redis URL: a sentinel in it has no host or no port, or its database is not a number "
            "(IPv6 as in [::1]:26379)"
        ) from None
    guards = (query.get(f"sentinel_{name}", "") for name in ("username", "password"))
    return Address(
        host="",
        port=0,
        tls=scheme.lower() == "rediss",
        database=number,
        username=unquote(username),
        password=unquote(password),
        sentinels=Sentinels(unquote(service), places, *guards),
    )


def _options(text: str, fragment: str, known: frozenset[str], may_say: str) -> dict[str, str]:
    if fragment:
        raise ValueError("has a '#' in it: write it as %23")
    query = {name: values[0] for name, values in parse_qs(text, keep_blank_values=True).items()}
    if unknown := sorted(query.keys() - known):
        shown = (
            repr(unknown[0])
            if unknown[0] in OPTIONS_OF_CLIENTS
            else "*** (not shown: it may be the rest of a password)"
        )
        raise ValueError(f"has the option {shown}: {may_say} (authorities for TLS: set redis_tls_ca)")
    return query


def _place(member: str) -> tuple[str, int]:
    parts = urlsplit(f"//{member}")
    if not parts.hostname:
        raise ValueError(member)
    return parts.hostname, parts.port or DEFAULT_SENTINEL_PORT
