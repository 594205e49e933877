"""The client's blocking connections: of redis-py, and no command ever repeated behind our back.

A connection on which all was answered is kept for the next exchange, since eight threads enqueue 1.6 times as much so
as through redis-py's own pool (ADR 20); any other is closed.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import redis
from redis import exceptions
from redis.exceptions import RedisError, ResponseError

from rota.client.answers import Answer, Exchange, Judge
from rota.client.primary_connection import Timed, make_connection
from rota.protocol.command import Command
from rota.server.address import parse_address
from rota.server.durability import Confirmation

T = TypeVar("T")

_TAKEN_AT_ONCE = 1 << 14  # bytes, for which there is always room on a connection on which nothing is on its way


class ClientPool:
    """Connections to one server, or one primary. Thread-safe; a forked child makes connections of its own."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        """Connects at the first use. Raises ValueError for a URL that is none."""
        self._address = parse_address(url)
        self._seconds = timeout_seconds
        self._judge = Judge(url)
        self._all: set[Timed] = set()  # in use or idle, so that they can be closed
        self._kept: list[Timed] = []  # idle
        self._tried: Confirmation | None = None

    def exchange(self, asked: Exchange[T]) -> list[Answer[T]]:
        """Send all commands, and collect an answer for each.

        Raises Unavailable, nothing having been sent, when there is no connection, or the server can never confirm.
        """
        commands, confirmation, deadline, share = asked
        pack, tail = Command.by_sha, b""
        connection = self._take(deadline)
        try:
            if confirmation is not None:
                self._try(connection, confirmation)
                confirmation = confirmation.within(deadline - time.monotonic())
                tail = confirmation.waiting
                if not connection.is_known:  # a server without the script would have us wait to confirm nothing
                    pack = Command.by_text
            connection.allow(deadline, share)
            sent, replies = _pipeline(connection, commands, pack, tail)
            failed = [reply for reply in replies if isinstance(reply, Exception)]
            if failed:
                _teach(connection, sent, replies, tail)
        except BaseException:  # a signal or a time limit: the next to use the connection would get our answers
            self._drop(connection)
            raise
        if failed and not (connection.is_connected and connection in self._all):  # lost, or the client was closed
            self._drop(connection)
        else:
            connection.is_known = True
            self._kept.append(connection)
        confirmed = None if confirmation is None else replies.pop()
        answers = [self._judge.judge(command, reply) for command, reply in zip(sent, replies, strict=True)]
        return answers if confirmation is None else self._judge.confirmed(answers, confirmation, confirmed)

    def close(self) -> None:
        """Close all connections. May be repeated; using the pool again opens new ones."""
        self._kept.clear()
        for connection in list(self._all):
            self._drop(connection)

    def _take(self, deadline: float) -> Timed:
        # One kept from an earlier exchange, or else a new one. It may not be closed, or hold an answer that somebody
        # left unread.
        while self._kept:
            try:
                connection = self._kept.pop()
            except IndexError:  # another thread took it
                break
            if connection.pid == os.getpid() and connection.is_connected and not _has_news(connection):
                connection.deadline = deadline
                return connection
            self._drop(connection)
        return self._connect(deadline)

    def _connect(self, deadline: float) -> Timed:
        connection = make_connection(self._address, self._seconds)
        connection.deadline = deadline
        self._all.add(connection)
        try:
            connection.connect()  # type: ignore[no-untyped-call]  # redis-py does not type it
        except (RedisError, OSError) as error:
            self._drop(connection)
            raise self._judge.no_connection(error) from error
        except BaseException:  # interrupted in its greeting
            self._drop(connection)
            raise
        return connection

    def _try(self, connection: Timed, confirmation: Confirmation) -> None:
        # Once, before anything is sent that could not be confirmed. Connections made later may be to another server.
        if self._tried == confirmation:
            return
        try:
            connection.send_packed_command([confirmation.trial])  # type: ignore[no-untyped-call]  # not typed
            connection.read_response()
        except ResponseError as error:
            raise self._judge.never_confirms(confirmation, error) from error
        except (RedisError, OSError) as error:
            raise self._judge.no_connection(error) from error
        self._tried = confirmation

    def _drop(self, connection: Timed) -> None:
        # Of the parent of a fork it closes this process's copy alone.
        self._all.discard(connection)
        connection.disconnect()  # type: ignore[no-untyped-call]  # redis-py does not type it


def _has_news(connection: Timed) -> bool:
    """Whether there is something to read, which nobody asked for: an answer left unread, or the end."""
    try:
        return connection.can_read()
    except (RedisError, OSError):
        return True


def _pipeline(
    connection: Timed, commands: Iterable[Command[T]], pack: Callable[[Command[T]], bytes], tail: bytes
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
            if len(sent) > 1 or len(data) > _TAKEN_AT_ONCE:
                connection.hurry()
            yield data
        if tail:
            yield tail

    try:  # in one call: a second one would connect anew when the client was closed meanwhile, and mix up the answers
        connection.send_packed_command(packed())  # type: ignore[no-untyped-call]  # redis-py does not type it
    except (RedisError, OSError) as error:
        sent += coming
        return sent, [error] * (len(sent) + bool(tail))
    return sent, _replies(connection, len(sent) + bool(tail))


def _replies(connection: Timed, count: int) -> list[object]:
    replies: list[object] = []
    moved = False
    for n in range(count):
        try:
            replies.append(connection.read_response() if n else connection.read_first())
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


def _teach(connection: Timed, commands: Sequence[Command[Any]], replies: list[object], tail: bytes) -> None:
    # What the server did not do for want of the script's text is sent again, with the text; and the tail behind it.
    unknown = [n for n, reply in enumerate(replies) if isinstance(reply, exceptions.NoScriptError)]
    if unknown:
        is_same = connection.is_connected
        _, taught = _pipeline(connection, [commands[n] for n in unknown], Command.by_text, tail)
        if tail and not is_same:  # a connection made anew confirms nothing of what went by the one before
            taught[-1] = redis.ConnectionError("the connection ended before all was confirmed")
        for n, reply in zip([*unknown, -1] if tail else unknown, taught, strict=True):
            replies[n] = reply
