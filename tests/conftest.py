"""Fixtures shared by all tests: real servers, one namespace a test."""

import itertools
import os
import signal
from collections.abc import Iterator
from typing import Final

import pytest
import redis

from rota.tasks.registry import default_registry
from support.servers import Server, server_binaries

# A shell that runs the tests in the background lets them ignore SIGINT, and so would every process that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["support.browser", "support.fleet_fixtures", "support.server_fixtures"]

_namespaces = itertools.count(1)


# `make test-python` needs one kind only, because `make test` covers both.
_KINDS: Final = os.environ.get("TEST_SERVERS", "valkey redis").split()


@pytest.fixture(scope="session", params=_KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running server, once as Valkey and once as Redis. Without Redis its half is skipped, and fails in CI."""
    binary = server_binaries().get(request.param)
    if binary is None:
        if os.environ.get("CI"):
            pytest.fail("no redis-server on the PATH: CI must test against Redis too")
        pytest.skip("no redis-server on the PATH")
    running = Server(binary, tmp_path_factory.mktemp(request.param)).start()
    yield running
    running.stop()


@pytest.fixture
def namespace() -> str:
    """A namespace no other test uses."""
    return f"test{os.getpid()}-{next(_namespaces)}"


@pytest.fixture
def redis_client(server: Server) -> Iterator["redis.Redis"]:
    """A plain client, for looking behind the protocol and producing as other languages do."""
    with redis.Redis.from_url(server.url, socket_timeout=30) as client:
        yield client


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """No task is declared before the test, and those that it declares are forgotten behind it."""
    monkeypatch.setattr(default_registry, "_tasks", {})
