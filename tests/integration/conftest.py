"""What integration tests share: the protocol driver, a client of the same namespace, and a fake master."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.client.blocking.client import Client
from rota_supervisor.control.socket_server import ControlPlace, claim_place
from support.clock import TimedFleet
from support.fake_master import FakeMaster, serving
from support.protocol import Fleet
from support.servers import Server


@pytest.fixture
def fleet(server: Server, namespace: str) -> Iterator[Fleet]:
    """The protocol, one call at a time, in a namespace that a master has opened."""
    driver = Fleet(server, namespace)
    driver.run(driver.store.open())
    yield driver
    driver.close()


@pytest.fixture
def timed(server: Server, namespace: str) -> Iterator[TimedFleet]:
    """The same on a clock that the test moves."""
    driver = TimedFleet(server, namespace)
    driver.run(driver.store.open())
    yield driver
    driver.close()


@pytest.fixture
def client(server: Server, namespace: str) -> Iterator[Client]:
    """An application's client."""
    with Client(server.url, namespace) as made:
        yield made


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ControlPlace]:
    """The place of a control socket."""
    claimed = claim_place(tmp_path / "run" / "c.sock")
    yield claimed
    claimed.close()


@pytest.fixture
def master(place: ControlPlace) -> Iterator[FakeMaster]:
    """A fake master that serves the place."""
    with serving(place) as fake:
        yield fake
