"""Fixtures for the tests of applications. pytest finds them in every environment in which Rota is installed. Rota
itself is imported only when a fixture is used."""

import uuid
import warnings
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rota.client.blocking.client import Client
    from rota.testing import Capture, Ran
    from rota_supervisor.testing import FleetOfTest

_URL = "rota_redis_url"
_SHOWN_CHARACTERS = 20_000


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `rota_redis_url` to pytest's configuration. It contains the URL of the server to test with."""
    parser.addini(_URL, "The URL of the Redis server for tests (default: start an embedded server)", default="")


@pytest.fixture
def rota_capture() -> "Iterator[Capture]":
    """Yield the calls that the test enqueues: see `rota.testing.capture`."""
    from rota.testing import capture  # noqa: PLC0415 - imported only when the fixture is used

    with capture() as calls:
        yield calls


@pytest.fixture
def rota_eager() -> "Iterator[list[Ran]]":
    """Run each call as soon as the test enqueues it, and yield the attempts: see `rota.testing.eager`."""
    from rota.testing import eager  # noqa: PLC0415

    with eager() as ran:
        yield ran


@pytest.fixture(scope="session")
def rota_server_url(pytestconfig: pytest.Config) -> Iterator[str]:
    """Yield the URL of the server to test with. This is `rota_redis_url` from pytest's configuration, or otherwise the
    URL of an embedded server for this session. Each pytest-xdist worker has its own embedded server.
    """
    named: str = pytestconfig.getini(_URL)
    if named:
        yield named
        return
    from rota_supervisor.exits import Failure  # noqa: PLC0415
    from rota_supervisor.testing import server  # noqa: PLC0415

    try:
        with server() as url:
            yield url
    except Failure as failure:
        why = f"rota_client and rota_fleet need a server, but none was started: {failure}"
        hint = f"to use a running server, set {_URL} in pytest's configuration"
        raise pytest.fail.Exception(f"{why}; {hint}", pytrace=False) from None


@pytest.fixture
def rota_client(rota_server_url: str) -> "Iterator[Client]":
    """Yield a client whose namespace is used only by this test. Until the test ends, the default client uses this
    namespace too."""
    from rota.client.default_clients import default_client_set  # noqa: PLC0415
    from rota.errors import UnseenNamespace  # noqa: PLC0415
    from rota_supervisor.testing import erase  # noqa: PLC0415

    namespace = f"test-{uuid.uuid4().hex}"
    with warnings.catch_warnings(), default_client_set(rota_server_url, namespace) as client:
        warnings.simplefilter("ignore", UnseenNamespace)  # The client warns because no fleet serves this namespace yet.
        yield client
    erase(rota_server_url, namespace)


@pytest.fixture
def rota_fleet_settings() -> dict[str, Any]:
    """Return additional settings for `rota_fleet`. Override this fixture to change the settings."""
    return {}


@pytest.fixture
def rota_fleet(
    rota_client: "Client", rota_server_url: str, rota_fleet_settings: dict[str, Any]
) -> "Iterator[FleetOfTest]":
    """Yield a fleet that runs the tasks enqueued with `rota_client` or the default client, until the test ends."""
    from rota_supervisor.testing import FleetFailed, fleet, fleet_settings  # noqa: PLC0415

    settings = fleet_settings(rota_server_url, rota_client.namespace, rota_fleet_settings)
    try:
        with fleet(rota_client, settings) as started:
            yield started
    except FleetFailed as failure:
        raise pytest.fail.Exception(str(failure), pytrace=False) from None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the log of a failed test's fleet to the report, because the log is lost when the fixtures are torn down."""
    report = yield
    fleet = getattr(item, "funcargs", {}).get("rota_fleet")
    if report.failed and fleet is not None and report.when != "teardown":
        report.sections.append(("log of rota_fleet", fleet.log[-_SHOWN_CHARACTERS:]))
    return report
