"""The server, as commands and a master that starts reach it: by one blocking connection of our own, without
redis-py's start-up time. Whatever goes wrong with it is said in one way."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rota.protocol.keys import PROTOCOL_VERSION, Keys
from rota.protocol.store import Store
from rota.protocol.wire import shown, text_of
from rota.redaction import redact
from rota.server.address import parse_address
from rota.server.connection import Connection, ConnectionOptions, connect
from rota.server.server_errors import REASON_SENTINEL, ConnectionLost, PushedBack, Refused, ServerError
from rota_supervisor.config.model import Config
from rota_supervisor.exits import ExitCode, Failure
from rota_supervisor.server_check import (
    ServerVersion,
    fault_of_protocol,
    faults_of_durability,
    faults_of_server,
    parse_info,
    version_of,
    warnings_of_durability,
)
from rota_supervisor.server_permissions import faults_of_permissions, forbidden_commands, needed_commands

OPTIONS: Final = ConnectionOptions(name="rota-cli")
_VERSION_FIELD: Final = "protocol"
_NOT_LET_IN: Final = frozenset({"noperm", "wrongpass"})


@dataclass(frozen=True, slots=True)
class CheckedServer:
    """A server that is fit for a fleet, and what is still to be said of it."""

    version: ServerVersion
    warnings: tuple[str, ...]


@contextlib.contextmanager
def connected(config: Config) -> Iterator[Connection]:
    """A connection for the length of a block. Raises Failure 69 for whatever goes wrong with the server."""
    try:
        connection = connect(parse_address(config.redis_url), OPTIONS)
        try:
            yield connection
        finally:
            connection.close()
    except ServerError as error:
        message = f"Redis at {redact(config.redis_url)} {_what_is_wrong(error)}"
        raise Failure(ExitCode.UNREACHABLE, message) from None


def _what_is_wrong(error: ServerError) -> str:
    match error:
        case ConnectionLost() if error.reason == REASON_SENTINEL:
            return f"leads nowhere: {error}: see that sentinels and servers run, and that redis_url names them rightly"
        case ConnectionLost():
            return f"is not reachable: {error}: start it, or set redis_url (or ROTA_REDIS_URL) to the right place"
        case PushedBack():
            return f"refuses for now: {error}: try again when it has recovered"
        case _ if error.reason == "noauth":
            return (
                "wants a password, and redis_url has none: write it as redis://:PASSWORD@HOST:PORT/0, with the user "
                "before the colon if there is one, or have redis_url_file name a file with such a URL"
            )
        case _ if error.reason in _NOT_LET_IN:
            return f"cannot be used: {error}: check the user, the password and its permissions in redis_url"
        case _:
            return f"cannot be used: {error}"


def check_server(config: Config, *, begin: bool) -> CheckedServer:
    """See that the server can be reached and is fit for a fleet; answers what it is.

    `begin`: record our protocol version in a fresh namespace. Raises Failure, 69 or 78.
    """
    failover = parse_address(config.redis_url).sentinels is not None
    with connected(config) as connection:
        info = parse_info(connection.execute("INFO").decode(errors="replace"))
        if config.durability == "waitaof":
            info |= _policy_of_syncs(connection)
        faults = [*faults_of_server(info), *faults_of_durability(info, config.durability)]
        if not faults:  # judged before any script runs: an old server cannot even read their first line
            needed = needed_commands(config.durability, failover=failover)
            faults = faults_of_permissions(forbidden_commands(connection, config.namespace, needed))
        if not faults:
            faults = _faults_of_namespace(connection, config.namespace, begin=begin)
    if faults:
        where = redact(config.redis_url)
        raise Failure(ExitCode.CONFIG, *(f"Redis at {where}: {fault}" for fault in faults))
    return CheckedServer(version_of(info), tuple(warnings_of_durability(info, config.durability, failover=failover)))


def _policy_of_syncs(connection: Connection) -> dict[str, str]:
    # INFO does not tell it, and who hosts servers for others may forbid the question.
    with contextlib.suppress(Refused):
        answer = [word.decode() for word in connection.execute("CONFIG", "GET", "appendfsync")]
        return dict(zip(answer[::2], answer[1::2], strict=True))
    return {}


def _faults_of_namespace(connection: Connection, namespace: str, *, begin: bool) -> list[str]:
    if begin:
        version = connection.run(Store(namespace).open())
    else:
        version = text_of(connection.execute("HGET", Keys(namespace).meta, _VERSION_FIELD) or PROTOCOL_VERSION)
    fault = fault_of_protocol(shown(version), namespace)
    return [fault] if fault else []
