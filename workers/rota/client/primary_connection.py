"""Our addresses as redis-py takes them, and a connection of redis-py that asks sentinels as the fleet's own do."""

from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry

from rota.server.address import Address
from rota.server.sentinel import Answer, Question, search
from rota.server.server_errors import ConnectionLost, Refused, ServerError


def connection_settings(address: Address, seconds: float) -> dict[str, Any]:
    """The class of connections to an address, and what it takes; `seconds` for a connection and for an answer."""
    return {
        **_place(address),
        "db": address.database,
        "username": address.username or None,
        "password": address.password or None,
        "socket_timeout": seconds,
        "socket_connect_timeout": seconds,
        # Scripts return bytes, and retries are ours to decide. RESP 2, since with RESP 3 redis-py turns on maintenance
        # notifications, and then no longer looks for answers that were left unread before it hands out a connection.
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 0,
        "decode_responses": False,
        "protocol": 2,
    }


def _place(address: Address) -> dict[str, Any]:
    if address.path:
        return {"connection_class": redis.UnixDomainSocketConnection, "path": address.path}
    plain: type[redis.Connection] = redis.Connection
    secure: type[redis.SSLConnection] = redis.SSLConnection
    place: dict[str, Any] = {"host": address.host, "port": address.port}
    if address.sentinels is not None:
        plain, secure, place = PrimaryConnection, SecurePrimaryConnection, {"address": address}
    if not address.tls:
        return {"connection_class": plain, **place}
    # As the fleet's own connections have it: the system's authorities, and the name checked.
    return {"connection_class": secure, "ssl_cert_reqs": "required", "ssl_check_hostname": True, **place}


class PrimaryConnection(redis.Connection):
    """Asks for the primary whenever it connects.

    redis-py's own support for sentinels asks for no ROLE, waits for each sentinel as long as for the server, and brings
    retries of its own.
    """

    def __init__(self, *, address: Address, **options: Any) -> None:
        self._address = address
        super().__init__(**options)  # type: ignore[no-untyped-call]  # redis-py does not type it

    def _connect(self) -> Any:
        try:
            found = _find_primary(self._address, float(self.socket_connect_timeout or 0))
        except ServerError as error:
            raise redis.ConnectionError(str(error)) from error
        self.host, self.port = found.host, found.port
        return super()._connect()  # type: ignore[no-untyped-call]  # redis-py does not type it


class SecurePrimaryConnection(PrimaryConnection, redis.SSLConnection):
    """The same over TLS."""


def _find_primary(address: Address, seconds: float) -> Address:
    searching = search(address)
    question = next(searching)
    while True:
        answer = _ask(question, seconds)
        try:
            question = searching.send(answer)
        except StopIteration:
            return question.address


def _ask(question: Question, seconds: float) -> Answer:
    settings = connection_settings(question.address, min(seconds, question.seconds))
    connection: redis.Connection = settings.pop("connection_class")(**settings)
    try:
        connection.send_command(*question.args)  # type: ignore[no-untyped-call]  # redis-py does not type it
        return connection.read_response()
    except (ResponseError, redis.AuthenticationError) as error:
        return Refused(str(error))
    except (RedisError, OSError) as error:
        return ConnectionLost(str(error))
    finally:
        connection.disconnect()  # type: ignore[no-untyped-call]  # redis-py does not type it
