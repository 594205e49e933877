"""The client's blocking connections, as many as threads use at a time: no command is ever repeated behind our back.

A connection on which all was answered is kept for the next exchange; any other is closed, and with one that was lost
all that are idle. A list needs no lock to give one out (ADR 20).
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from rota.client.answers import Answer, Exchange, Judge
from rota.client.blocking.timed_connection import TimedConnection
from rota.protocol.command import Command
from rota.server.endpoint import Endpoint
from rota.server.server_errors import REASON_NETWORK, ConnectionLost, ServerError, UnknownScript
from rota.server.session import Confirmation

T = TypeVar("T")


class ClientPool:
    """Connections to one server, or one primary. Thread-safe; a forked child makes connections of its own."""

    def __init__(self, endpoint: Endpoint, timeout_seconds: float) -> None:
        """Connects at the first use."""
        self._endpoint = endpoint
        self._seconds = timeout_seconds
        self._judge = Judge(endpoint.shown, endpoint.credentials_in)
        self._all: set[TimedConnection] = set()  # in use or idle, so that they can be closed
        self._kept: list[TimedConnection] = []  # idle
        self._keep = self._kept.append if endpoint.keeps else self._give_back
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
            connection.allow(deadline - (deadline - time.monotonic()) * (1 - share))
            sent, replies = _pipeline(connection, commands, pack, tail)
            failed = any(isinstance(reply, ServerError) for reply in replies)
            if failed:
                _teach(connection, sent, replies, tail)
        except BaseException:  # a signal or a time limit: the next to use the connection would get our answers
            self._drop(connection)
            raise
        if failed and (any(isinstance(reply, ConnectionLost) for reply in replies) or connection not in self._all):
            self._drop(connection)  # lost; or it is no primary any more; or the client was closed
            self._drop_idle()  # they lead to the same server, by the same way
        else:
            connection.is_known = True
            self._keep(connection)
        confirmed = None if confirmation is None else replies.pop()
        answers = [self._judge.judge(command, reply) for command, reply in zip(sent, replies, strict=True)]
        return answers if confirmation is None else self._judge.confirmed(answers, confirmation, confirmed)

    def close(self) -> None:
        """Close all connections. May be repeated; using the pool again opens new ones."""
        self._kept.clear()
        for connection in list(self._all):
            self._drop(connection)

    def _take(self, deadline: float) -> TimedConnection:
        # One kept from an earlier exchange, or else a new one.
        while self._kept:
            try:
                connection = self._kept.pop()
            except IndexError:  # another thread took it
                break
            if connection.is_quiet:
                connection.allow(deadline)
                return connection
            self._drop(connection)
        return self._connect(deadline)

    def _connect(self, deadline: float) -> TimedConnection:
        try:
            connection = TimedConnection(self._endpoint, self._seconds, deadline)
        except ServerError as error:
            raise self._judge.no_connection(error) from error
        self._all.add(connection)
        return connection

    def _give_back(self, connection: TimedConnection) -> None:
        self._all.discard(connection)
        connection.give_back()

    def _try(self, connection: TimedConnection, confirmation: Confirmation) -> None:
        # Once, before anything is sent that could not be confirmed. Connections made later may be to another server.
        if self._tried == confirmation:
            return
        try:
            connection.ask(confirmation.trial)
        except ServerError as error:
            if error.is_reply:
                raise self._judge.never_confirms(confirmation, error) from error
            raise self._judge.no_connection(error) from error
        self._tried = confirmation

    def _drop_idle(self) -> None:
        with suppress(IndexError):  # until none is left
            while True:
                self._drop(self._kept.pop())

    def _drop(self, connection: TimedConnection) -> None:
        self._all.discard(connection)
        connection.close()


def _pipeline(
    connection: TimedConnection, commands: Iterable[Command[T]], pack: Callable[[Command[T]], bytes], tail: bytes
) -> tuple[list[Command[T]], list[object]]:
    # The commands, with one reply or error each, and one more for the tail if there is one.
    sent: list[Command[T]] = []
    coming = iter(commands)
    try:
        for command in coming:
            sent.append(command)
            connection.send(pack(command))
        if tail:
            connection.send(tail)
    except ServerError as error:
        sent += coming
        return sent, [error] * (len(sent) + bool(tail))
    return sent, _replies(connection, len(sent) + bool(tail))


def _replies(connection: TimedConnection, count: int) -> list[object]:
    replies: list[object] = []
    while len(replies) < count:
        try:
            replies.append(connection.receive())
        except ServerError as error:
            replies.append(error)
            if not error.is_reply:  # what followed may have been carried out
                lost = ConnectionLost(f"the connection ended: {error}", REASON_NETWORK)
                replies += [lost] * (count - len(replies))
    return replies


def _teach(connection: TimedConnection, commands: Sequence[Command[Any]], replies: list[object], tail: bytes) -> None:
    # What the server did not do for want of the script's text is sent again, with the text; and the tail behind it. Not
    # on a connection that was given up, on which answers to other commands may still come.
    unknown = [n for n, reply in enumerate(replies) if isinstance(reply, UnknownScript)]
    if not unknown:
        return
    places = [*unknown, -1] if tail else unknown
    lost = [reply for reply in replies if isinstance(reply, ServerError) and not reply.is_reply]
    taught: list[object] = [*lost[:1]] * len(places)
    if not taught:
        _, taught = _pipeline(connection, [commands[n] for n in unknown], Command.by_text, tail)
    for n, reply in zip(places, taught, strict=True):
        replies[n] = reply
