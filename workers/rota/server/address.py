"""The address of the server: the parser of Redis URLs. This module does no I/O.

A URL names one server, the sentinels that know the primary of a service, or nodes of a Redis Cluster. In the last two
cases, each new connection first searches for the server (`rota.server.primary_search`).
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Final
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from rota.child.child_settings import ServerSettings
from rota.display_text import HIDDEN, redact
from rota.display_text import OPTIONS as OPTIONS_OF_CLIENTS
from rota.protocol.keys import Keys
from rota.server.logins import SETTING, Login, Logins, Renewal, fleet_login, logins_of
from rota.server.server_errors import ServerError
from rota.url_logins import without_login

DEFAULT_PORT: Final = 6379
DEFAULT_SENTINEL_PORT: Final = 26379
SCHEMES: Final = ("redis", "rediss", "unix")
# The time to connect to a sentinel or to a node of a cluster, and to get its reply. If it has passed, the next one is
# queried.
GUIDE_SECONDS: Final = 1.0
# Time limit for a connection to the primary, short because its host may be down during a failover.
PRIMARY_SECONDS: Final = 2.0
_SENTINEL_OPTIONS: Final = frozenset({"db", "sentinel_username", "sentinel_password"})
_OPTIONS_OF_SENTINELS: Final = (
    "the options are db, and sentinel_username and sentinel_password for sentinels that require a login"
)
_NO_OPTIONS: Final = (
    "a URL of a cluster may contain only user, password and nodes, as in redis+cluster://one:6379,two:6379"
)
# The groups are the scheme, the kind, credentials, hosts, path, options and fragment. urlsplit cannot parse such a URL,
# because it rejects a list of hosts with an IPv6 address.
_URL_OF_SEVERAL: Final = re.compile(
    r"(rediss?)\+(sentinel|cluster)://(?:([^/?#]*)@)?([^/?#]*)([^?#]*)(?:\?([^#]*))?(#.*)?", re.IGNORECASE | re.DOTALL
)
HostAndPort = tuple[str, int]


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


class Topology(StrEnum):
    """The kinds of URLs, by what they name."""

    SINGLE = "single"  # the server itself
    SENTINEL = "sentinel"  # sentinels, which know the primary
    CLUSTER = "cluster"  # nodes of a Redis Cluster, which know the primary that has the namespace's hash slot

    @property
    def has_failover(self) -> bool:
        """Whether another server can take over, so that each new connection begins with a search for the primary."""
        return self is not Topology.SINGLE


@dataclass(frozen=True, slots=True)
class Sentinels:
    """The sentinels that can be queried for the primary of a service."""

    service: str
    addresses: tuple[HostAndPort, ...]
    username: str = ""  # user for the sentinels themselves, not for the server
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The nodes of a Redis Cluster that can be queried for the primary that has the hash slot of a key."""

    addresses: tuple[HostAndPort, ...]  # the nodes in the URL
    key: str  # a key of the namespace, all of whose keys are in one hash slot; "" if only the URL is to be checked
    # The nodes to query first, in this order: the one that replied last, and all others that it named. All nodes in the
    # URL may have been replaced since the process started.
    known: list[HostAndPort] = field(default_factory=list, repr=False, compare=False)

    @property
    def candidates(self) -> tuple[HostAndPort, ...]:
        """The nodes to query, in this order."""
        return tuple(dict.fromkeys((*self.known, *self.addresses)))

    def learn(self, guide: HostAndPort, nodes: Iterable[HostAndPort]) -> None:
        """Remember the node that replied, and the nodes that it named."""
        self.known[:] = dict.fromkeys((guide, *nodes))

    def put_last(self, guide: HostAndPort) -> None:
        """Query a node last from now on, so that a node that never replies does not use up the time of each search."""
        self.known[:] = [*(node for node in self.candidates if node != guide), guide]


@dataclass(frozen=True, slots=True)
class Address:
    """The address and the credentials of a server. Its repr has no password. If `logins` is set, it replaces the user
    and the password.

    If `sentinels` or `cluster` is set, `host` and `port` are not used, because each connection searches for the host
    and port of the primary (see `primary_search`).
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    path: str = ""  # the path of a Unix socket, or "" to use host and port
    tls: bool = False  # whether to use TLS
    database: int = 0
    username: str = ""  # the user, or "" for the default user of the server
    password: str = field(default="", repr=False)
    sentinels: Sentinels | None = None  # if set, the sentinels are queried for host and port
    cluster: Cluster | None = None  # if set, the nodes of the cluster are queried for host and port
    tls_files: TlsFiles = NO_TLS_FILES
    logins: Logins | None = None  # if set, the source of the user and the password, instead of the fields above

    @property
    def topology(self) -> Topology:
        """The kind of the URL."""
        if self.cluster is not None:
            return Topology.CLUSTER
        return Topology.SINGLE if self.sentinels is None else Topology.SENTINEL

    @property
    def has_failover(self) -> bool:
        """Whether another server can take over, as in `Topology.has_failover`."""
        return self.topology.has_failover

    @property
    def search_seconds(self) -> float:
        """The longest time that the search for the primary can take, in seconds, or 0 if there is no search."""
        if self.cluster is not None:
            guides = len(self.cluster.candidates)
        else:
            guides = 0 if self.sentinels is None else len(self.sentinels.addresses)
        return guides * (GUIDE_SECONDS + PRIMARY_SECONDS)

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
        if self.cluster is not None:
            return f"the cluster of {shown_address(*self.cluster.addresses[0])}"
        return self.path or shown_address(self.host, self.port)


def shown_address(host: str, port: int) -> str:
    """Return the host and port as they are written in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@lru_cache(maxsize=8)  # the zygote parses the URL and its workers share the result, which saves 0.2 MB in each of them
def parse_address(url: str, tls_files: TlsFiles = NO_TLS_FILES, key: str = "") -> Address:
    """Parse a URL: `redis://`, `rediss://`, `unix://`, or `redis+sentinel://`, `redis+cluster://` and the same with
    `rediss`.

    The database is the path (with sentinels, the part after the service), or `?db=N`. The only other valid options are
    the credentials for sentinels. Any further option is rejected, because a URL must have the same effect for every
    connection of a fleet and of its producers. `key` is any key of the namespace, by which a connection to a cluster
    finds its node.

    Raises ValueError, with the password redacted, if the URL is not valid, and TypeError if it is not a text.
    """
    if not isinstance(url, str):
        raise TypeError(
            f"redis_url must be a URL, for example redis://localhost:6379/0, got {type(url).__name__}; "
            "to use your own Redis client, pass redis=..."
        )
    several = _URL_OF_SEVERAL.fullmatch(url)
    try:
        found = _of_one_server(url) if several is None else _of_several(several, key)
    except ValueError as error:
        shown = redact(url) if url else ""
        named = "the value, which is not shown because it may be a password," if shown == HIDDEN else repr(shown)
        raise ValueError(f"{named} {error}") from None
    _check_files(tls_files, tls=found.tls)
    return replace(found, tls_files=tls_files)


def address_with(url: str, access: ServerAccess, key: str) -> Address:
    """Return the address for a URL and the access settings. `key` is any key of the namespace. Raises the same errors
    as `parse_address`, and ValueError if both the URL and `access` contain a user or a password."""
    address = parse_address(url, access.tls_files, key)
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
    key = Keys(server.namespace).tasks
    shared = fleet_login.shared
    if shared is None:
        return address_with(server.redis_url, ServerAccess(files, logins_of(server.redis_credentials)), key)
    return address_with(without_login(server.redis_url), ServerAccess(files, shared), key)


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
            "with redis+sentinel:// to query sentinels for the primary, or with redis+cluster:// for a Redis Cluster"
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


def _of_several(found: re.Match[str], key: str) -> Address:
    scheme, kind, credentials, hosts, path, options, fragment = (part or "" for part in found.groups())
    username, _, password = credentials.partition(":")
    known = Address(
        host="",
        port=0,
        tls=scheme.lower() == "rediss",
        username=unquote(username),
        password=unquote(password),
    )
    if kind.lower() == "cluster":
        return _in_cluster(known, hosts, path, _options(options, fragment, frozenset({"db"}), _NO_OPTIONS), key)
    return _behind_sentinels(known, hosts, path, _options(options, fragment, _SENTINEL_OPTIONS, _OPTIONS_OF_SENTINELS))


def _behind_sentinels(known: Address, hosts: str, path: str, options: dict[str, str]) -> Address:
    service, _, database = path.strip("/").partition("/")
    if not service:
        raise ValueError(
            "names no service: add the name of the service after the sentinels, "
            "as in redis+sentinel://one:26379,two:26379,three:26379/mymaster/0"
        )
    try:
        addresses = tuple(_host_and_port(member, DEFAULT_SENTINEL_PORT) for member in hosts.split(","))
        number = _database(options.get("db") or database)
    except ValueError:
        raise ValueError(
            "is not a Redis URL: a sentinel has no host or no port, or the database is not a number "
            "(put an IPv6 address into brackets, as in [::1]:26379)"
        ) from None
    guards = (options.get(f"sentinel_{name}", "") for name in ("username", "password"))
    return replace(known, database=number, sentinels=Sentinels(unquote(service), addresses, *guards))


def _in_cluster(known: Address, hosts: str, path: str, options: dict[str, str], key: str) -> Address:
    if (options.get("db") or path.strip("/") or "0") != "0":
        raise ValueError("names a database, but a cluster has only database 0: end the URL after the nodes")
    try:
        addresses = tuple(_host_and_port(member, DEFAULT_PORT) for member in hosts.split(","))
    except ValueError:
        raise ValueError(
            "is not a Redis URL: a node of the cluster has no host or no port, as in redis+cluster://one:6379,two:6379 "
            "(put an IPv6 address into brackets, as in [::1]:6379)"
        ) from None
    return replace(known, cluster=Cluster(addresses, key))


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


def _host_and_port(member: str, default_port: int) -> HostAndPort:
    parts = urlsplit(f"//{member}")
    if not parts.hostname:
        raise ValueError(member)
    return parts.hostname, parts.port or default_port
