"""The connections of a blocking client, and the calls that the client makes over them. The connections are thread-safe,
and safe to use after a fork."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from rota.client.blocking.waiting_thread import Waiting
from rota.client.command_replies import ClientWarnings, Exchange, Uncertain, known_names, value_of
from rota.client.enqueue_options import MAP_WAITS_NOT, Interceptor, OnceSent, OnCommit, check_on_commit, interception
from rota.client.sender import Sending, WithId, intercepted
from rota.client.timed_connections import ClientPool
from rota.client.waits import GroupQuery, WaitQuery, WaitResult
from rota.durations import Duration
from rota.errors import RotaError, Unavailable
from rota.protocol.groups import Room
from rota.protocol.scripts import ScriptCall, Steps, follow
from rota.protocol.store import Store
from rota.server.address import ServerAccess
from rota.server.endpoint import RedisClient, endpoint_of
from rota.soft_limit import time_limit_deferred

if TYPE_CHECKING:
    from rota.client.consumer import Consumer, ConsumerOptions

T = TypeVar("T")
W = TypeVar("W")
H = TypeVar("H", bound=WithId)

# The code that error messages suggest for repeating an enqueue that may have been accepted.
REPEATS: Final = "repeat()"
MAP_AT_ONCE: Final = MAP_WAITS_NOT


class Driver:
    """The connections of a client to one namespace of one server.

    A call without a nonce is sent only once, because the server could not recognize a second copy of it. The methods
    raise Unavailable if a call was not carried out, and Uncertain if no reply came.
    """

    def __init__(
        self,
        redis_url: str | None,
        access: ServerAccess,
        redis: RedisClient | None,
        namespace: str,
        timeout_seconds: float,
    ) -> None:
        """Check the arguments. The first call connects.

        Raises ValueError if the URL is not valid, and TypeError if `redis` cannot be used or both `redis` and a URL are
        given.
        """
        self.namespace = namespace
        self.timeout_seconds = timeout_seconds
        self.store = Store(namespace)
        self.endpoint = endpoint_of(redis_url, access, redis, self.store.keys.tasks)
        self.warnings = ClientWarnings(namespace, self.endpoint.place)
        self.pool = ClientPool(self.endpoint, timeout_seconds)
        self._waiting = Waiting(self.pool, self.store)

    def close(self) -> None:
        """Close the connections. This may be called more than once. The next request connects again."""
        with time_limit_deferred:
            self._waiting.close()
            self.pool.close()

    def interceptor(self) -> Interceptor | None:
        """Return the stand-in that replies in place of the server, or None outside of tests.

        Every call of the client gets here, so this also warns if the call blocks an event loop.
        """
        self.warnings.check_blocking()
        return interception.interceptor

    def run(self, command: ScriptCall[T], ids: Sequence[str] = (), deadline: float | None = None) -> T:
        """Send a command and return its reply. If the outcome is not known, the error names the tasks in `ids`."""
        if (interceptor := self.interceptor()) is not None:
            return interceptor.run(self.namespace, command)
        until = time.monotonic() + self.timeout_seconds if deadline is None else deadline
        with time_limit_deferred:
            [reply] = self.pool.exchange(Exchange([command], None, until))
        return value_of(reply, ids)

    def follow(self, steps: Steps[T], /) -> T:
        """Send the commands that the generator yields, all within one timeout, and return the generator's result."""
        deadline = time.monotonic() + self.timeout_seconds
        return follow(lambda command: self.run(command, (), deadline), steps)

    def send(self, sending: Sending[H]) -> list[H]:
        """Send an enqueue, and return its handles."""
        if (interceptor := self.interceptor()) is not None:
            return intercepted(interceptor, self.namespace, sending)
        return self.drive(sending)

    def drive(self, sending: Sending[H]) -> list[H]:
        """Send an enqueue, then warn about task names that no running fleet declares.

        Only names that this process does not declare are checked, and each name is checked only once.
        """
        handles = self._driven(sending)
        if self.warnings.to_check:
            names = self.warnings.names_to_check()
            with suppress(RotaError):
                self.warnings.check_names(names, self.follow(known_names(self.store)))
        return handles

    def _driven(self, sending: Sending[H]) -> list[H]:
        with time_limit_deferred:
            try:
                exchange = next(sending)
                while True:
                    try:
                        replies = self.pool.exchange(exchange)
                    except Unavailable as error:
                        exchange = sending.throw(error)
                    else:
                        exchange = sending.send(replies)
            except StopIteration as end:
                handles: list[H] = end.value
                return handles

    def doubt(self, why: str, ids: Sequence[str], again: Callable[[], Sending[Any]]) -> Uncertain:
        """Return the error for an enqueue of the tasks `ids` that may have been accepted. The error's method `repeat`
        carries out the steps that `again` returns."""
        return Uncertain(why, ids, again=lambda: self._driven(again()))

    def wait(self, query: WaitQuery, timeout: Duration | None) -> WaitResult:
        """Wait until the event that the query describes has happened.

        Raises WaitTimeout if that takes longer than the timeout, and Unavailable if the client is closed or the server
        does not permit this user to wait.
        """
        self.warnings.check_blocking()
        if self._waiting.pid != os.getpid():
            self._waiting = Waiting(self.pool, self.store)
        return self._waiting.wait(query, timeout)

    def wait_for_group(self, query: GroupQuery, timeout: Duration | None) -> Room:
        """Wait until the group has ended, or until at most `query.most_left` of its members have not ended."""
        if (interceptor := interception.interceptor) is not None:
            return interceptor.wait_for_group(self.namespace, query)
        found = self.wait(query, timeout)
        assert isinstance(found, Room), "the query is about a group"
        return found

    def consumer(self, options: "ConsumerOptions") -> "Consumer":
        """Return a consumer with these checked options.

        Raises Unavailable or Uncertain if the consumer cannot be registered.
        """
        # Imported here because a program that only enqueues does not need the module.
        from rota.client.consumer import Consumer, ConsumerTransport  # noqa: PLC0415

        return Consumer(ConsumerTransport(self.store, self.run, self.endpoint, self.timeout_seconds), options)


class Lifecycle:
    """The part of a client that closes its connections."""

    is_async: Final = False
    _driver: Driver

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Waiting calls raise Unavailable.

        This may be called more than once. The next request connects again.
        """
        self._driver.close()


def in_chunks(things: Iterable[T]) -> list[T]:
    """Return all items of the iterable as one list. Only the asyncio client's function of this name works in chunks,
    between which other coroutines may run."""
    return list(things)


def once_committed(
    on_commit: OnCommit, waiting: W, send: Callable[[W], list[H]], expected: Callable[[], list[H]]
) -> list[H]:
    """Pass `on_commit` a callback that sends the enqueue `waiting`. If `on_commit` calls it at once, return the handles
    of the enqueue. Otherwise the enqueue is sent at the commit, and this returns the `expected` handles."""
    callback = OnceSent(waiting, send)
    check_on_commit(on_commit)(callback)
    return expected() if callback.handles is None else callback.handles
