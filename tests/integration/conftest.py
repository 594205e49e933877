"""What integration tests share: the protocol driver, and a client of the same namespace."""

from collections.abc import Iterator

import pytest

from protocol import Fleet
from rota.client import Client
from servers import Server


@pytest.fixture
def fleet(server: Server, namespace: str) -> Iterator[Fleet]:
    """The protocol, one call at a time."""
    driver = Fleet(server, namespace)
    yield driver
    driver.close()


@pytest.fixture
def client(server: Server, namespace: str) -> Iterator[Client]:
    """An application's client."""
    with Client(server.url, namespace) as made:
        yield made
