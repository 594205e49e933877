"""The blocking connections of a client, on which each wait ends by a deadline: one connection, a parked one, a pool.

The pool has as many connections as threads use at a time. No command is repeated behind the caller's back: a connection
on which all was answered is kept for the next exchange, any other is closed, and with one that was lost all that are
idle. A list needs no lock to give one out (ADR 20).
"""

import math
import os
import select
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from rota.client.answers import Answer, Exchange, Judge, unavailable
from rota.errors import Unavailable
from rota.protocol.command import Command
from rota.protocol.store import BATCH
from rota.protocol.wire import command, pack, text_of
from rota.server.connection import GRACE_SECONDS, PARK_SECONDS, ConnectionOptions, unanswered, wait_for
from rota.server.endpoint import Endpoint
from rota.server.server_errors import REASON_NETWORK, REASON_SILENT, ConnectionLost, ServerError, UnknownScript
from rota.server.session import NO_REPLY, Confirmation

_NAME: Final = "rota:client"
_NO_FD: Final = -1
_RINGS: Final = 4096

T = TypeVar("T")


class TimedConnection:
    """A connection for commands that write. Each step of what is said on it ends by the deadline (monotonic): each
    address that is tried, what sentinels are asked, the handshakes, the greeting, and each answer. The look-up of a
    host's name alone is bound by resolv.conf. `is_known`: there was an exchange by it already."""

    def __init__(self, endpoint: Endpoint, seconds: float, deadline: float = math.inf) -> None:
        """Connect; no step takes more than so many seconds. Raises ServerError."""
        self.is_known = False
        self._pid = os.getpid()
        self._deadline = _Deadline(deadline)
        self._connection = endpoint.connect(ConnectionOptions(_NAME, seconds, seconds, self._deadline.wait))
        if time.monotonic() >= deadline:  # of an application's pool, which has timeouts of its own
            self._connection.give_back()
            raise ConnectionLost("there was a connection only when the time was over", REASON_SILENT)
        self.send = self._connection.send
        self.receive = self._connection.receive
        self.try_receive = self._connection.try_receive
        self.fileno = self._connection.fileno
        self._news = select.poll()
        self._news.register(self, select.POLLIN)

    def __del__(self) -> None:
        with suppress(AttributeError):  # it never came to a connection
            self._connection.close()  # nobody is to be warned of a client that was not closed

    def allow(self, deadline: float) -> None:
        """Have what follows end by then."""
        self._deadline.at = deadline

    @property
    def is_quiet(self) -> bool:
        """Whether it is of this process, need not be replaced, and there is nothing to read that nobody asked for: no
        answer that was left unread, and no end."""
        if self._connection.is_to_renew:
            return False
        return self._pid == os.getpid() and self.fileno() >= 0 and not self._news.poll(0)

    def ask(self, data: bytes) -> Any:
        """Send a command and wait for its reply. Raises ServerError: error replies too."""
        self.send(data)
        return self.receive()

    def give_back(self) -> None:
        """Return the connection to the pool that lent it: all that was sent on it is answered."""
        self._connection.give_back()

    def close(self) -> None:
        """Close it, whoever waits on it; of the parent of a fork this process's copy alone. May be repeated."""
        self._connection.close(everywhere=self._pid == os.getpid())


class _Deadline:
    def __init__(self, at: float) -> None:
        self.at = at

    def wait(self, fd: int, events: int, seconds: float) -> bool:
        """The `Wait` of a connection, which ends by then."""
        if fd < 0:
            raise ConnectionLost("another thread closed the client", REASON_NETWORK)
        return wait_for(fd, events, min(seconds, self.at - time.monotonic()))


class ReplyList:
    """The list `key`, listened to for PARK_SECONDS at a time: so a connection that is dead is found.

    `silent_at`: when an answer is overdue (monotonic); inf when it is not parked.
    """

    def __init__(self, endpoint: Endpoint, timeout_seconds: float, key: str) -> None:
        """Connects when it is first parked."""
        self._endpoint = endpoint
        self._timeout_seconds = timeout_seconds
        self._connection: TimedConnection | None = None
        # The LPOP is answered with the BLPOP: whatever came at once is told at once.
        self._parking = command((pack(("BLPOP", key, PARK_SECONDS)),)) + command((pack(("LPOP", key, BATCH)),))
        self.silent_at = math.inf

    @property
    def is_parked(self) -> bool:
        """Whether an answer is to come."""
        return self.silent_at < math.inf

    def park(self) -> None:
        """Begin to listen. Raises Unavailable."""
        try:
            if self._connection is None:
                self._connection = TimedConnection(self._endpoint, self._timeout_seconds)
            self._connection.send(self._parking)
        except ServerError as error:
            raise self._lost(error) from error
        self.silent_at = time.monotonic() + PARK_SECONDS + GRACE_SECONDS

    def fileno(self) -> int:
        """Return the descriptor to wait on, -1 if it is not parked."""
        return self._connection.fileno() if self._connection is not None and self.is_parked else _NO_FD

    def words(self) -> list[str] | None:
        """What was pushed; nothing when the time was over; None when no answer has come. Raises Unavailable."""
        if self._connection is None or not self.is_parked:
            return None
        try:
            first: Any = self._connection.try_receive()
            if first is NO_REPLY:
                if time.monotonic() > self.silent_at:
                    raise unanswered(PARK_SECONDS)
                return None
            rest: Any = self._connection.receive()
        except ServerError as error:
            raise self._lost(error) from error
        self.silent_at = math.inf
        return [text_of(word) for word in ([first[1]] if first else []) + (rest or [])]

    def close(self) -> None:
        """Close the connection; the next `park` makes another."""
        self.silent_at = math.inf
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _lost(self, error: Exception) -> Unavailable:
        self.close()
        return unavailable(str(error), error)


class Wakeup:
    """A bell that ends a wait in this process. It is made of sockets: ringing one that was closed reaches nobody else's
    descriptor."""

    def __init__(self) -> None:
        self._heard, self._rung = socket.socketpair()
        self._heard.setblocking(False)
        self._rung.setblocking(False)

    def ring(self) -> None:
        """End the wait that goes on, or the next one. May be called from anywhere."""
        with suppress(OSError):  # it is full, which is heard too; or closed
            self._rung.send(b"\0")

    def wait(self, seconds: float, fd: int = _NO_FD) -> None:
        """Wait until it rings, or there is something to read, or the time is over."""
        poll = select.poll()
        for each in {self._heard.fileno(), fd} - {_NO_FD}:
            poll.register(each, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)
        with suppress(OSError):
            self._heard.recv(_RINGS)

    def close(self) -> None:
        """Close it. May be repeated."""
        self._heard.close()
        self._rung.close()


class ClientPool:
    """Connections to one server, or one primary. Thread-safe; a forked child makes connections of its own."""

    def __init__(self, endpoint: Endpoint, timeout_seconds: float) -> None:
        """Connects at the first use."""
        self.endpoint = endpoint
        self.timeout_seconds = timeout_seconds
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
            connection = TimedConnection(self.endpoint, self.timeout_seconds, deadline)
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
