"""The default clients: those that tasks are enqueued through when nobody names another."""

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rota.client.enqueue_options import OnCommit, OnCommitOption, check_on_commit
from rota.client.interception import interception
from rota.durations import positive_seconds
from rota.foreign_names import FOREIGN_NAMES, fault_in_option
from rota.soft_limit import time_limit_deferred
from rota.tasks.fleet_settings import ClientSettings, own_fleet

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from rota.client.aio import AsyncClient, AsyncHandle
    from rota.client.blocking.client import Client
    from rota.client.blocking.handles import Handle
    from rota.client.enqueue_options import ProgressOption
    from rota.client.status import TaskStatus
    from rota.durations import Duration
    from rota.protocol.replies import CancelWord
    from rota.server.endpoint import RedisClient
    from rota.server.session import Durability
    from rota.tasks.call import Call

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class DefaultClient:
    """Holds the default clients, one that blocks and one for each event loop, made at the first use. What `configure`
    was given goes before what the fleet runs on.

    There is no lock, since a fork could leave one locked: two threads that meet at the first use make two
    clients, of which one stays.
    """

    def __init__(self) -> None:
        self.configured = ClientSettings()
        self._fleet = own_fleet.settings
        self.on_commit: OnCommit | None = None
        self.client: Client | None = None
        self._of_loops: dict[AbstractEventLoop, AsyncClient] = {}

    def get(self) -> "Client":
        """The client. Raises NotConfigured or, for a URL that is none, ValueError."""
        if self._fleet is not own_fleet.settings:
            self._enter_fleet()
        client = self.client
        if client is None:
            with time_limit_deferred:  # a TimeLimit in the middle of an import would leave it half done
                from rota.client.setting_sources import make_client  # noqa: PLC0415 - brings sockets and JSON, which `import rota` must not

                client = make_client(self.configured.or_else(self._fleet), self.on_commit)
            if interception.interceptor is None:  # else it may be one without a server
                self.client = client
        return client

    def of_loop(self, loop: "AbstractEventLoop") -> "AsyncClient":
        """The client of a running loop. Raises as `get`."""
        if self._fleet is not own_fleet.settings:
            self._enter_fleet()
        client = self._of_loops.get(loop)
        if client is None:
            from rota.client.setting_sources import make_async_client  # noqa: PLC0415 - as above

            client = make_async_client(self.configured.or_else(self._fleet), self.on_commit)
            if interception.interceptor is None:
                open_ones = {each: of_it for each, of_it in self._of_loops.items() if not each.is_closed()}
                self._of_loops = open_ones | {loop: client}
        return client

    def forget(self) -> None:
        """Have the next use make clients anew."""
        self.client = None
        of_loops, self._of_loops = self._of_loops, {}
        for client in of_loops.values():
            client.close_soon()

    def _enter_fleet(self) -> None:
        """Go to the fleet that this process has become a worker of, whatever was enqueued while its code was loaded."""
        self._fleet = own_fleet.settings
        self.forget()


_default = DefaultClient()


def _by_name(function: F) -> F:
    # Says what to write instead of what `configure` does not take.
    @functools.wraps(function)
    def called(*positional: object, **given: object) -> object:
        if positional:
            raise TypeError("rota.configure takes its options by name: write rota.configure(redis_url=...)")
        options = function.__kwdefaults__ or {}
        if unknown := sorted(given.keys() - options.keys()):
            raise TypeError(fault_in_option(unknown[0], "rota.configure", FOREIGN_NAMES["configure"], options))
        return function(**given)

    return cast("F", called)


@_by_name
def configure(
    *,
    redis_url: str | None = None,
    redis: "RedisClient | None" = None,
    namespace: str | None = None,
    max_payload_kb: int | None = None,
    durability: "Durability | None" = None,
    timeout_seconds: float | None = None,
    redis_tls_ca: str | None = None,
    redis_tls_cert: str | None = None,
    redis_tls_key: str | None = None,
    on_commit: OnCommitOption = ...,
) -> None:
    """Say where the default clients enqueue, what they wait for, and for how long. What is not given stays as it is, or
    comes from the environment. The files for TLS: see `Client`. `on_commit`: see `Task.using`; None for what is sent at
    once. `redis`: a Redis client of the application to be used instead of a URL, one that blocks or one of asyncio; an
    application that uses both calls this for each. Raises TypeError or ValueError for a time that is not valid, an
    `on_commit` that takes no callback, or both `redis` and `redis_url`."""
    if timeout_seconds is not None:
        timeout_seconds = positive_seconds(timeout_seconds, "timeout_seconds")
    if on_commit is not ...:
        _default.on_commit = None if on_commit is None else check_on_commit(on_commit)
    files = (redis_tls_ca, redis_tls_cert, redis_tls_key)
    given = ClientSettings(redis_url, namespace, max_payload_kb, durability, timeout_seconds, *files)
    if redis is not None:
        given = _with_client(given, redis)
    _default.configured = given.or_else(_default.configured)
    _default.forget()


def _with_client(given: ClientSettings, redis: "RedisClient") -> ClientSettings:
    from rota.server.borrowed import check_source, is_asyncio  # noqa: PLC0415 - for those alone who give a client

    if given.redis_url or given.redis_tls_ca or given.redis_tls_cert or given.redis_tls_key:
        raise TypeError("rota.configure takes either redis or redis_url with its files for TLS")
    check_source(redis)
    return given._replace(async_redis=redis) if is_asyncio(redis) else given._replace(redis=redis)


@contextmanager
def default_client_set(redis_url: str, namespace: str) -> "Iterator[Client]":
    """Have the default client enqueue there for the length of a block, and then where it did before; for tests."""
    configured, client_before = _default.configured, _default.client
    configure(redis_url=redis_url, namespace=namespace)
    try:
        with default_client() as client:
            yield client
    finally:
        _default.configured = configured
        _default.forget()
        _default.client = client_before


def default_client() -> "Client":
    """The default client. Raises NotConfigured when nothing says which server."""
    return _default.get()


def enqueue_many(
    calls: "Iterable[Call[R]]", *, on_commit: OnCommitOption = ..., progress: "ProgressOption" = None
) -> "list[Handle[R]]":
    """Enqueue many calls through the default client: see `Client.enqueue_many`."""
    return default_client().enqueue_many(calls, on_commit=on_commit, progress=progress)


def status(task_id: str, *, args: bool = False) -> "TaskStatus":
    """Where a task stands, asked through the default client: see `Client.status`."""
    return default_client().status(task_id, args=args)


def cancel(task_id: str, kill_after: "Duration | None" = None) -> "CancelWord":
    """End a task that waits, have one that runs told to end, through the default client: see `Client.cancel`."""
    return default_client().cancel(task_id, kill_after)


def default_async_client() -> "AsyncClient":
    """The default client of the event loop that runs. Raises NotConfigured, or RuntimeError where none runs."""
    from asyncio import get_running_loop  # noqa: PLC0415 - `import rota` leaves asyncio out

    return _default.of_loop(get_running_loop())


async def aenqueue_many(
    calls: "Iterable[Call[R]]", *, on_commit: OnCommitOption = ..., progress: "ProgressOption" = None
) -> "list[AsyncHandle[R]]":
    """Enqueue many calls through the default client of this event loop: see `AsyncClient.enqueue_many`."""
    return await default_async_client().enqueue_many(calls, on_commit=on_commit, progress=progress)
