"""The address of the server: the parser of Redis URLs, and the search for the primary with the help of sentinels. This
module does no I/O.

1. The sentinels are queried one after another for the address of the service. A sentinel that does not reply in time is
   skipped.
2. The server at that address is queried for its ROLE, because the sentinel may not know yet that the server was demoted
   or has died.
3. The first server that reports the role of a primary is used. If there is none, the error message contains the reply
   of each sentinel.

No result is cached. Each new connection searches again, so even the first connection after a failover goes to the new
primary. The protocol follows Redis's "Guidelines for Redis clients with support for Redis Sentinel".
"""

import contextlib
import math
import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from rota.child.child_settings import ServerSettings
from rota.display_text import HIDDEN, redact
from rota.display_text import OPTIONS as OPTIONS_OF_CLIENTS
from rota.protocol.wire import Arg
from rota.server.logins import SETTING, Login, Logins, Renewal, fleet_login, logins_of
from rota.server.server_errors import REASON_SENTINEL, ConnectionLost, Refused, ServerError
from rota.url_logins import without_login

DEFAULT_PORT: Final = 6379
DEFAULT_SENTINEL_PORT: Final = 26379
SCHEMES: Final = ("redis", "rediss", "unix")
# The time to connect to a sentinel and to get its reply. If it has passed, the next sentinel is queried.
SENTINEL_SECONDS: Final = 1.0
# Time limit for a connection to the primary, short because its host may be down during a failover.
PRIMARY_SECONDS: Final = 2.0
_SENTINEL_OPTIONS: Final = frozenset({"db", "sentinel_username", "sentinel_password"})
# The groups are the scheme, credentials, hosts, path and options. urlsplit cannot parse such a URL, because it rejects
# a list of hosts with an IPv6 address.
_SENTINEL_URL: Final = re.compile(
    r"(rediss?)\+sentinel://(?:([^/?#]*)@)?([^/?#]*)([^?#]*)(?:\?([^#]*))?(#.*)?", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The PEM files for TLS connections to the server."""

    ca: str = ""  # file with the certificates of trusted authorities, "" for those that the system trusts
    cert: str = ""  # the client's certificate, for a server that requires client certificates
    key: str = ""  # the private key of the client's certificate


NO_TLS_FILES: Final = TlsFiles()


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """The settings for access to a server, other than its URL. `logins` supplies the user and the password if the URL
    has none."""

    tls_files: TlsFiles = NO_TLS_FILES
    logins: Logins | None = None


NO_ACCESS: Final = ServerAccess()


@dataclass(frozen=True, slots=True)
class Sentinels:
    """The sentinels that can be queried for the primary of a service."""

    service: str
    addresses: tuple[tuple[str, int], ...]  # host and port of each sentinel
    username: str = ""  # user for the sentinels themselves, not for the server
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Address:
    """The address and the credentials of a server. Its repr has no password. If `logins` is set, it replaces the user
    and the password.

    If `sentinels` is set, `host` and `port` are not used, because each connection queries the sentinels for the host
    and port of the primary (see `search`).
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    path: str = ""  # the path of a Unix socket, or "" to use host and port
    tls: bool = False  # whether to use TLS
    database: int = 0
    username: str = ""  # the user, or "" for the default user of the server
    password: str = field(default="", repr=False)
    sentinels: Sentinels | None = None  # if set, the sentinels are queried for host and port
    tls_files: TlsFiles = NO_TLS_FILES
    logins: Logins | None = None  # if set, the source of the user and the password, instead of the fields above

    @property
    def has_failover(self) -> bool:
        """Whether another server can take over, so that each new connection begins with a `search` for the primary."""
        return self.sentinels is not None

    @property
    def search_seconds(self) -> float:
        """The longest time that the search for the primary can take, in seconds, or 0 if there is no search."""
        return 0.0 if self.sentinels is None else len(self.sentinels.addresses) * (SENTINEL_SECONDS + PRIMARY_SECONDS)

    @property
    def kept_login(self) -> Login | None:
        """The login, or None if a provider would have to be called to get it."""
        return Login(self.username, self.password) if self.logins is None else self.logins.kept()

    def login(self) -> Login:
        """Return the login. This may call a provider, and block until it returns. Raises LoginUnknown if there is no
        login."""
        return Login(self.username, self.password) if self.logins is None else self.logins.current()

    def renewal_of(self, login: Login) -> Renewal | None:
        """Return when to replace a connection that was made with this login, or None if it need not be replaced."""
        return None if self.logins is None or login.until == math.inf else Renewal(login, self.logins)

    def has_other_login(self, error: ServerError) -> bool:
        """Whether to try to connect once more after this error, because the server refused the login and the provider
        can supply another one."""
        return error.refuses_login and self.logins is not None and self.logins.refused()

    @property
    def place(self) -> str:
        """The text of the address for messages."""
        if self.sentinels is not None:
            return f"the primary of {self.sentinels.service!r}"
        return self.path or shown_address(self.host, self.port)


def shown_address(host: str, port: int) -> str:
    """Return the host and port as they are written in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@lru_cache(maxsize=8)  # the zygote parses the URL and its workers share the result, which saves 0.2 MB in each of them
def parse_address(url: str, tls_files: TlsFiles = NO_TLS_FILES) -> Address:
    """Parse a URL: `redis://`, `rediss://`, `unix://`, `redis+sentinel://` or `rediss+sentinel://`.

    The database is the path (with sentinels, the part after the service), or `?db=N`. The only other valid options are
    the credentials for sentinels. Any further option is rejected, because a URL must have the same effect for every
    connection of a fleet and of its producers.

    Raises ValueError, with the password redacted, if the URL is not valid, and TypeError if it is not a text.
    """
    if not isinstance(url, str):
        raise TypeError(
            f"redis_url must be a URL, for example redis://localhost:6379/0, got {type(url).__name__}; "
            "to use your own Redis client, pass redis=..."
        )
    behind_sentinels = _SENTINEL_URL.fullmatch(url)
    try:
        found = _of_one_server(url) if behind_sentinels is None else _of_sentinels(behind_sentinels)
    except ValueError as error:
        shown = redact(url) if url else ""
        named = "the value, which is not shown because it may be a password," if shown == HIDDEN else repr(shown)
        raise ValueError(f"{named} {error}") from None
    _check_files(tls_files, tls=found.tls)
    return replace(found, tls_files=tls_files)


def address_with(url: str, access: ServerAccess) -> Address:
    """Return the address for a URL and the access settings. Raises the same errors as `parse_address`, and ValueError
    if both the URL and `access` contain a user or a password."""
    address = parse_address(url, access.tls_files)
    if access.logins is None:
        return address
    if address.username or address.password:
        raise ValueError(
            f"{redact(url)!r} contains a user or a password, but {SETTING} provides them too: use only one of these"
        )
    return replace(address, logins=access.logins)


def address_of(server: ServerSettings) -> Address:
    """Return the address of a fleet's server. Raises the same errors as `parse_address`.

    In a process of that fleet, the login that the master shares replaces the one in the URL.
    """
    files = TlsFiles(server.redis_tls_ca, server.redis_tls_cert, server.redis_tls_key)
    shared = fleet_login.shared
    if shared is None:
        return address_with(server.redis_url, ServerAccess(files, logins_of(server.redis_credentials)))
    return address_with(without_login(server.redis_url), ServerAccess(files, shared))


def _check_files(files: TlsFiles, *, tls: bool) -> None:
    if files != NO_TLS_FILES and not tls:
        named = [f"redis_tls_{key}" for key in ("ca", "cert", "key") if getattr(files, key)]
        settings = " and ".join(named)
        raise ValueError(f"redis_url does not use TLS, so {settings} must not be set: begin redis_url with rediss://")
    if bool(files.cert) != bool(files.key):
        raise ValueError("for a client certificate, set both redis_tls_cert and redis_tls_key")


# The ValueErrors of these functions contain no part of the URL, because any part may be a mistyped password.


def _of_one_server(url: str) -> Address:
    parts = _split(url)
    if parts.scheme not in SCHEMES or "://" not in url:
        raise ValueError(
            "is not a Redis URL: a Redis URL begins with redis://, rediss:// or unix://, "
            "or with redis+sentinel:// to query sentinels for the primary"
        )
    url_parts = "host, port, user, password and database, as in redis://user:password@host:6379/0"
    allowed = f"a URL may contain only {url_parts}"
    query = _options(parts.query, parts.fragment, frozenset({"db"}), allowed)
    unix = parts.scheme == "unix"
    if unix and not parts.path:
        raise ValueError("names no socket: add the path of the socket, as in unix:///run/redis.sock")
    try:
        port = parts.port or DEFAULT_PORT
        database = _database(query.get("db") or ("0" if unix else parts.path.strip("/")))
    except ValueError:
        raise ValueError(
            "is not a Redis URL: the port must be a number from 1 to 65535, and the database a number from 0; in a "
            "user or a password, percent-encode the characters / : @ # ? and %, for example / as %2F"
        ) from None
    return Address(
        host=parts.hostname or "127.0.0.1",
        port=port,
        path=unquote(parts.path) if unix else "",
        tls=parts.scheme == "rediss",
        database=database,
        username=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
    )


def _database(text: str) -> int:
    number = int(text or 0)
    if number < 0:
        raise ValueError(text)
    return number


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        raise ValueError(
            "is not a Redis URL: the host is not valid (put an IPv6 address into brackets, as in [::1])"
        ) from None


def _of_sentinels(found: re.Match[str]) -> Address:
    scheme, credentials, hosts, path, options, fragment = (part or "" for part in found.groups())
    allowed = "the options are db, and sentinel_username and sentinel_password for sentinels that require a login"
    query = _options(options, fragment, _SENTINEL_OPTIONS, allowed)
    service, _, database = path.strip("/").partition("/")
    if not service:
        raise ValueError(
            "names no service: add the name of the service after the sentinels, "
            "as in redis+sentinel://one:26379,two:26379,three:26379/mymaster/0"
        )
    username, _, password = credentials.partition(":")
    try:
        addresses = tuple(_host_and_port(member) for member in hosts.split(","))
        number = _database(query.get("db") or database)
    except ValueError:
        raise ValueError(
            "is not a Redis URL: a sentinel has no host or no port, or the database is not a number "
            "(put an IPv6 address into brackets, as in [::1]:26379)"
        ) from None
    guards = (query.get(f"sentinel_{name}", "") for name in ("username", "password"))
    return Address(
        host="",
        port=0,
        tls=scheme.lower() == "rediss",
        database=number,
        username=unquote(username),
        password=unquote(password),
        sentinels=Sentinels(unquote(service), addresses, *guards),
    )


def _options(text: str, fragment: str, known: frozenset[str], allowed: str) -> dict[str, str]:
    if fragment:
        raise ValueError("contains a '#': in a user or a password, write %23 instead")
    query = {name: values[0] for name, values in parse_qs(text, keep_blank_values=True).items()}
    if unknown := sorted(query.keys() - known):
        shown = (
            repr(unknown[0])
            if unknown[0] in OPTIONS_OF_CLIENTS
            else "*** (not shown: it may be the rest of a password)"
        )
        raise ValueError(
            f"has the option {shown}: {allowed} (the certificate authority for TLS is set with redis_tls_ca)"
        )
    return query


def _host_and_port(member: str) -> tuple[str, int]:
    parts = urlsplit(f"//{member}")
    if not parts.hostname:
        raise ValueError(member)
    return parts.hostname, parts.port or DEFAULT_SENTINEL_PORT


_PORT: Final = re.compile(rb"[0-9]{1,5}")
_PRIMARY: Final = b"master"
_MAX_SHOWN: Final = 80  # number of characters to show of a reply that is not valid


@dataclass(frozen=True, slots=True)
class Query:
    """One query of the search for the primary. The caller connects to `address`, sends `args`, and gives up if there is
    no connection or no reply within `seconds`."""

    address: Address
    args: tuple[Arg, ...]
    seconds: float


ReplyOrError = Any
"""A reply as hiredis returns it, or the ServerError that was raised instead."""

Search = Generator[Query, ReplyOrError, None]


def search(address: Address) -> Search:
    """Yield the queries that find the primary. The caller passes the reply to each query to `send`. The last query is
    the ROLE command to the primary.

    Raises ConnectionLost if there is no primary, and the error of the primary if the primary refuses the query.
    """
    assert address.sentinels is not None
    sentinels = address.sentinels
    faults: dict[tuple[str, int], str] = {}  # for each server that a sentinel named, why it is not the primary
    replies: dict[str, list[str]] = {}  # for each reply, the sentinels that gave it
    responsive: Address | None = None  # the last sentinel that replied, if any
    for host_and_port in sentinels.addresses:
        sentinel = Address(
            *host_and_port,
            tls=address.tls,
            username=sentinels.username,
            password=sentinels.password,
            tls_files=address.tls_files,
        )
        reply = yield _of_sentinel(sentinel, "GET-MASTER-ADDR-BY-NAME", sentinels.service)
        if not isinstance(reply, ServerError):
            responsive = sentinel
        named = _named_address(reply)
        if named is None:
            replies.setdefault(_unusable_reply(reply, sentinel), []).append(sentinel.place)
            continue
        if named not in faults:
            candidate = replace(address, host=named[0], port=named[1], sentinels=None)
            fault = _fault((yield Query(candidate, ("ROLE",), PRIMARY_SECONDS)), candidate)
            if not fault:
                return
            faults[named] = fault
        replies.setdefault(f"named {shown_address(*named)} ({faults[named]})", []).append(sentinel.place)
    more = "" if responsive is None else (yield from _explain(responsive, sentinels.service, known=bool(faults)))
    details = "; ".join(f"{', '.join(names)} {reply}" for reply, names in replies.items())
    raise ConnectionLost(
        f"no sentinel named a usable primary of {sentinels.service!r}: {details}{more}", REASON_SENTINEL
    )


def _explain(sentinel: Address, service: str, *, known: bool) -> Generator[Query, ReplyOrError, str]:
    # Add details that help the reader of the error message: which services the sentinel knows, or why there is no
    # failover.
    if known:
        reply = yield _of_sentinel(sentinel, "CKQUORUM", service)
        # A sentinel without a quorum replies with the error NOQUORUM, whose text states what is missing.
        return f"; {reply}" if isinstance(reply, Refused) else ""
    reply = yield _of_sentinel(sentinel, "MASTERS")
    return f"; {sentinel.place} knows {_names(reply)}" if isinstance(reply, list) else ""


def _of_sentinel(sentinel: Address, *args: str) -> Query:
    return Query(sentinel, ("SENTINEL", *args), SENTINEL_SECONDS)


def _named_address(reply: ReplyOrError) -> tuple[str, int] | None:
    # Also return None for an address to which no connection is possible. The sentinel is then skipped, and such an
    # address never reaches the resolver, which could raise an error.
    match reply:
        case [bytes() as host, bytes() as port] if (
            host and b"\0" not in host and _PORT.fullmatch(port) and int(port) < 1 << 16
        ):
            with contextlib.suppress(UnicodeError):
                name = host.decode()
                name.encode("idna")
                return name, int(port)
    return None


def _unusable_reply(reply: ReplyOrError, server: Address) -> str:
    """Return the words for the error message that describe a sentinel's reply without an address, for example "did not
    know the service"."""
    if isinstance(reply, ServerError):
        return f"gave no address ({_without_address(reply, server)})"
    return "did not know the service" if reply is None else f"replied {repr(reply)[:_MAX_SHOWN]}"


def _without_address(error: ServerError, server: Address) -> str:
    return str(error).replace(f" to {server.place}:", ":")


def _fault(role: ReplyOrError, server: Address) -> str:
    """Return why a server that gave this reply to ROLE is not the primary, or "" if it is."""
    match role:
        case Refused():  # the password or the permissions are wrong, so the other servers would refuse the query too
            raise role
        case ServerError():
            return _without_address(role, server)
        case [role_name, *_]:
            return "" if role_name == _PRIMARY else "a replica"
        case _:
            return f"which replied without a role: {role!r}"


def _names(services: Sequence[object]) -> str:
    # For each service, the reply contains one flat list of alternating fields and values.
    pairs = [zip(each[::2], each[1::2], strict=False) for each in services if isinstance(each, list)]
    names = [next((value for field, value in each if field == b"name"), b"?") for each in pairs]
    return ", ".join(repr(name.decode(errors="replace")) for name in names if isinstance(name, bytes)) or "no service"
