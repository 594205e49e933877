"""Fixtures that vary the number of picks, and that provide drivers for groups, schedules and pollers. This module also
makes pytest explain failed assertions in the packages `machine` and `model`, as it does in test modules.
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
    """Run the test with 1 and with 50 picks per turn. For each pick, a turn chooses a queue and claims one of its
    tasks. The order of claims must not depend on the number of picks.
    """
    fleet.picks = request.param
    return fleet.picks


@pytest.fixture
def groups(fleet: Fleet) -> Grouping:
    """Return a driver for groups and chains. It has a worker, which runs the members."""
    return Grouping(fleet)


@pytest.fixture
def schedules(fleet: Fleet) -> ScheduleStore:
    """Return a driver for schedules."""
    return ScheduleStore(fleet.keys.namespace)


@pytest.fixture
def pollers(fleet: Fleet, schedules: ScheduleStore) -> Iterator[Pollers]:
    """Yield a driver for pollers. After the test, check that the audit finds every task."""
    yield Pollers(fleet, schedules)
    assert fleet.run(fleet.store.audit()).missing == 0
