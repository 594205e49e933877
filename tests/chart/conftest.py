"""The tests of the chart need helm, kubectl and schemas, which only `make chart` installs."""

import os

import pytest

from chart.kube import FOLDER


@pytest.fixture(autouse=True, scope="session")
def tools() -> None:
    """Skip the tests if the tools are missing. In CI, let the tests fail instead."""
    if (FOLDER / ".installed").exists():
        return
    if os.environ.get("CI"):
        pytest.fail("no helm below the virtual environment: `make chart` installs it")
    pytest.skip("no helm below the virtual environment: `make chart` installs it")
