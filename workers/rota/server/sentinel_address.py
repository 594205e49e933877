"""Where sentinels are: the half of a Redis URL that is theirs, taken apart."""

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from rota.redaction import OPTIONS as OPTIONS_OF_CLIENTS

DEFAULT_SENTINEL_PORT: Final = 26379
OPTIONS: Final = frozenset({"db", "sentinel_username", "sentinel_password"})
# Scheme, credentials, hosts, path, options. By hand, since urlsplit refuses a list of hosts with an IPv6 address in it.
_URL: Final = re.compile(
    r"(rediss?)\+sentinel://(?:([^/?#]*)@)?([^/?#]*)([^?#]*)(?:\?([^#]*))?(#.*)?", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Sentinels:
    """Who is asked for the primary of `service`: host and port of each sentinel, and what they want to hear first."""

    service: str
    places: tuple[tuple[str, int], ...]
    username: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class SentinelUrl:
    """What such a URL says: the sentinels, and how to be let in by the server that they name."""

    sentinels: Sentinels
    tls: bool
    database: int
    username: str
    password: str = field(repr=False)


def parse_sentinel_url(url: str) -> SentinelUrl | None:
    """Take the URL apart; None when it is another kind. Raises ValueError saying what is wrong, with no part of it."""
    found = _URL.fullmatch(url)
    if found is None:
        return None
    scheme, credentials, hosts, path, options, fragment = (part or "" for part in found.groups())
    query = parse_qs(options, keep_blank_values=True)
    service, _, database = path.strip("/").partition("/")
    if fault := _fault(fragment, query, service):
        raise ValueError(fault)
    username, _, password = credentials.partition(":")
    try:
        places = tuple(_place(member) for member in hosts.split(","))
        number = int(query.get("db", [""])[0] or database or 0)
    except ValueError:
        raise ValueError(
            "is not a Redis URL: a sentinel in it has no host or no port, or its database is not a number "
            "(IPv6 as in [::1]:26379)"
        ) from None
    guards = (query.get(f"sentinel_{name}", [""])[0] for name in ("username", "password"))
    sentinels = Sentinels(unquote(service), places, *guards)
    return SentinelUrl(sentinels, scheme.lower() == "rediss", number, unquote(username), unquote(password))


def shown_option(name: str) -> str:
    """An option as messages name it: what is none of a client may be the rest of a password with a ? or & in it."""
    return repr(name) if name in OPTIONS_OF_CLIENTS else "*** (not shown: it may be the rest of a password)"


def _fault(fragment: str, query: dict[str, list[str]], service: str) -> str:
    if fragment:
        return "has a '#' in it: write it as %23"
    if unknown := sorted(query.keys() - OPTIONS):
        return (
            f"has the option {shown_option(unknown[0])}: beside db there are sentinel_username and "
            "sentinel_password, for sentinels that want them (authorities for TLS: set SSL_CERT_FILE)"
        )
    if not service:
        return (
            "names no service: which primary the sentinels are asked for follows their places, "
            "as in redis+sentinel://one:26379,two:26379,three:26379/mymaster/0"
        )
    return ""


def _place(member: str) -> tuple[str, int]:
    parts = urlsplit(f"//{member}")
    if not parts.hostname:
        raise ValueError(member)
    return parts.hostname, parts.port or DEFAULT_SENTINEL_PORT
