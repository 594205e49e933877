"""Our addresses as redis-py takes them, and its connections made to keep a deadline, and to ask sentinels as the
fleet's own do."""

import math
import socket
import time
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry

from rota.server.address import Address
from rota.server.sentinel import Answer, Question, search
from rota.server.server_errors import ConnectionLost, Refused, ServerError

_LEAST_SECONDS: Final = 0.001  # 0 would not wait, and say so in another way
_LEAST_PART, _MOST_PART = 0.98, 1.02  # of a timeout do not matter; setting one is a system call


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


def make_connection(address: Address, seconds: float) -> "Timed":
    """A connection that connects at its first use."""
    settings = connection_settings(address, seconds)
    made: Timed = settings.pop("connection_class")(**settings)
    return made


def _place(address: Address) -> dict[str, Any]:
    if address.path:
        return {"connection_class": TimedUnixConnection, "path": address.path}
    plain: type[redis.Connection] = TimedConnection
    secure: type[redis.SSLConnection] = TimedSecureConnection
    place: dict[str, Any] = {"host": address.host, "port": address.port}
    if address.sentinels is not None:
        plain, secure, place = PrimaryConnection, SecurePrimaryConnection, {"address": address}
    if not address.tls:
        return {"connection_class": plain, **place}
    # As the fleet's own connections have it: the system's authorities, and the name checked.
    return {"connection_class": secure, "ssl_cert_reqs": "required", "ssl_check_hostname": True, **place}


class Timed(AbstractConnection):
    """A connection whose steps share one `deadline` (monotonic): each address that is tried, the handshakes, what is
    said first, and each answer. No step takes longer than `socket_timeout`, as it was given. The look-up of a host's
    name alone is bound by resolv.conf. `is_known`: there was an exchange by it already."""

    def __init__(self, **options: Any) -> None:
        self.deadline = math.inf
        self.is_known = False
        self._seconds = float(options["socket_timeout"])
        super().__init__(**options)

    # redis-py reads both anew before each step.

    @property
    def socket_timeout(self) -> float:
        """How long the next step may take."""
        return max(_LEAST_SECONDS, min(self._seconds, self.deadline - time.monotonic()))

    @socket_timeout.setter
    def socket_timeout(self, value: float | None) -> None:
        """Set by redis-py's own constructor, to what it was given."""

    @property
    def socket_connect_timeout(self) -> float:
        """Likewise, to connect."""
        return self.socket_timeout

    @socket_connect_timeout.setter
    def socket_connect_timeout(self, value: float | None) -> None:
        """As above."""

    def allow(self, deadline: float, share: float) -> None:
        """Have what follows end when this share of the time until then is over."""
        now = time.monotonic()
        seconds = (deadline - now) * share
        self.deadline = now + seconds
        self._end_in(max(_LEAST_SECONDS, seconds))

    def hurry(self) -> None:
        """Have what is sent or read next end by the deadline."""
        self._end_in(self.socket_timeout)

    def _end_in(self, seconds: float) -> None:
        sock: socket.socket | None = self._sock
        if sock is not None and not seconds * _LEAST_PART < (sock.gettimeout() or 0.0) < seconds * _MOST_PART:
            sock.settimeout(seconds)

    def read_response(self, *args: Any, **options: Any) -> Any:
        """As redis-py's, by the deadline."""
        self.hurry()
        return super().read_response(*args, **options)

    def read_first(self) -> Any:
        """As `read_response`, of what was asked just after `allow`."""
        return super().read_response()


class TimedConnection(Timed, redis.Connection):
    """The same over TCP."""


class TimedUnixConnection(Timed, redis.UnixDomainSocketConnection):
    """The same over a socket of this machine."""


class TimedSecureConnection(TimedConnection, redis.SSLConnection):
    """The same over TLS."""


class PrimaryConnection(TimedConnection):
    """Asks for the primary whenever it connects.

    redis-py's own support for sentinels asks for no ROLE, waits for each sentinel as long as for the server, and brings
    retries of its own.
    """

    def __init__(self, *, address: Address, **options: Any) -> None:
        self._address = address
        super().__init__(**options)

    def _connect(self) -> Any:
        try:
            found = _find_primary(self._address, min(self.deadline, time.monotonic() + self._seconds))
        except ServerError as error:
            raise redis.ConnectionError(str(error)) from error
        self.host, self.port = found.host, found.port
        return super()._connect()  # type: ignore[no-untyped-call]  # redis-py does not type it


class SecurePrimaryConnection(PrimaryConnection, TimedSecureConnection):
    """The same over TLS."""


def _find_primary(address: Address, deadline: float) -> Address:
    searching = search(address)
    question = next(searching)
    while True:
        answer = _ask(question, deadline - time.monotonic())
        try:
            question = searching.send(answer)
        except StopIteration:
            return question.address


def _ask(question: Question, seconds: float) -> Answer:
    seconds = max(_LEAST_SECONDS, min(seconds, question.seconds))
    connection = make_connection(question.address, seconds)
    connection.deadline = time.monotonic() + seconds
    try:
        connection.send_command(*question.args)  # type: ignore[no-untyped-call]  # redis-py does not type it
        return connection.read_response()
    except (ResponseError, redis.AuthenticationError) as error:
        return Refused(str(error))
    except (RedisError, OSError) as error:
        return ConnectionLost(str(error))
    finally:
        connection.disconnect()  # type: ignore[no-untyped-call]  # redis-py does not type it
