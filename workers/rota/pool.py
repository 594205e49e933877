"""The client's connections: redis-py's pool underneath, and no command ever repeated behind our back.

An exchange tells three things apart for each command, because a caller must do three things: it was
answered, it was refused (so not carried out), or it was sent and nothing came back. A connection on which all
was answered is kept here for the next exchange; any other goes back to redis-py's pool, which mends it.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, OutOfMemoryError, ReadOnlyError, RedisError, ResponseError
from redis.retry import Retry

from rota.errors import ServerFull, Unavailable
from rota.protocol.store import Command
from rota.server.address import Address, parse_address, redact

T = TypeVar("T")

_NO_BOUND = 2**31  # threads each need a connection: running out of them must not fail an enqueue


@dataclass(frozen=True, slots=True)
class Answered(Generic[T]):
    """The command was carried out."""

    value: T


@dataclass(frozen=True, slots=True)
class Refused:
    """The server answered that it did not carry the command out."""

    error: Unavailable


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The connection was lost, or silent for too long, after the command was sent."""

    why: str


Answer = Answered[T] | Refused | Unanswered


class Pool:
    """Connections to one server. Thread-safe; a forked child makes connections of its own."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        """Connects at the first use. Raises ValueError for a URL that is none."""
        address = parse_address(url)
        self._shown_url = redact(url)
        # Scripts answer bytes, and retries are ours to decide. RESP 2, since with RESP 3 redis-py turns on maintenance
        # notifications, and then no longer looks for answers that were left unread before it hands out a connection.
        self._pool = redis.ConnectionPool(
            **_place(address),
            db=address.database,
            username=address.username or None,
            password=address.password or None,
            socket_timeout=timeout_seconds,
            socket_connect_timeout=timeout_seconds,
            max_connections=_NO_BOUND,
            retry=Retry(NoBackoff(), 0),
            health_check_interval=0,
            decode_responses=False,
            protocol=2,
        )
        self._kept: list[redis.Connection] = []  # idle

    def exchange(self, commands: Iterable[Command[T]]) -> list[Answer[T]]:
        """Send all commands, each as soon as it is made, and collect an answer for each.

        Raises Unavailable, nothing having been sent, when there is no connection to be had.
        """
        connection = self._take()
        try:
            sent, replies = _pipeline(connection, commands, Command.by_sha)
            failed = [reply for reply in replies if isinstance(reply, Exception)]
            if failed:
                _teach(connection, sent, replies)
        except BaseException:  # a signal or a time limit: the next to use the connection would get our answers
            self._drop(connection)
            raise
        if failed:  # it may be lost
            self._pool.release(connection)
        else:
            self._kept.append(connection)
        return [self._judge(command, reply) for command, reply in zip(sent, replies, strict=True)]

    def close(self) -> None:
        """Close all connections. May be repeated; using the pool again opens new ones."""
        self._kept.clear()
        self._pool.disconnect()

    def _take(self) -> redis.Connection:
        # One kept from an earlier exchange, or else one of redis-py's pool, which takes six times as long to hand
        # one out and take it back. Neither may be closed, or hold an answer that somebody left unread.
        while self._kept:
            try:
                connection = self._kept.pop()
            except IndexError:  # another thread took it
                break
            if connection.pid != os.getpid():
                continue  # the parent's, which goes on using it
            try:
                if not connection.can_read():  # one that was closed on our side connects anew
                    return connection
            except (RedisError, OSError):
                pass  # it was closed on the other side: the server may have been restarted since
            except BaseException:  # interrupted in its greeting
                self._drop(connection)
                raise
            self._drop(connection)
        return self._connect()

    def _drop(self, connection: redis.Connection) -> None:
        connection.disconnect()  # type: ignore[no-untyped-call]  # redis-py does not type it
        self._pool.release(connection)

    def _connect(self) -> redis.Connection:
        try:
            return self._pool.get_connection()
        except (RedisError, OSError) as error:
            raise Unavailable(f"no connection to {self._shown_url}: {error}") from error
        except BaseException:
            # Interrupted in its greeting, it may be back in the pool with no database selected and answers to come.
            self._pool.disconnect(inuse_connections=False)
            raise

    def _judge(self, command: Command[T], reply: object) -> Answer[T]:
        if not isinstance(reply, Exception):
            return Answered(command.parse(reply))
        match reply:
            case OutOfMemoryError():
                return Refused(ServerFull(f"{self._shown_url} takes no more tasks, its memory is full: {reply}"))
            case ResponseError() | redis.BusyLoadingError() | redis.AuthenticationError():
                return Refused(Unavailable(f"{self._shown_url} refused: {reply}"))
            case _:
                return Unanswered(f"{self._shown_url} did not answer: {reply}")


def _place(address: Address) -> dict[str, Any]:
    # TLS as the fleet's own connections have it: the system's authorities, and the name checked.
    if address.path:
        return {"connection_class": redis.UnixDomainSocketConnection, "path": address.path}
    place = {"host": address.host, "port": address.port}
    if address.tls:
        return {
            "connection_class": redis.SSLConnection,
            "ssl_cert_reqs": "required",
            "ssl_check_hostname": True,
            **place,
        }
    return place


def _pipeline(
    connection: redis.Connection, commands: Iterable[Command[T]], pack: Callable[[Command[T]], bytes]
) -> tuple[list[Command[T]], list[object]]:
    # The commands, with one reply or exception each.
    sent: list[Command[T]] = []
    coming = iter(commands)

    def packed() -> Iterator[bytes]:
        for command in coming:
            sent.append(command)
            data = pack(command)
            if not connection.is_connected:
                raise redis.ConnectionError("the client was closed")
            yield data

    try:  # in one call: a second one would connect anew when the client was closed meanwhile, and mix up the answers
        connection.send_packed_command(packed())  # type: ignore[no-untyped-call]  # redis-py does not type it
    except (RedisError, OSError) as error:
        sent += coming
        return sent, [error] * len(sent)
    return sent, _replies(connection, len(sent))


def _replies(connection: redis.Connection, count: int) -> list[object]:
    replies: list[object] = []
    moved = False
    for _ in range(count):
        try:
            replies.append(connection.read_response())
        except ResponseError as error:
            replies.append(error)
            moved = moved or isinstance(error, ReadOnlyError)
        except (RedisError, OSError) as error:
            # What followed may have been carried out, even when the error itself is a refusal.
            connection.disconnect()  # type: ignore[no-untyped-call]  # redis-py does not type it
            lost = redis.ConnectionError(f"the connection ended: {error}")
            return [*replies, error, *[lost] * (count - len(replies) - 1)]
    if moved:  # it is no primary any more: the next connection looks for the new one
        connection.disconnect()  # type: ignore[no-untyped-call]  # redis-py does not type it
    return replies


def _teach(connection: redis.Connection, commands: Sequence[Command[Any]], replies: list[object]) -> None:
    # What the server did not do for want of the script's text is sent again, with the text.
    unknown = [n for n, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
    if unknown:
        _, taught = _pipeline(connection, [commands[n] for n in unknown], Command.by_text)
        for n, reply in zip(unknown, taught, strict=True):
            replies[n] = reply
