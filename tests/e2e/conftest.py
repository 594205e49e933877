"""The end-to-end tests run on a single Valkey server and in a Redis Cluster. All their fleets require signatures,
unless a test says otherwise.
"""

from collections.abc import Iterator

import pytest

from support.fleets import RunningFleet
from support.servers import Server, running_server


@pytest.fixture(scope="session", params=["valkey", "cluster"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a running server, first Valkey and then a node of a Redis Cluster."""
    yield from running_server(request.param, tmp_path_factory)


@pytest.fixture(scope="module", autouse=True)
def signed_fleets() -> Iterator[None]:
    RunningFleet.is_signed = True
    yield
    RunningFleet.is_signed = False
