"""The search for the primary of a service with sentinels, or for the primary that has the hash slot of a namespace
in a Redis Cluster. This module does no I/O: a search yields queries, and the caller connects and passes the replies
back.

With sentinels:

1. The sentinels are queried one after another for the address of the service. A sentinel that does not reply in time is
   skipped.
2. The server at that address is queried for its ROLE, because the sentinel may not know yet that the server was demoted
   or has died.
3. The first server that reports the role of a primary is used. If there is none, the error message contains the reply
   of each sentinel.

In a cluster:

1. The nodes are queried one after another for the hash slots of all nodes. A node that does not reply in time is
   skipped.
2. The primary that has the hash slot is sent a command on a key of the namespace. If it redirects the search (MOVED),
   the node that it names is queried in its place. A node that is cut off from the others replies CLUSTERDOWN, and the
   search continues with the next node of the list.
3. The first node that executes the command is used. If there is none, the error message contains all replies.

A namespace needs only one hash slot, so no map of the slots is kept. No result is cached either: each new connection
searches again, so even the first connection after a failover goes to the new primary. The protocols follow Redis's
"Guidelines for Redis clients with support for Redis Sentinel" and the "Redis Cluster specification".
"""

import binascii
import contextlib
import re
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rota.protocol.wire import Arg
from rota.server.address import (
    GUIDE_SECONDS,
    PRIMARY_SECONDS,
    Address,
    Cluster,
    HostAndPort,
    shown_address,
)
from rota.server.logins import LoginUnknown
from rota.server.server_errors import (
    REASON_ASK,
    REASON_CLUSTER,
    REASON_MOVED,
    REASON_SENTINEL,
    REASON_TRY_AGAIN,
    ConnectionLost,
    Refused,
    ServerError,
    TlsFilesFault,
)

_PORT: Final = re.compile(rb"[0-9]{1,5}")
_PRIMARY: Final = b"master"
_MAX_SHOWN: Final = 80  # number of characters to show of a reply that is not valid
_MOST_REDIRECTIONS: Final = 5  # of one search from one node; as many as other clients follow
_SLOTS: Final = 16384
# Errors that end a search in a cluster, because they would be the same at the other nodes: the user, the password, a
# permission or a file is wrong, or the provider supplies no login.
_OF_ALL_NODES: Final = (Refused, LoginUnknown, TlsFilesFault)
_UNKNOWN_HOST: Final = b"?"  # a node without a host name, in a cluster that announces host names


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a search. The caller connects to `address`, sends `args`, and gives up if there is no connection or
    no reply within `seconds`."""

    address: Address
    args: tuple[Arg, ...]
    seconds: float


ReplyOrError = Any
"""A reply as hiredis returns it, or the ServerError that was raised instead."""

Search = Generator[Query, ReplyOrError, None]


def search(address: Address) -> Search:
    """Yield the queries that find the primary. The caller passes the reply to each query to `send`. The last query goes
    to the primary.

    Raises ConnectionLost if there is no primary, and the error of the primary if the primary refuses the query.
    """
    return _search_sentinels(address) if address.cluster is None else _search_cluster(address, address.cluster)


def _search_sentinels(address: Address) -> Search:
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
    return Query(sentinel, ("SENTINEL", *args), GUIDE_SECONDS)


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


# In a cluster


def slot_of(key: str) -> int:
    """Return the hash slot of a key that begins with a hash tag, as in `{shop}:tasks`. It is the CRC-16 (XMODEM) of the
    tag modulo 16384, as the "Redis Cluster specification" defines it."""
    tag = key[1 : key.index("}")]
    return binascii.crc_hqx(tag.encode(), 0) % _SLOTS


def _search_cluster(address: Address, cluster: Cluster) -> Search:
    slot = slot_of(cluster.key)
    faults: dict[HostAndPort, str] = {}
    for guide in cluster.candidates:
        if guide in faults:
            continue
        cluster.put_last(guide)  # until it has replied
        slots = yield Query(_node(address, guide), ("CLUSTER", "SLOTS"), GUIDE_SECONDS)
        fault = _fault_of_slots(slots, _node(address, guide))
        owner = None if fault else _learn(cluster, slots, slot, guide)
        if owner is None:
            faults[guide] = fault or f"knows no primary of hash slot {slot}"
        elif (yield from _is_served_by(owner, address, cluster.key, faults)):
            return
    details = "; ".join(f"{shown_address(*node)}: {fault}" for node, fault in faults.items())
    raise ConnectionLost(f"no node of the cluster has hash slot {slot}: {details}", REASON_CLUSTER)


def _is_served_by(
    owner: HostAndPort, address: Address, key: str, faults: dict[HostAndPort, str]
) -> Generator[Query, ReplyOrError, bool]:
    """Return whether a node, or one that it names, executes commands on the key. The nodes that do not are added to
    `faults`, each with its reply."""
    for _ in range(_MOST_REDIRECTIONS):
        if owner in faults:
            return False
        node = _node(address, owner)
        reply = yield Query(node, ("EXISTS", key), PRIMARY_SECONDS)
        # ASK and TRYAGAIN come from the owner of a slot that is being moved to another node.
        if not isinstance(reply, ServerError) or reply.reason in (REASON_ASK, REASON_TRY_AGAIN):
            return True
        if reply.reason == REASON_MOVED and (named := _named_by_redirection(str(reply), owner)):
            faults[owner] = f"the hash slot is at {shown_address(*named)}"
            owner = named
        else:
            faults[owner] = _fault_of_reply(reply, node)
    return False


def _node(address: Address, place: HostAndPort) -> Address:
    return replace(address, host=place[0], port=place[1], cluster=None)


def _fault_of_reply(error: ServerError, node: Address) -> str:
    if isinstance(error, _OF_ALL_NODES):
        raise error
    return _without_address(error, node)


def _fault_of_slots(reply: ReplyOrError, node: Address) -> str:
    if isinstance(reply, ServerError):
        return _fault_of_reply(reply, node)
    return "" if isinstance(reply, list) else f"replied {repr(reply)[:_MAX_SHOWN]}"


def _learn(cluster: Cluster, slots: Sequence[object], slot: int, guide: HostAndPort) -> HostAndPort | None:
    """Return the primary of the slot according to a reply to CLUSTER SLOTS, or None if the slot has none.

    If it has one, remember all nodes in the reply. A node that has left the cluster names none of the others.
    """
    owner = None
    nodes: list[HostAndPort] = []
    for row in slots:
        match row:
            case [int(first), int(last), *places]:
                named = [_place(place, guide) for place in places]
                nodes += [place for place in named if place is not None]
                if first <= slot <= last and named:
                    owner = named[0]
    if owner is not None:
        cluster.learn(guide, nodes)
    return owner


def _place(row: object, guide: HostAndPort) -> HostAndPort | None:
    """Return the host and port in a row of CLUSTER SLOTS. If the host is missing, the row means the host that was
    queried. Return None if no connection is possible to the host."""
    match row:
        case [bytes() | None as host, int(port), *_]:
            return _usable([(host or guide[0].encode()), str(port).encode()])
    return None


def _named_by_redirection(reply: str, sender: HostAndPort) -> HostAndPort | None:
    """Return the host and port in a reply such as `MOVED 3999 10.0.0.1:6379`. The host may be missing, and is then the
    host of the sender."""
    host, _, port = reply.rpartition(" ")[2].rpartition(":")
    return _usable([(host or sender[0]).encode(), port.encode()])


def _usable(named: Iterable[bytes]) -> HostAndPort | None:
    host, port = named
    return None if host == _UNKNOWN_HOST else _named_address([host, port])
