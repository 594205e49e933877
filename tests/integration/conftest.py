"""Fixtures for the integration tests: a protocol driver, a client for the driver's namespace, and a fake master."""

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
    """Yield a protocol driver, which makes one call at a time. A master has already opened the namespace."""
    driver = Fleet(server, namespace)
    driver.run(driver.store.open())
    yield driver
    driver.close()


@pytest.fixture
def timed(server: Server, namespace: str) -> Iterator[TimedFleet]:
    """Yield a protocol driver whose clock advances only when the test advances it."""
    driver = TimedFleet(server, namespace)
    driver.run(driver.store.open())
    yield driver
    driver.close()


@pytest.fixture
def client(server: Server, namespace: str) -> Iterator[Client]:
    """Yield a client like that of an application."""
    with Client(as_user(server.url, AclRole.OPERATOR), namespace) as made:
        yield made


@pytest.fixture
def control_socket(tmp_path: Path) -> Iterator[ControlSocket]:
    """Yield a control socket that this process owns."""
    claimed = claim_control_socket(tmp_path / "run" / "c.sock")
    yield claimed
    claimed.close()


@pytest.fixture
def master(control_socket: ControlSocket) -> Iterator[FakeMaster]:
    """Yield a fake master that serves the control socket."""
    with serving(control_socket) as fake:
        yield fake
