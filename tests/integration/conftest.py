"""Fixtures for the integration tests: the protocol driver, a client of its namespace, and a fake master."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.client.blocking.client import Client
from rota_supervisor.acl_roles import AclRole
from rota_supervisor.control.socket_server import ControlSocket, claim_control_socket
from support.acl_users import as_user
from support.clock import TimedFleet
from support.fake_master import FakeMaster, serving
from support.protocol import Fleet
from support.servers import Server


@pytest.fixture
def fleet(server: Server, namespace: str) -> Iterator[Fleet]:
    """Yield a protocol driver, which makes one call at a time, in a namespace that a master has opened."""
    driver = Fleet(server, namespace)
    driver.run(driver.store.open())
    yield driver
    driver.close()


@pytest.fixture
def timed(server: Server, namespace: str) -> Iterator[TimedFleet]:
    """Yield a protocol driver with a clock that the test moves."""
    driver = TimedFleet(server, namespace)
    driver.run(driver.store.open())
    yield driver
    driver.close()


@pytest.fixture
def client(server: Server, namespace: str) -> Iterator[Client]:
    """Yield an application's client."""
    with Client(as_user(server.url, AclRole.OPERATOR), namespace) as made:
        yield made


@pytest.fixture
def control_socket(tmp_path: Path) -> Iterator[ControlSocket]:
    """Yield a control socket that is already claimed."""
    claimed = claim_control_socket(tmp_path / "run" / "c.sock")
    yield claimed
    claimed.close()


@pytest.fixture
def master(control_socket: ControlSocket) -> Iterator[FakeMaster]:
    """Yield a fake master that serves the control socket."""
    with serving(control_socket) as fake:
        yield fake
