"""The client's connections: redis-py's pool underneath, and no command ever repeated behind our back.

An exchange tells three things apart for each command, because a caller must do three things: it was
answered, it was refused (so not carried out), or it was sent and nothing came back. A connection on which all
was answered is kept here for the next exchange, since eight threads enqueue 1.6 times as much so (ADR 20); any
other goes back to redis-py's pool, which mends it.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import redis
from redis import exceptions
from redis.exceptions import RedisError, ResponseError

from rota.client.failures import is_denial, unavailable
from rota.client.primary_connection import connection_settings
from rota.errors import ServerFull, Unavailable
from rota.protocol.command import Command
from rota.redaction import redact
from rota.server.address import parse_address
from rota.server.durability import Confirmation
from rota.server.server_errors import Refused, read_reply, wants_password, without_arguments

T = TypeVar("T")

_NO_BOUND = 2**31  # threads each need a connection: running out of them must not fail an enqueue


@dataclass(frozen=True, slots=True)
class Answered(Generic[T]):
    """The command was carried out."""

    value: T


@dataclass(frozen=True, slots=True)
class NotAccepted:
    """The server answered that it did not carry the command out."""

    error: Unavailable


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The connection was lost, or silent for too long, after the command was sent."""

    why: str


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """The command was carried out, and what its durability asks for was not confirmed in time."""

    why: str


Answer = Answered[T] | NotAccepted | Unanswered | Unconfirmed


class ClientPool:
    """Connections to one server, or one primary. Thread-safe; a forked child makes connections of its own."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        """Connects at the first use. Raises ValueError for a URL that is none."""
        address = parse_address(url)
        self._shown_url = redact(url)
        self._pool = redis.ConnectionPool(**connection_settings(address, timeout_seconds), max_connections=_NO_BOUND)
        self._kept: list[redis.Connection] = []  # idle
        self._tried: Confirmation | None = None

    def exchange(self, commands: Iterable[Command[T]], confirmation: Confirmation | None = None) -> list[Answer[T]]:
        """Send all commands, each as soon as it is made, and collect an answer for each. With a `confirmation`,
        whatever is Answered is confirmed too.

        Raises Unavailable, nothing having been sent, when there is no connection, or the server can never confirm.
        """
        tail = confirmation.waiting if confirmation is not None else b""
        connection = self._take()
        try:
            if confirmation is not None and confirmation != self._tried:
                self._try(connection, confirmation)
            sent, replies = _pipeline(connection, commands, Command.by_sha, tail)
            failed = [reply for reply in replies if isinstance(reply, Exception)]
            if failed:
                _teach(connection, sent, replies, tail)
        except BaseException:  # a signal or a time limit: the next to use the connection would get our answers
            self._drop(connection)
            raise
        if failed:  # it may be lost
            self._pool.release(connection)
        else:
            self._kept.append(connection)
        confirmed = replies.pop() if tail else None
        answers = [self._judge(command, reply) for command, reply in zip(sent, replies, strict=True)]
        return answers if confirmation is None else self._confirmed(answers, confirmation, confirmed)

    def close(self) -> None:
        """Close all connections. May be repeated; using the pool again opens new ones."""
        self._kept.clear()
        self._pool.disconnect()

    def _take(self) -> redis.Connection:
        # One kept from an earlier exchange, or else one of redis-py's pool. Neither may be closed, or hold an answer
        # that somebody left unread.
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

    def _try(self, connection: redis.Connection, confirmation: Confirmation) -> None:
        # Once, before anything is sent that could not be confirmed. Connections made later may be to another server.
        try:
            connection.send_packed_command([confirmation.trial])  # type: ignore[no-untyped-call]  # not typed
            connection.read_response()
        except ResponseError as error:
            needs = " (waitaof needs Redis 7.2 or Valkey 7.2, or newer, and `appendonly yes`)"
            raise Unavailable(
                f"{self._shown_url} cannot do what durability = {confirmation.durability!r} asks for: {_why(error)}"
                f"{'' if isinstance(error, exceptions.NoPermissionError) else needs}"
            ) from error
        except (RedisError, OSError) as error:
            raise Unavailable(f"no connection to {self._shown_url}: {_why(error)}") from error
        self._tried = confirmation

    def _confirmed(self, answers: list[Answer[T]], confirmation: Confirmation, reply: object) -> list[Answer[T]]:
        match reply:
            case ResponseError():
                lack = f"the server says {reply}"
            case Exception():  # the connection: sent again, they may be confirmed yet
                lost = Unanswered(f"{self._shown_url} confirmed nothing: {reply}")
                return [lost if isinstance(answer, Answered) else answer for answer in answers]
            case _:
                lack = confirmation.lack(reply)
        if not lack:
            return answers
        why = (
            f"{self._shown_url} has accepted the tasks and not confirmed them: within {confirmation.seconds:g} s, "
            f"{lack} (durability = {confirmation.durability!r})"
        )
        return [Unconfirmed(why) if isinstance(answer, Answered) else answer for answer in answers]

    def _drop(self, connection: redis.Connection) -> None:
        connection.disconnect()  # type: ignore[no-untyped-call]  # redis-py does not type it
        self._pool.release(connection)

    def _connect(self) -> redis.Connection:
        try:
            return self._pool.get_connection()
        except (RedisError, OSError) as error:
            raise unavailable(f"no connection to {self._shown_url}: {_why(error)}", error) from error
        except BaseException:
            # Interrupted in its greeting, it may be back in the pool with no database selected and answers to come.
            self._pool.disconnect(inuse_connections=False)
            raise

    def _judge(self, command: Command[T], reply: object) -> Answer[T]:
        if not isinstance(reply, Exception):
            try:
                return Answered(read_reply(command, reply))
            except Refused as error:
                return Unanswered(f"{self._shown_url} answered something else: {error}")
        match reply:
            case exceptions.OutOfMemoryError():
                return NotAccepted(ServerFull(f"{self._shown_url} takes no more tasks, its memory is full: {reply}"))
            case ResponseError() | redis.BusyLoadingError() | redis.AuthenticationError():
                return NotAccepted(unavailable(f"{self._shown_url} refused: {_why(reply)}", reply))
            case _:
                return Unanswered(f"{self._shown_url} did not answer: {reply}")


def _why(error: Exception) -> str:
    # What a server replied, or what redis-py says of a connection.
    text = without_arguments(str(error))
    if wants_password(text):
        return (
            "it wants a password: write it in redis_url (or ROTA_REDIS_URL) as redis://:PASSWORD@HOST:PORT/0, with the "
            "user before the colon if there is one"
        )
    return f"{text}: check user, password and its permissions (ACL) in redis_url" if is_denial(error) else text


def _pipeline(
    connection: redis.Connection, commands: Iterable[Command[T]], pack: Callable[[Command[T]], bytes], tail: bytes
) -> tuple[list[Command[T]], list[object]]:
    # The commands, with one reply or exception each, and one more for the tail if there is one.
    sent: list[Command[T]] = []
    coming = iter(commands)

    def packed() -> Iterator[bytes]:
        for command in coming:
            sent.append(command)
            data = pack(command)
            if not connection.is_connected:
                raise redis.ConnectionError("the client was closed")
            yield data
        if tail:
            yield tail

    try:  # in one call: a second one would connect anew when the client was closed meanwhile, and mix up the answers
        connection.send_packed_command(packed())  # type: ignore[no-untyped-call]  # redis-py does not type it
    except (RedisError, OSError) as error:
        sent += coming
        return sent, [error] * (len(sent) + bool(tail))
    return sent, _replies(connection, len(sent) + bool(tail))


def _replies(connection: redis.Connection, count: int) -> list[object]:
    replies: list[object] = []
    moved = False
    for _ in range(count):
        try:
            replies.append(connection.read_response())
        except ResponseError as error:
            replies.append(error)
            moved = moved or isinstance(error, exceptions.ReadOnlyError) or str(error).startswith("NOREPLICAS")
        except (RedisError, OSError) as error:
            # What followed may have been carried out, even when the error itself is a refusal.
            connection.disconnect()  # type: ignore[no-untyped-call]  # redis-py does not type it
            lost = redis.ConnectionError(f"the connection ended: {error}")
            return [*replies, error, *[lost] * (count - len(replies) - 1)]
    if moved:  # it is no primary any more, or cut off from its replicas: the next connection looks for the new one
        connection.disconnect()  # type: ignore[no-untyped-call]  # redis-py does not type it
    return replies


def _teach(connection: redis.Connection, commands: Sequence[Command[Any]], replies: list[object], tail: bytes) -> None:
    # What the server did not do for want of the script's text is sent again, with the text; and the tail behind it.
    unknown = [n for n, reply in enumerate(replies) if isinstance(reply, exceptions.NoScriptError)]
    if unknown:
        is_same = connection.is_connected
        _, taught = _pipeline(connection, [commands[n] for n in unknown], Command.by_text, tail)
        if tail and not is_same:  # a connection made anew confirms nothing of what went by the one before
            taught[-1] = redis.ConnectionError("the connection ended before all was confirmed")
        for n, reply in zip([*unknown, -1] if tail else unknown, taught, strict=True):
            replies[n] = reply
