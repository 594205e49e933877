"""Fixtures for the tests of applications, in each project that has rota and pytest. Nothing of the library is imported
before one of them is used."""

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
    """Take the server to test with from the configuration of pytest."""
    parser.addini(_URL, "The server for rota_client and rota_fleet, in place of an embedded one", default="")


@pytest.fixture
def rota_capture() -> "Iterator[Capture]":
    """The calls that the test enqueues: see `rota.testing.capture`."""
    from rota.testing import capture  # noqa: PLC0415 - as said above

    with capture() as calls:
        yield calls


@pytest.fixture
def rota_eager() -> "Iterator[list[Ran]]":
    """Each call that the test enqueues is run at once: see `rota.testing.eager`."""
    from rota.testing import eager  # noqa: PLC0415

    with eager() as ran:
        yield ran


@pytest.fixture(scope="session")
def rota_server_url(pytestconfig: pytest.Config) -> Iterator[str]:
    """The server to test with: the one that `rota_redis_url` of pytest's configuration names, else an embedded one of
    this session, and with pytest-xdist of this worker."""
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
        why = f"rota_client and rota_fleet need a server, and none was started: {failure}; or have {_URL} in the"
        raise pytest.fail.Exception(f"{why} configuration of pytest name one", pytrace=False) from None


@pytest.fixture
def rota_client(rota_server_url: str) -> "Iterator[Client]":
    """A client of a namespace of this test alone; the default client enqueues there too until the test is over."""
    from rota.client.default_clients import default_client_set  # noqa: PLC0415
    from rota.errors import UnseenNamespace  # noqa: PLC0415
    from rota_supervisor.testing import erase  # noqa: PLC0415

    namespace = f"test-{uuid.uuid4().hex}"
    with warnings.catch_warnings(), default_client_set(rota_server_url, namespace) as client:
        warnings.simplefilter("ignore", UnseenNamespace)  # nobody is surprised that there is no fleet yet
        yield client
    erase(rota_server_url, namespace)


@pytest.fixture
def rota_fleet_settings() -> dict[str, Any]:
    """What the configuration of `rota_fleet` says besides its own: to be overridden."""
    return {}


@pytest.fixture
def rota_fleet(
    rota_client: "Client", rota_server_url: str, rota_fleet_settings: dict[str, Any]
) -> "Iterator[FleetOfTest]":
    """A fleet that runs what `rota_client` and the default client enqueue, until the test is over."""
    from rota_supervisor.testing import FleetFailed, fleet, fleet_settings  # noqa: PLC0415

    settings = fleet_settings(rota_server_url, rota_client.namespace, rota_fleet_settings)
    try:
        with fleet(rota_client, settings) as started:
            yield started
    except FleetFailed as failure:
        raise pytest.fail.Exception(str(failure), pytrace=False) from None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the log of a failed test's fleet. When the fixtures have been taken down, the log is gone with the fleet."""
    report = yield
    fleet = getattr(item, "funcargs", {}).get("rota_fleet")
    if report.failed and fleet is not None and report.when != "teardown":
        report.sections.append(("log of rota_fleet", fleet.log[-_SHOWN_CHARACTERS:]))
    return report
