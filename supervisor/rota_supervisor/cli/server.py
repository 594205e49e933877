"""The server, as commands reach it: by one connection of our own, without redis-py's start-up time."""

import contextlib
from collections.abc import Iterator

from rota.server.address import parse_address, redact
from rota.server.connection import Connection, ConnectionOptions
from rota.server.server_errors import ServerError
from rota_supervisor.cli.exits import ExitCode, Failure
from rota_supervisor.config.model import Config

OPTIONS = ConnectionOptions(name="rota-cli")


@contextlib.contextmanager
def connected(config: Config) -> Iterator[Connection]:
    """A connection for the length of a command. Raises Failure 69 for whatever goes wrong with the server."""
    with _unreachable_as_failure(config):
        connection = Connection(parse_address(config.redis_url), OPTIONS)
        try:
            yield connection
        finally:
            connection.close()


@contextlib.contextmanager
def _unreachable_as_failure(config: Config) -> Iterator[None]:
    try:
        yield
    except ServerError as error:
        where = redact(config.redis_url)
        raise Failure(ExitCode.UNREACHABLE, f"Redis at {where} cannot be used: {error}") from None
