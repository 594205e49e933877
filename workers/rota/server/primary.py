"""Connecting to the server that an address means: that very one, or the primary that sentinels name now."""

from dataclasses import replace

from rota.server.address import Address
from rota.server.connection import Connection, ConnectionOptions
from rota.server.sentinel import Answer, Question, search
from rota.server.server_errors import ServerError


def connect(address: Address, options: ConnectionOptions) -> Connection:
    """A connection for commands that write. Raises ServerError."""
    if address.sentinels is None:
        return Connection(address, options)
    searching = search(address)
    question = next(searching)
    while True:
        connection, answer = _ask(question, options)
        try:
            question = searching.send(answer)
        except StopIteration:  # that was the primary
            assert connection is not None
            connection.use(options)
            return connection
        except BaseException:
            _close(connection)
            raise
        _close(connection)


def _ask(question: Question, options: ConnectionOptions) -> tuple[Connection | None, Answer]:
    hurried = replace(
        options,
        connect_seconds=min(question.seconds, options.connect_seconds),
        read_seconds=min(question.seconds, options.read_seconds),
    )
    try:
        connection = Connection(question.address, hurried)
    except ServerError as error:
        return None, error
    try:
        return connection, connection.execute(*question.args)
    except ServerError as error:
        return connection, error
    except BaseException:  # the wait may raise what its owner likes; the socket must not leak
        connection.close()
        raise


def _close(connection: Connection | None) -> None:
    if connection is not None:
        connection.close()
