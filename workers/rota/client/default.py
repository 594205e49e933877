"""The default client: the one tasks are enqueued through when nobody names another."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from rota.client.interception import interception
from rota.client.settings import ClientSettings
from rota.soft_limit import time_limit_deferred

if TYPE_CHECKING:
    from rota.client.call import Call
    from rota.client.client import Client
    from rota.client.status import Handle, TaskStatus
    from rota.durations import Duration
    from rota.protocol.replies import CancelWord
    from rota.server.durability import Durability

R = TypeVar("R")


class DefaultClient:
    """Holds the default client, made at the first use. What `configure` was given goes before what the fleet runs on.

    There is no lock, since a fork could leave one locked: two threads that meet at the first use make two
    clients, of which one stays.
    """

    def __init__(self) -> None:
        self.configured = ClientSettings()
        self.fleet = ClientSettings()
        self.client: Client | None = None

    def get(self) -> "Client":
        """The client. Raises NotConfigured or, for a URL that is none, ValueError."""
        client = self.client
        if client is None:
            with time_limit_deferred:  # a TimeLimit in the middle of an import would leave it half done
                from rota.client.resolve import make_client  # noqa: PLC0415 - brings redis-py, which `import rota` must not

                client = make_client(self.configured.or_else(self.fleet))
            if interception.interceptor is None:  # else it may be one without a server
                self.client = client
        return client


_default = DefaultClient()


def configure(
    *,
    redis_url: str | None = None,
    namespace: str | None = None,
    max_payload_kb: int | None = None,
    durability: "Durability | None" = None,
) -> None:
    """Say where the default client enqueues, and what it waits for. What is not given stays as it is, or comes from the
    environment."""
    given = ClientSettings(redis_url, namespace, max_payload_kb, durability)
    _default.configured = given.or_else(_default.configured)
    _default.client = None


@contextmanager
def default_client_set(redis_url: str, namespace: str) -> "Iterator[Client]":
    """Have the default client enqueue there for the length of a block, and then where it did before; for tests."""
    before = dict(vars(_default))
    configure(redis_url=redis_url, namespace=namespace)
    try:
        with default_client() as client:
            yield client
    finally:
        vars(_default).update(before)


def inherit_from_fleet(fleet: ClientSettings) -> None:
    """Have tasks that enqueue tasks reach their own fleet. A worker calls it before any user code runs."""
    _default.fleet = fleet
    _default.client = None


def default_client() -> "Client":
    """The default client. Raises NotConfigured when nothing says which server."""
    return _default.get()


def enqueue_many(calls: "Iterable[Call[R]]") -> "list[Handle[R]]":
    """Enqueue many calls through the default client: see `Client.enqueue_many`."""
    return default_client().enqueue_many(calls)


def status(task_id: str, *, args: bool = False) -> "TaskStatus":
    """Where a task stands, asked through the default client: see `Client.status`."""
    return default_client().status(task_id, args=args)


def cancel(task_id: str, kill_after: "Duration | None" = None) -> "CancelWord":
    """End a task that waits, have one that runs told to end, through the default client: see `Client.cancel`."""
    return default_client().cancel(task_id, kill_after)
