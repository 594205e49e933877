"""Fixtures for picks, groups and schedules. Pytest explains failing assertions in the model test's modules like those
of a test.
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
    """Set the number of picks per turn. The order of claims does not depend on it."""
    fleet.picks = request.param
    return fleet.picks


@pytest.fixture
def groups(fleet: Fleet) -> Grouping:
    """Return the driver of groups and chains, with a worker for their queue."""
    return Grouping(fleet)


@pytest.fixture
def schedules(fleet: Fleet) -> ScheduleStore:
    """Return the driver of schedules."""
    return ScheduleStore(fleet.keys.namespace)


@pytest.fixture
def pollers(fleet: Fleet, schedules: ScheduleStore) -> Iterator[Pollers]:
    """Yield the driver of pollers. At the end, every task must be accounted for."""
    yield Pollers(fleet, schedules)
    assert fleet.run(fleet.store.audit()).missing == 0
