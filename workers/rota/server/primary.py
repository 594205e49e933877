"""Connecting to the server that an address means: that very one, or the primary that sentinels name now."""

from dataclasses import replace

from rota.server.address import Address
from rota.server.connection import Connection, ConnectionOptions
from rota.server.sentinel import Answer, Question, search
from rota.server.server_errors import ServerError


def connect(address: Address, options: ConnectionOptions) -> Connection:
    """A connection for commands that write. Raises ServerError."""
    return find_primary(address, options)[0]


def find_primary(address: Address, options: ConnectionOptions) -> tuple[Connection, Address]:
    """The connection, and where it goes. Raises ServerError."""
    if address.sentinels is None:
        return Connection(address, options), address
    searching = search(address)
    question = next(searching)
    while True:
        connection, answer = _ask(question, options)
        try:
            following = searching.send(answer)
        except StopIteration:  # that was the primary
            assert connection is not None
            connection.use(options)
            return connection, question.address
        except BaseException:
            _close(connection)
            raise
        _close(connection)
        question = following


def _ask(question: Question, options: ConnectionOptions) -> tuple[Connection | None, Answer]:
    try:
        connection = Connection(question.address, _hurried(options, question.seconds))
    except ServerError as error:
        return None, error
    try:
        return connection, connection.execute(*question.args)
    except ServerError as error:
        return connection, error
    except BaseException:  # the wait may raise what its owner likes; the socket must not leak
        connection.close()
        raise


def _hurried(options: ConnectionOptions, seconds: float) -> ConnectionOptions:
    return replace(
        options,
        connect_seconds=min(seconds, options.connect_seconds),
        read_seconds=min(seconds, options.read_seconds),
    )


def _close(connection: Connection | None) -> None:
    if connection is not None:
        connection.close()
