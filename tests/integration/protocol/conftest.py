"""Fixtures for the number of picks, groups, schedules and pollers. This module also makes pytest explain failing
assertions in the modules of the model test, as it does in test modules.
"""

from collections.abc import Iterator

import pytest

from rota.protocol.schedule_store import ScheduleStore
from support.grouping import Grouping
from support.protocol import Fleet
from support.schedule_pollers import Pollers

pytest.register_assert_rewrite("machine", "model")


@pytest.fixture(params=[1, 50], ids=["one pick", "50 picks"])
def picks(fleet: Fleet, request: pytest.FixtureRequest) -> int:
    """Run the test with one pick and with 50 picks per turn. The order of claims must not depend on this number."""
    fleet.picks = request.param
    return fleet.picks


@pytest.fixture
def groups(fleet: Fleet) -> Grouping:
    """Return a driver of groups and chains. It includes a worker for their queue."""
    return Grouping(fleet)


@pytest.fixture
def schedules(fleet: Fleet) -> ScheduleStore:
    """Return a driver of schedules."""
    return ScheduleStore(fleet.keys.namespace)


@pytest.fixture
def pollers(fleet: Fleet, schedules: ScheduleStore) -> Iterator[Pollers]:
    """Yield a driver of pollers. After the test, the audit must find every task."""
    yield Pollers(fleet, schedules)
    assert fleet.run(fleet.store.audit()).missing == 0
