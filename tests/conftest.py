"""Fixtures shared by all tests: real servers, and one namespace per test."""

import itertools
import os
import signal
from collections.abc import Iterator

import pytest
import redis

from rota.tasks.registry import default_registry
from support.servers import Server, running_server

# If a shell runs the tests in the background, the tests and every process that they start ignore SIGINT.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["support.browser", "support.fleet_fixtures", "support.server_fixtures"]

_namespaces = itertools.count(1)


@pytest.fixture(scope="session", params=["valkey", "redis"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a running server, first Valkey and then Redis."""
    yield from running_server(request.param, tmp_path_factory)


@pytest.fixture
def namespace() -> str:
    """Return a namespace that no other test uses."""
    return f"test{os.getpid()}-{next(_namespaces)}"


@pytest.fixture
def redis_client(server: Server) -> Iterator["redis.Redis"]:
    """Yield a plain Redis client, with which tests inspect the data and push items as programs in other languages
    do.
    """
    with redis.Redis.from_url(server.url, socket_timeout=30) as client:
        yield client


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the test without any declared tasks, and forget the tasks that the test declares."""
    monkeypatch.setattr(default_registry, "_tasks", {})
