"""Links and outages. A link is a connection that is opened again after it was lost. An outage is the time from the
first error of a connection to the next command that succeeds. Outages are logged and counted."""

import time
from typing import Any, Generic, TypeVar

from rota.child.slots import boottime_ns
from rota.durations import Backoff
from rota.protocol.scripts import ScriptCall
from rota.server.address import Address
from rota.server.connection import Connection, ConnectionOptions, connect
from rota.server.server_errors import ConnectionLost, PushedBack, ServerError, UnknownScript, read_reply
from rota.server.session import NO_REPLY
from rota.telemetry import log, log_events
from rota.telemetry.metrics import REDIS_ERRORS
from rota.telemetry.recorder import Recorder

T = TypeVar("T")
_FIRST_SECONDS = 0.05
_MAX_SECONDS = 2.0
# While a cluster moves a slot, the node still replies at once, and only another attempt shows that the slot has moved.
_MAX_REDIRECTED_SECONDS = 0.2


class Outages:
    """Logs and counts the outages of a connection. An outage lasts from the first error to the next command that
    succeeds."""

    def __init__(self, name: str, recorder: Recorder) -> None:
        self.name = name
        self._recorder = recorder
        self._backoff = Backoff(_FIRST_SECONDS, _MAX_SECONDS)
        self._lost_at: float | None = None

    def failed(self, error: ServerError) -> float:
        """Count an error, and log it if it is the first error of an outage. Returns for how many seconds to wait before
        the next attempt."""
        self._recorder.counter(REDIS_ERRORS, error.reason).add()
        if self._lost_at is None:
            self._lost_at = time.monotonic()
            log.logger().warning(log_events.REDIS_LOST, reason=error.reason, error=str(error), link=self.name)
        seconds = self._backoff.next_seconds()
        return min(seconds, _MAX_REDIRECTED_SECONDS) if error.is_redirection else seconds

    def succeeded(self) -> None:
        """End the outage, if there is one, and log that. Call this after each command that succeeded."""
        if self._lost_at is None:
            return
        away_seconds = round(time.monotonic() - self._lost_at, 3)
        log.logger().info(log_events.REDIS_BACK, away_seconds=away_seconds, link=self.name)
        self._lost_at = None
        self._backoff.reset()


class Pipelined(Generic[T]):
    """A call that was sent at `sent_ns` (CLOCK_BOOTTIME), and whose reply is received later, when it is needed."""

    __slots__ = ("_call", "_connection", "_reply", "sent_ns")

    def __init__(self, connection: Connection, call: ScriptCall[T]) -> None:
        self._connection = connection
        self._call = call
        self._reply: Any = NO_REPLY
        self.sent_ns = boottime_ns()
        try:
            connection.send(call.by_sha())
        except ServerError as error:
            self._reply = error

    def take_in(self) -> bool:
        """Receive the reply and store it for `reply`. If the reply is an error, the error is stored. Returns False if
        the connection can no longer be used."""
        if self._reply is NO_REPLY:
            try:
                self._reply = self._connection.try_receive()  # in most cases the reply has already arrived
                if self._reply is NO_REPLY:
                    self._reply = self._connection.receive()
            except ServerError as error:
                self._reply = error
        return not isinstance(self._reply, ConnectionLost)

    def reply(self) -> T:
        """Return the parsed reply, waiting for it if necessary. This can be called only once. Raises ServerError if the
        call failed."""
        self.take_in()
        reply = self._reply
        self._reply = None
        # The server has lost its scripts in the meantime, so send the text of this script.
        if isinstance(reply, UnknownScript):
            return self._connection.run(self._call)
        if isinstance(reply, ServerError):
            raise reply
        return read_reply(self._call, reply)


class Link:
    """A holder of at most one connection, which connects again after the connection was lost. A link never repeats a
    command. If a command may be repeated, the caller repeats it."""

    def __init__(self, address: Address, options: ConnectionOptions, recorder: Recorder) -> None:
        self._address = address
        self._options = options
        self._outages = Outages(options.name, recorder)
        self._connection: Connection | None = None
        self._pipelined: Pipelined[Any] | None = None
        self.succeeded = self._outages.succeeded

    def connection(self, *, is_parked: bool = False) -> Connection:
        """Return the connection, and connect first if there is none. Raises ServerError if that fails.

        If a pipelined call has had no reply yet, this first receives that reply, because otherwise the reply would be
        mistaken for the reply to the next command. This also replaces the connection if its password expires soon. Pass
        `is_parked` to prevent that while a blocking command is waiting on the connection.
        """
        pipelined = self._pipelined
        self._pipelined = None
        if pipelined is not None and not pipelined.take_in():
            self.close()
        if self._connection is not None and not is_parked and self._connection.is_to_renew:
            self.close()
        if self._connection is None:
            self._connection = connect(self._address, self._options)
        return self._connection

    def pipeline(self, call: ScriptCall[T]) -> Pipelined[T] | None:
        """Send a call without waiting for its reply, so that the caller can do other work until the reply arrives.
        Returns None if there is no connection."""
        if self._connection is None:
            return None
        sent = self._pipelined = Pipelined(self.connection(), call)
        return sent

    def failed(self, error: ServerError) -> float:
        """Log and count an error, and close the connection unless it can still be used. Returns for how many seconds to
        wait before the next attempt."""
        if not isinstance(error, PushedBack):
            self.close()
        return self._outages.failed(error)

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
