"""The facts about the server, from INFO, CONFIG GET, TIME and LATENCY, and about the fleet's keys on the server. A
hosting provider may forbid some of these commands. Therefore each command may fail, and facts that could not be read
are listed."""

import os
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any, Final, NamedTuple

import psutil

from rota.protocol.entry import MICROSECONDS
from rota.protocol.nodes import Node
from rota.protocol.store import Store
from rota.protocol.wire import text_of
from rota.server.connection import Connection
from rota.server.server_errors import Refused
from rota_supervisor.config.model import Config
from rota_supervisor.config.resolution import topology_of
from rota_supervisor.doctor.machine_reader import may_have_huge_pages
from rota_supervisor.doctor.readings import LatencyEvent, ServerReading, Unread
from rota_supervisor.exits import Failure
from rota_supervisor.server_check import (
    connected,
    parse_info,
    survey_server,
    warnings_of_durability,
    warnings_of_topology,
)

SETTINGS: Final = (
    "appendfsync",
    "appendonly",
    "cluster-require-full-coverage",
    "disable-thp",
    "latency-monitor-threshold",
    "maxclients",
    "maxmemory",
    "maxmemory-policy",
    "min-replicas-to-write",
    "save",
    "tcp-keepalive",
    "timeout",
)
SAMPLES: Final = 15  # the number of TIME commands; the fastest one gives the most accurate clock offset
_NAMES_OF_SERVERS: Final = ("redis-server", "valkey-server", "keydb-server")
_LOOPBACK: Final = ("127.", "::1", "::ffff:127.")
_FIELDS_OF_EVENT: Final = 4


class _Clock(NamedTuple):
    """The results of several TIME commands."""

    round_trips: tuple[float, ...]  # in seconds
    at: float  # the server's time in the fastest round trip, in Unix seconds
    offset_seconds: float | None
    error_seconds: float


def read_server(connection: Connection, config: Config, unread: list[Unread]) -> ServerReading:
    """Return the facts about the server of a connection. Facts that could not be read are added to `unread`. Raises
    ServerError."""
    info = _info(connection, unread)
    settings = _settings(connection, unread)
    clock = _clock(connection, unread)
    is_local = _is_local(connection)
    pid = info.get("process_id", "")
    visible = may_have_huge_pages(int(pid), _NAMES_OF_SERVERS) if is_local and pid.isdecimal() else None
    if visible is None:
        unread.append(
            Unread("the kernel settings of the server's machine", "these settings are visible only on that machine")
        )
    topology = topology_of(config)
    return ServerReading(
        info,
        settings,
        warnings=tuple(warnings_of_durability(info | settings, config.durability, failover=topology.has_failover)),
        is_one_of_cluster=bool(warnings_of_topology(info, topology)),
        round_trips=clock.round_trips,
        at=clock.at,
        clock_offset_seconds=clock.offset_seconds,
        clock_error_seconds=clock.error_seconds,
        latency_events=_latency_events(connection, unread),
        is_local=is_local,
        uses_huge_pages=visible,
    )


def _info(connection: Connection, unread: list[Unread]) -> dict[str, str]:
    try:
        return parse_info(connection.execute("INFO").decode(errors="replace"))
    except Refused as error:
        unread.append(Unread("INFO of the server", str(error)))
        return {}


def _settings(connection: Connection, unread: list[Unread]) -> dict[str, str]:
    """Return the settings that the server shows. A hosting provider may forbid CONFIG or hide some settings."""
    try:
        words = [text_of(word) for word in connection.execute("CONFIG", "GET", *SETTINGS)]
    except Refused as error:
        unread.append(Unread(f"the server's settings {', '.join(SETTINGS)}", str(error)))
        return {}
    found = dict(zip(words[::2], words[1::2], strict=True))
    if hidden := [name for name in SETTINGS if name not in found]:
        unread.append(Unread(f"the server's settings {', '.join(hidden)}", "CONFIG GET does not return them"))
    return found


def _clock(connection: Connection, unread: list[Unread]) -> _Clock:
    """Measure the round trips of several TIME commands. The difference between the clocks is taken from the fastest
    round trip, because it has the smallest error."""
    try:
        samples = [_sample(connection) for _ in range(SAMPLES)]
    except Refused as error:
        unread.append(Unread("TIME of the server", str(error)))
        return _Clock((), time.time(), None, 0.0)
    quickest, offset, at = min(samples)
    return _Clock(tuple(sample[0] for sample in samples), at, offset, quickest / 2)


def _sample(connection: Connection) -> tuple[float, float, float]:
    """Send one TIME command. Return the duration of the round trip, how far the server's clock is ahead of this
    machine's, and the server's time."""
    wall = time.time()
    began = time.monotonic()
    seconds, microseconds = connection.execute("TIME")
    took = time.monotonic() - began
    at = int(seconds) + int(microseconds) / MICROSECONDS
    return took, at - (wall + took / 2), at


def _latency_events(connection: Connection, unread: list[Unread]) -> tuple[LatencyEvent, ...] | None:
    try:
        rows = connection.execute("LATENCY", "LATEST")
    except Refused as error:
        unread.append(Unread("LATENCY LATEST of the server", str(error)))
        return None
    return tuple(_event(row) for row in rows if len(row) >= _FIELDS_OF_EVENT)


def _event(row: Iterable[Any]) -> LatencyEvent:
    name, at, latest, highest, *_ = row
    return LatencyEvent(text_of(name), int(at), int(latest), int(highest))


def _is_local(connection: Connection) -> bool | None:
    """Whether the server of a connection has an address of this machine, or None if this cannot be determined."""
    with socket.socket(fileno=os.dup(connection.fileno())) as peer:
        try:
            if peer.family == socket.AF_UNIX:
                return True
            host = str(peer.getpeername()[0])
        except OSError:
            return None
    return host.startswith(_LOOPBACK) or host in _own_addresses()


def _own_addresses() -> set[str]:
    return {each.address.partition("%")[0] for rows in psutil.net_if_addrs().values() for each in rows}


# The fleet's data on the server


class FoundServer(NamedTuple):
    """The facts that could be read about the server and the fleet's data on it."""

    server: ServerReading | None  # None if the connection failed
    nodes: tuple[Node, ...]
    counts: Mapping[str, int] | None  # the numbers of tasks by state, and the number of `missing` tasks
    failure: Failure | None
    password: str  # the password of the connection, or "" if there is none


NO_SERVER: Final = FoundServer(None, (), None, None, "")


def examine_server(config: Config, unread: list[Unread]) -> FoundServer:
    """Return the facts about the server and the namespace in a configuration. Facts that could not be read are added to
    `unread`."""
    server: ServerReading | None = None
    nodes: tuple[Node, ...] = ()
    counts: Mapping[str, int] | None = None
    password = ""
    try:
        with connected(config) as connection:
            login = connection.address.kept_login
            password = login.password if login else ""
            server = read_server(connection, config, unread)
            nodes = _nodes(connection, config.namespace, unread)
            counts = _counts(connection, config.namespace, unread)
            server = replace(server, faults=tuple(survey_server(connection, config, open_namespace=False).faults))
    except Failure as failure:
        return FoundServer(server, nodes, counts, failure, password)
    return FoundServer(server, nodes, counts, None, password)


def _nodes(connection: Connection, namespace: str, unread: list[Unread]) -> tuple[Node, ...]:
    try:
        found = connection.run(Store(namespace).nodes())
    except Refused as error:
        unread.append(Unread("the heartbeats of the nodes", str(error)))
        return ()
    return tuple(found)


def _counts(connection: Connection, namespace: str, unread: list[Unread]) -> Mapping[str, int] | None:
    try:
        counts = connection.run(Store(namespace).audit())
    except Refused as error:
        unread.append(Unread("the counts of tasks", str(error)))
        return None
    return {**asdict(counts), "missing": counts.missing}
