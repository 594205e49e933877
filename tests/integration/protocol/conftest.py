"""The protocol driver as a fixture."""

from collections.abc import Iterator

import pytest

from protocol import Fleet
from servers import Server


@pytest.fixture
def fleet(server: Server, namespace: str) -> Iterator[Fleet]:
    driver = Fleet(server, namespace)
    yield driver
    driver.close()
