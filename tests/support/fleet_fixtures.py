"""A pytest plugin for tests with whole fleets. It stops the fleets after each test, and shows their logs if the test
fails.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.fleet_process import FleetProcess
from support.fleets import Fleets, Measure
from support.servers import Server

SHOWN_CHARACTERS = 20_000


@pytest.fixture
def fleets(server: Server, namespace: str, tmp_path: Path) -> Iterator[Fleets]:
    made = Fleets(server.url, namespace, tmp_path)
    yield made
    with ExitStack() as closing:
        for fleet in made.made:
            closing.callback(fleet.close)


@pytest.fixture
def measured(record_property: Callable[[str, object], None]) -> Measure:
    """Return a function that adds a measured number to the summary of the test run. The number is only shown, not
    checked.
    """

    def note(what: str, value: float) -> None:
        record_property("measured", f"{what}: {value:.4g}")

    return note


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """If a test fails, show the logs of its fleets."""
    report = yield
    if report.failed:
        for value in getattr(item, "funcargs", {}).values():
            of_test = value.made if isinstance(value, Fleets) else [value]
            for fleet in of_test:
                if isinstance(fleet, FleetProcess):
                    report.sections.append((f"log of {fleet.folder.name}", fleet.log_text()[-SHOWN_CHARACTERS:]))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the measured numbers."""
    reports = [report for report in terminalreporter.stats.get("passed", []) if report.when == "call"]
    lines = [(report.nodeid, text) for report in reports for key, text in report.user_properties if key == "measured"]
    if lines:
        terminalreporter.section("measured")
    for nodeid, text in lines:
        terminalreporter.line(f"{nodeid}\n    {text}")
