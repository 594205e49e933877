"""Fixtures of picks, groups and schedules. Assertions of the modules that the model test is made of are explained as
those of a test."""

from collections.abc import Iterator

import pytest

from rota.protocol.schedule_store import ScheduleStore
from support.grouping import Grouping
from support.protocol import Fleet
from support.schedule_pollers import Pollers

pytest.register_assert_rewrite("machine", "model")


@pytest.fixture(params=[1, 50], ids=["one pick", "50 picks"])
def picks(fleet: Fleet, request: pytest.FixtureRequest) -> int:
    """How many picks a turn makes: the order of claims is the same."""
    fleet.picks = request.param
    return fleet.picks


@pytest.fixture
def groups(fleet: Fleet) -> Grouping:
    """Groups and chains, and a worker of their queue."""
    return Grouping(fleet)


@pytest.fixture
def schedules(fleet: Fleet) -> ScheduleStore:
    """The transitions of schedules."""
    return ScheduleStore(fleet.keys.namespace)


@pytest.fixture
def pollers(fleet: Fleet, schedules: ScheduleStore) -> Iterator[Pollers]:
    """What pollers do with them; afterwards every task is accounted for."""
    yield Pollers(fleet, schedules)
    assert fleet.run(fleet.store.audit()).missing == 0
