"""The default client: the one tasks are enqueued through when nobody names another. `resolve` finds its server."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from rota.client.settings import ClientSettings
from rota.soft_limit import time_limit_deferred

if TYPE_CHECKING:
    from rota.client.call import Call
    from rota.client.client import Client
    from rota.client.handle import Handle
    from rota.server.durability import Durability

R = TypeVar("R")


class DefaultClient:
    """Holds the default client, made at the first use.

    There is no lock, since a fork could leave one locked: two threads that meet at the first use make two
    clients, of which one stays.
    """

    def __init__(self) -> None:
        self._configured = ClientSettings()
        self._fleet = ClientSettings()
        self._client: Client | None = None

    def configure(self, given: ClientSettings) -> None:
        """Take what was given, keep the rest, and have the next use make a new client."""
        self._configured = given.or_else(self._configured)
        self._client = None

    def inherit(self, fleet: ClientSettings) -> None:
        """Take what the fleet runs on: it yields to `configure` alone."""
        self._fleet = fleet
        self._client = None

    def get(self) -> "Client":
        """The client. Raises NotConfigured or, for a URL that is none, ValueError."""
        client = self._client
        if client is None:
            with time_limit_deferred:  # an import torn in two is none
                from rota.client.resolve import make_client  # noqa: PLC0415 - brings redis-py, which `import rota` must not

                client = self._client = make_client(self._configured.or_else(self._fleet))
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
    _default.configure(ClientSettings(redis_url, namespace, max_payload_kb, durability))


def inherit_from_fleet(fleet: ClientSettings) -> None:
    """Have tasks that enqueue tasks reach their own fleet. A worker calls it before any user code runs."""
    _default.inherit(fleet)


def default_client() -> "Client":
    """The default client. Raises NotConfigured when nothing says which server."""
    return _default.get()


def enqueue_many(calls: "Iterable[Call[R]]") -> "list[Handle[R]]":
    """Enqueue many calls through the default client: see `Client.enqueue_many`."""
    return default_client().enqueue_many(calls)
