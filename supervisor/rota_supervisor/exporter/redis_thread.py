"""Calls to Redis that a separate thread makes over one connection, one after the other.

A call can take as long as a worker would wait for a reply, but no page waits that long. For data that is read
repeatedly, a page shows the last result if a new one does not arrive in time. For other data, a request waits for at
most CALL_SECONDS.
"""

import queue
import select
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from rota.child.child_settings import ServerSettings
from rota.protocol.scripts import RunCall, ScriptCall
from rota.server import address, connection
from rota.server.server_errors import ServerError

T = TypeVar("T")

LIMIT_SECONDS: Final = 0.5  # how long a page waits for a new result
CALL_SECONDS: Final = 3.0  # how long a request waits, but only LIMIT_SECONDS if the last request got no reply
FRESH_SECONDS: Final = 1.0
STALE_SECONDS: Final = 30.0  # a reply that is older than this is no longer shown
READER_SECONDS: Final = 120.0  # results are kept fresh for this long after a read; Prometheus reads once a minute


class NoReply(Exception):
    """The lack of a usable reply: Redis is unreachable, did not reply in time, or sent a reply with an unexpected
    structure.
    """


class Runs(Protocol):
    """The interface of a connection, as far as this module needs it."""

    @property
    def is_to_renew(self) -> bool:
        """Whether the connection should be replaced before the next call."""
        ...

    def run(self, call: ScriptCall[T]) -> T:
        """Run a command and return its result. Raises ServerError."""

    def fileno(self) -> int: ...

    def close(self) -> None: ...


def connector(server: ServerSettings) -> Callable[[], connection.Connection]:
    """Return a function that connects to the server or raises ServerError. Raises ValueError if the URL is not
    usable."""
    redis = address.address_of(server)
    options = connection.ConnectionOptions("rota-exporter")  # with the same timeouts as a worker's connection
    return lambda: connection.connect(redis, options)


class PendingCall(Generic[T]):
    """A call that is queued for the thread, is being made, or has ended. The thread skips the call if `is_dropped` is
    set. Times are monotonic. `ended_at` is set before `has_ended`.
    """

    def __init__(self, make: Callable[[RunCall], T]) -> None:
        self.make = make
        self.queued_at = self.ended_at = time.monotonic()
        self.results: list[T] = []  # the reply, once it has arrived
        self.has_ended = threading.Event()
        self.is_dropped = False

    @property
    def seconds(self) -> float:
        """The time from the request to the end of the call, which must have ended."""
        return self.ended_at - self.queued_at


class RedisThread:
    """The thread that makes calls to Redis.

    `connect` returns a connection or raises ServerError. The thread connects for the first call, and again after a
    failure.
    """

    def __init__(self, connect: Callable[[], Runs]) -> None:
        self._connect = connect
        self._connection: Runs | None = None
        self._pending: queue.SimpleQueue[PendingCall[Any]] = queue.SimpleQueue()
        self._wait_seconds = CALL_SECONDS
        threading.Thread(target=self._run_calls, name="redis", daemon=True).start()

    def call(self, make: Callable[[RunCall], T]) -> T:
        """Call `make` in the thread, and return its result. The argument of `make` is a function that runs commands.
        Raises NoReply.
        """
        pending = self.put(make)
        pending.is_dropped = not pending.has_ended.wait(self._wait_seconds)
        self._wait_seconds = LIMIT_SECONDS if pending.is_dropped else CALL_SECONDS
        if pending.is_dropped or not pending.results:
            raise NoReply
        return pending.results[0]

    def put(self, make: Callable[[RunCall], T]) -> PendingCall[T]:
        """Let the thread call `make` later, and return the pending call."""
        pending = PendingCall(make)
        self._pending.put(pending)
        return pending

    def _run_calls(self) -> None:
        while True:
            pending = self._pending.get()
            if not pending.is_dropped:
                self._execute(pending)
            pending.ended_at = time.monotonic()
            pending.has_ended.set()

    def _execute(self, pending: PendingCall[T]) -> None:
        try:
            pending.results.append(pending.make(self._run))
        except (ServerError, ValueError, IndexError, TypeError):
            # An outage is not logged here, because the master logs it. The last three exception types mean a reply with
            # an unexpected structure, which must not end this thread either. The next call connects again.
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _run(self, call: ScriptCall[T]) -> T:
        # A connection that is readable before a call was closed by the server, which was restarted or closes idle
        # connections.
        made = self._connection
        if made is not None and (made.is_to_renew or connection.wait_for(made.fileno(), select.POLLIN, 0.0)):
            self._disconnect()
        if self._connection is None:
            self._connection = self._connect()
        return self._connection.run(call)


class CachedResult(Generic[T]):
    """A result that is read from Redis on demand, but at most once a second.

    While Redis is slow, the last result is returned until the next result arrives. If the result was read recently, the
    next one is requested in advance. A reader never waits longer than LIMIT_SECONDS. Two threads must not use an object
    at the same time.
    """

    def __init__(self, redis: RedisThread, make: Callable[[RunCall], T]) -> None:
        self._redis = redis
        self._make = make
        self._pending: PendingCall[T] | None = None
        self._last: PendingCall[T] | None = None  # the last call with a result, unless a later call failed
        self._read_at = time.monotonic()  # counts as a read, so that the first result is requested in advance

    def read(self) -> T | None:
        """Wait for a new result for at most LIMIT_SECONDS. Return the latest result, which may be older. Return None if
        the last call failed or the latest result is too old.
        """
        self._read_at = time.monotonic()
        pending = self._current(self._read_at)
        pending.has_ended.wait(max(0.0, pending.queued_at + LIMIT_SECONDS - self._read_at))
        self._settle()
        return self._last.results[0] if self._last is not None else None

    def keep_fresh(self) -> None:
        """Request a new result in advance if calls take long and the result was read recently. Call this method about
        once a second.
        """
        now = time.monotonic()
        self._settle()
        is_slow = self._last is None or self._last.seconds > LIMIT_SECONDS
        if is_slow and now - self._read_at < READER_SECONDS:
            self._current(now)

    def _current(self, now: float) -> PendingCall[T]:
        """Return the pending call, or a new one if the last result is no longer fresh."""
        self._settle()
        pending = self._pending
        if pending is None or (pending.has_ended.is_set() and now - pending.queued_at >= FRESH_SECONDS):
            self._pending = pending = self._redis.put(self._make)
        return pending

    def _settle(self) -> None:
        pending = self._pending
        if pending is not None and pending.has_ended.is_set():
            self._last = pending if pending.results else None
        if self._last is not None and time.monotonic() - self._last.queued_at > STALE_SECONDS:
            self._last = None
