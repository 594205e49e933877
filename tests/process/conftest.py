"""Fixtures for the process tests. They provide a master, and a harness that starts workers and pollers without a
master.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from support.child_harness import ChildHarness
from support.masters import Mastered
from support.servers import Server, running_server

# The kinds of server on which the tests run. If another version of Python is installed, `make test-python` uses the
# kind that `make test` leaves out.
_KINDS: Final = os.environ.get("PROCESS_SERVERS", "valkey redis").split()


@pytest.fixture(scope="session", params=_KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a running server. The tests run once with each kind of server."""
    yield from running_server(request.param, tmp_path_factory)


@pytest.fixture
def fleet(server: Server, namespace: str, tmp_path: Path) -> Iterator[Mastered]:
    """Yield a master that has not been started yet. It has two workers, unless a test writes a different number into
    its configuration file.
    """
    made = Mastered(server, namespace, tmp_path)
    yield made
    made.close()


@pytest.fixture
def harness(server: Server, namespace: str, tmp_path: Path) -> Iterator[ChildHarness]:
    """Yield a harness that starts single workers and pollers."""
    made = ChildHarness(server, namespace, tmp_path)
    yield made
    made.close()
