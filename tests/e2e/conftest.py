"""All fleets of the end-to-end tests require signatures, unless a test says otherwise."""

from collections.abc import Iterator

import pytest

from support.fleets import RunningFleet


@pytest.fixture(scope="module", autouse=True)
def signed_fleets() -> Iterator[None]:
    RunningFleet.is_signed = True
    yield
    RunningFleet.is_signed = False
