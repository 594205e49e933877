"""A headless Chromium for tests, with pages that record their errors."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from support.waiting import until

if TYPE_CHECKING:  # playwright need not be installed to run the other tests
    from playwright.sync_api import Browser, ConsoleMessage, Page

DEADLINE_SECONDS = 30.0
LEADS_HERE = "example"
"""A domain whose names the browser resolves to this machine, as after DNS rebinding."""


def binary() -> str:
    """Return the path of Chromium. If Chromium is not installed, skip the test, or fail the test in CI."""
    found = shutil.which("chromium")
    if found is not None:
        return found
    if os.environ.get("CI"):
        pytest.fail("no chromium on the PATH: CI must run it")
    pytest.skip("no chromium on the PATH")


class Tab:
    """A page in the browser. `complaints` lists the exceptions that its scripts raised, and the warnings and errors in
    its console, for example violations of the content security policy. `requested` lists every URL that the page
    requested.
    """

    def __init__(self, page: "Page") -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requested: list[str] = []
        page.on("console", lambda message: self._collect(message))  # noqa: PLW0108 - playwright marks the object of a method
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requested.append(request.url))

    def wait_for(self, expression: str, argument: Any = None) -> None:
        """Wait until a JavaScript expression is true. The expression may be a function, which is called with
        `argument`. Raises AssertionError if the deadline passes.
        """
        # Playwright's own wait polls with `eval`, which the page's content security policy forbids.
        until(lambda: self.page.evaluate(expression, argument), expression)

    def barriers(self) -> list[str]:
        """Return the accessibility problems that axe finds: one line for each element that breaks a rule."""
        from axe_playwright_python.sync_playwright import Axe  # noqa: PLC0415 - as playwright below

        broken = Axe().run(self.page).response["violations"]
        return [f"{rule['id']}: {node['html']}: {node['failureSummary']}" for rule in broken for node in rule["nodes"]]

    def _collect(self, message: "ConsoleMessage") -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)


TabOpener = Callable[..., Tab]


@pytest.fixture(scope="module")
def chromium() -> "Iterator[Browser]":
    """Run one browser for the tests of a module. The browser is closed after the module, because its event loop in the
    tests' thread would make blocking clients log warnings in later tests.
    """
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - the import takes 0.3 s

    path, rules = binary(), [f"--host-resolver-rules=MAP *.{LEADS_HERE} 127.0.0.1"]
    with (
        sync_playwright() as playwright,
        closing(playwright.chromium.launch(executable_path=path, args=rules)) as browser,
    ):
        yield browser


@pytest.fixture
def open_tab(chromium: "Browser") -> Iterator[TabOpener]:
    """Return a function that opens a `Tab` in a new profile: `open_tab(url, width=400, color_scheme="dark")`. `prepare`
    is called with the page before it loads the URL. Other options are passed to playwright's `new_context`.
    """
    contexts = []

    def open_one(
        url: str, *, width: int = 1280, height: int = 900, prepare: "Callable[[Page], object]" = id, **options: Any
    ) -> Tab:
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        context.set_default_timeout(DEADLINE_SECONDS * 1000)
        tab = Tab(context.new_page())
        prepare(tab.page)
        tab.page.goto(url)
        return tab

    yield open_one
    for context in contexts:
        context.close()
