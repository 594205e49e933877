"""The blocking connections of a client, each with a deadline for every wait: single connections, a connection that
blocks in BLPOP, and a pool.

The pool has one connection for each thread that uses it at the same time. It never repeats a command that may have been
carried out. If all commands of an exchange got a reply, their connection is kept for the next exchange. Otherwise it is
closed. If a connection is lost, all idle connections are closed too. Taking a connection from the list of idle ones
needs no lock (ADR 20).
"""

import math
import os
import select
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from rota.client.command_replies import (
    Exchange,
    Redirections,
    Reply,
    ReplyReader,
    not_sent_again,
    redirected,
    unavailable,
)
from rota.errors import Unavailable
from rota.protocol.scripts import ScriptCall
from rota.protocol.store import BATCH
from rota.protocol.wire import command, pack, text_of
from rota.server.connection import GRACE_SECONDS, PARK_SECONDS, ConnectionOptions, silence_error, wait_for
from rota.server.endpoint import Endpoint
from rota.server.server_errors import REASON_NETWORK, REASON_SILENT, ConnectionLost, ServerError, UnknownScript
from rota.server.session import NO_REPLY, Confirmation

_NAME: Final = "rota:client"
_NO_FD: Final = -1
_RINGS: Final = 4096

T = TypeVar("T")


class TimedConnection:
    """A connection on which no step continues beyond a deadline (monotonic seconds).

    The steps are trying an address, querying a sentinel, the handshakes, the first commands, and waiting for a reply.
    The deadline does not limit the resolution of a host name, for which resolv.conf sets the timeout.
    """

    def __init__(self, endpoint: Endpoint, seconds: float, deadline: float = math.inf) -> None:
        """Connect. No step takes longer than `seconds`, and none continues after the deadline. Raises ServerError."""
        self.is_known = False  # Whether an exchange has already succeeded on this connection.
        self._pid = os.getpid()
        self._deadline = _Deadline(deadline)
        self._connection = endpoint.connect(ConnectionOptions(_NAME, seconds, seconds, self._deadline.wait))
        # If the application passed its own connection pool, that pool has its own timeouts, which may be longer.
        if time.monotonic() >= deadline:
            self._connection.give_back()
            raise ConnectionLost("the connection was not ready before the deadline", REASON_SILENT)
        self.send = self._connection.send
        self.receive = self._connection.receive
        self.try_receive = self._connection.try_receive
        self.fileno = self._connection.fileno
        self._news = select.poll()
        self._news.register(self, select.POLLIN)

    def __del__(self) -> None:
        with suppress(AttributeError):  # There is no connection if the constructor failed.
            self._connection.close()  # Otherwise a client that was not closed would cause a ResourceWarning.

    def allow(self, deadline: float) -> None:
        """Set the deadline for the reads and writes that follow."""
        self._deadline.at = deadline

    @property
    def is_quiet(self) -> bool:
        """Whether the connection can be used: it belongs to this process, need not be renewed, and has no unread data.

        Unread data means that an earlier caller did not read a reply, or that the server has closed the connection.
        """
        if self._connection.is_to_renew:
            return False
        return self._pid == os.getpid() and self.fileno() >= 0 and not self._news.poll(0)

    def execute(self, data: bytes) -> Any:
        """Send a command and wait for its reply. Raises ServerError if there is no reply, or if the reply is an
        error."""
        self.send(data)
        return self.receive()

    def give_back(self) -> None:
        """Return the connection to the application's pool. All replies to commands sent on it must have been
        received."""
        self._connection.give_back()

    def close(self) -> None:
        """Close the connection, even if a thread waits on it. This may be called more than once.

        After a fork, this closes only the child's copy of the parent's connection.
        """
        self._connection.close(everywhere=self._pid == os.getpid())


class _Deadline:
    def __init__(self, at: float) -> None:
        self.at = at

    def wait(self, fd: int, events: int, seconds: float) -> bool:
        """Wait for events on a descriptor, like `wait_for`, but not beyond the deadline."""
        if fd < 0:
            raise ConnectionLost("another thread closed the client", REASON_NETWORK)
        return wait_for(fd, events, min(seconds, self.at - time.monotonic()))


class ReplyList:
    """A reader of messages from the Redis list `key`. It waits for PARK_SECONDS at a time, so that it notices a dead
    connection."""

    def __init__(self, endpoint: Endpoint, timeout_seconds: float, key: str) -> None:
        """Store the settings. The first `park` connects."""
        self._endpoint = endpoint
        self._timeout_seconds = timeout_seconds
        self._connection: TimedConnection | None = None
        # The LPOP runs when the BLPOP returns, and takes the other messages in the list.
        self._parking = command((pack(("BLPOP", key, PARK_SECONDS)),)) + command((pack(("LPOP", key, BATCH)),))
        # When a reply is overdue (monotonic seconds), or inf if the reader is not waiting in BLPOP.
        self.silent_at = math.inf

    @property
    def is_parked(self) -> bool:
        """Whether the reader is waiting in BLPOP, so that a reply is expected."""
        return self.silent_at < math.inf

    def park(self) -> None:
        """Send a BLPOP, which waits for messages. Raises Unavailable if there is no connection."""
        try:
            if self._connection is None:
                self._connection = TimedConnection(self._endpoint, self._timeout_seconds)
            self._connection.send(self._parking)
        except ServerError as error:
            raise self._lost(error) from error
        self.silent_at = time.monotonic() + PARK_SECONDS + GRACE_SECONDS

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when a reply arrives, or -1 if the reader is not waiting in
        BLPOP."""
        return self._connection.fileno() if self._connection is not None and self.is_parked else _NO_FD

    def messages(self) -> list[str] | None:
        """Return the messages that have arrived.

        Returns an empty list if PARK_SECONDS have passed without a message, and None if no reply has come yet. Raises
        Unavailable if the connection is lost.
        """
        if self._connection is None or not self.is_parked:
            return None
        try:
            first: Any = self._connection.try_receive()
            if first is NO_REPLY:
                if time.monotonic() > self.silent_at:
                    raise silence_error(PARK_SECONDS)
                return None
            rest: Any = self._connection.receive()
        except ServerError as error:
            raise self._lost(error) from error
        self.silent_at = math.inf
        return [text_of(message) for message in ([first[1]] if first else []) + (rest or [])]

    def close(self) -> None:
        """Close the connection. The next `park` opens another connection."""
        self.silent_at = math.inf
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _lost(self, error: Exception) -> Unavailable:
        self.close()
        return unavailable(str(error), error)


class Wakeup:
    """A wait of this process that another thread or a signal handler can end.

    The wait uses socket objects instead of bare descriptors. A closed socket object refuses to send, so `ring` may be
    called after `close`. The number of a closed descriptor, however, may already belong to another file.
    """

    def __init__(self) -> None:
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)

    def ring(self) -> None:
        """End the current wait, or the next one. Any thread and any signal handler may call this."""
        with suppress(OSError):  # Either the buffer is full, which ends the wait as well, or the sockets are closed.
            self._sender.send(b"\0")

    def wait(self, seconds: float, fd: int = _NO_FD) -> None:
        """Wait until `ring` is called, the descriptor is readable, or the time has passed."""
        poll = select.poll()
        for each in {self._receiver.fileno(), fd} - {_NO_FD}:
            poll.register(each, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)
        with suppress(OSError):
            self._receiver.recv(_RINGS)

    def close(self) -> None:
        """Close the sockets. This may be called more than once."""
        self._receiver.close()
        self._sender.close()


class ClientPool:
    """A thread-safe pool of connections to one server, or to the primary that sentinels name.

    A forked child makes its own connections.
    """

    def __init__(self, endpoint: Endpoint, timeout_seconds: float) -> None:
        """Store the settings. The first use connects."""
        self.endpoint = endpoint
        self.timeout_seconds = timeout_seconds
        self._reader = ReplyReader(endpoint.shown, endpoint.credentials_in)
        self._all: set[TimedConnection] = set()  # All connections, so that `close` can also close connections in use.
        self._kept: list[TimedConnection] = []  # The idle connections.
        self._keep = self._kept.append if endpoint.keeps else self._give_back
        self._tried: Confirmation | None = None
        self._closed_times = 0

    def exchange(self, exchange: Exchange[T]) -> list[Reply[T]]:
        """Send all commands, and return one reply for each. Commands that a cluster redirects are sent again until the
        deadline.

        Raises Unavailable, before anything is sent, if there is no connection or if the exchange needs a confirmation
        that this server cannot give.
        """
        closed_times = self._closed_times
        sent, replies = self._exchange_once(exchange)
        redirections = Redirections(exchange, has_failover=self.endpoint.has_failover)
        while (seconds := redirections.pause_before(replies)) is not None:
            time.sleep(seconds)
            if self._closed_times != closed_times:
                break
            again = redirected(replies)
            repeated: list[Reply[T]]
            try:
                _, repeated = self._exchange_once(exchange._replace(commands=[sent[n] for n in again]))
            except Unavailable as error:  # in most cases no node has the slot yet
                repeated = [not_sent_again(error)] * len(again)
            for n, reply in zip(again, repeated, strict=True):
                replies[n] = reply
        return replies

    def _exchange_once(self, exchange: Exchange[T]) -> tuple[list[ScriptCall[T]], list[Reply[T]]]:
        """Send all commands, and return them with one reply for each."""
        commands, confirmation, deadline, share = exchange
        pack = ScriptCall.by_sha
        tail = b""
        connection = self._take(deadline)
        try:
            if confirmation is not None:
                self._try(connection, confirmation)
                confirmation = confirmation.within(deadline - time.monotonic())
                tail = confirmation.waiting
                # Send the script's text, because EVALSHA fails if the server does not have the script, and WAIT would
                # then have no write to wait for.
                if not connection.is_known:
                    pack = ScriptCall.by_text
            connection.allow(deadline - (deadline - time.monotonic()) * (1 - share))
            sent, raw = _pipeline(connection, commands, pack, tail)
            failed = any(isinstance(each, ServerError) for each in raw)
            if failed:
                _send_texts(connection, sent, raw, tail)
        # A signal or a time limit interrupted the exchange. The next user of this connection would read the replies to
        # it.
        except BaseException:
            self._drop(connection)
            raise
        if failed and (any(isinstance(each, ConnectionLost) for each in raw) or connection not in self._all):
            # The connection is lost, its server is no longer the primary, or the client was closed.
            self._drop(connection)
            self._drop_idle()  # The idle connections are to the same server.
        else:
            connection.is_known = True
            self._keep(connection)
        confirmed = None if confirmation is None else raw.pop()
        replies = [self._reader.read(command, each) for command, each in zip(sent, raw, strict=True)]
        if confirmation is not None:
            replies = self._reader.confirmed(replies, confirmation, confirmed)
        return sent, replies

    def close(self) -> None:
        """Close all connections, and send no redirected command again. This may be called more than once. The next use
        of the pool opens new connections."""
        self._closed_times += 1
        self._kept.clear()
        for connection in list(self._all):
            self._drop(connection)

    def _take(self, deadline: float) -> TimedConnection:
        # Returns an idle connection from an earlier exchange, or else a new one.
        while self._kept:
            try:
                connection = self._kept.pop()
            except IndexError:  # Another thread took the last connection in the meantime.
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
            raise self._reader.no_connection(error) from error
        self._all.add(connection)
        return connection

    def _give_back(self, connection: TimedConnection) -> None:
        self._all.discard(connection)
        connection.give_back()

    def _try(self, connection: TimedConnection, confirmation: Confirmation) -> None:
        # This check is made once, before the first command that needs the confirmation. A later connection may go to
        # another server, which is not checked.
        if self._tried == confirmation:
            return
        try:
            connection.execute(confirmation.trial)
        except ServerError as error:
            if error.is_reply:
                raise self._reader.never_confirms(confirmation, error) from error
            raise self._reader.no_connection(error) from error
        self._tried = confirmation

    def _drop_idle(self) -> None:
        with suppress(IndexError):  # `pop` raises IndexError when no connection is left.
            while True:
                self._drop(self._kept.pop())

    def _drop(self, connection: TimedConnection) -> None:
        self._all.discard(connection)
        connection.close()


def _pipeline(
    connection: TimedConnection, commands: Iterable[ScriptCall[T]], pack: Callable[[ScriptCall[T]], bytes], tail: bytes
) -> tuple[list[ScriptCall[T]], list[object]]:
    # Returns all commands, and a reply or an error for each. If there is a tail (WAIT or WAITAOF), the reply to it
    # comes last.
    sent: list[ScriptCall[T]] = []
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
            if not error.is_reply:  # The commands after this one may have been carried out.
                lost = ConnectionLost(f"the connection ended: {error}", REASON_NETWORK)
                replies += [lost] * (count - len(replies))
    return replies


def _send_texts(
    connection: TimedConnection, commands: Sequence[ScriptCall[Any]], replies: list[object], tail: bytes
) -> None:
    # If the server did not know a script, send the command again with the script's text, followed by the tail. This is
    # not done if the connection was lost.
    unknown = [n for n, reply in enumerate(replies) if isinstance(reply, UnknownScript)]
    if not unknown:
        return
    indexes = [*unknown, -1] if tail else unknown
    lost = [reply for reply in replies if isinstance(reply, ServerError) and not reply.is_reply]
    repeated: list[object] = [*lost[:1]] * len(indexes)
    if not repeated:
        _, repeated = _pipeline(connection, [commands[n] for n in unknown], ScriptCall.by_text, tail)
    for n, reply in zip(indexes, repeated, strict=True):
        replies[n] = reply
