"""Workers that request their replacement: which of them may leave, and when."""

import pytest

from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import Child, ChildState
from rota_supervisor.master.core.effects import Order
from rota_supervisor.master.core.plan import Start, plan
from rota_supervisor.master.core.reasons import Reason
from rota_supervisor.master.core.targets import Desired, Target
from support.cores import drain, of_order

POOL = "mail"
FIRST = 8


def _zygote(generation: int = 1, state: ChildState = ChildState.READY) -> Child:
    return Child(Role.ZYGOTE, f"generation-{generation}", generation, 1 + generation, generation, state, 0.0, pid=2)


def _worker(
    number: int, state: ChildState = ChildState.READY, generation: int = 1, *, recycle_for: Reason | None = None
) -> Child:
    slot = FIRST + number
    return Child(
        Role.WORKER, POOL, generation, slot, 10 + slot, state, float(number), pid=slot, recycle_for=recycle_for
    )


def _pool(count: int, wishing: int) -> list[Child]:
    return [_worker(n, recycle_for=Reason.MAX_TASKS if n < wishing else None) for n in range(count)]


def _desired(count: int, generation: int = 1) -> Desired:
    zygotes = [Target(Role.ZYGOTE, f"generation-{n}", 1, n, surge=0) for n in range(1, generation + 1)]
    return Desired((*zygotes, Target(Role.WORKER, POOL, count, generation)), boot_seconds=60.0, beat_seconds=1000.0)


def _drains(count: int, children: list[Child], generation: int = 1) -> list[tuple[int, Reason | None]]:
    """Plan for a pool with this number of workers. Return the index of each worker that is drained, with the reason."""
    actions = plan(_desired(count, generation), [*map(_zygote, range(1, generation + 1)), *children], 0.0)
    return [(drained.slot - FIRST, drained.reason) for drained in of_order(Order.LEAVE, actions)]


@pytest.mark.parametrize(
    ("count", "away"), [(1, 1), (2, 1), (7, 1), (8, 1), (9, 1), (15, 1), (16, 2), (23, 2), (24, 3), (500, 62)]
)
def test_one_in_eight_workers_is_recycled_but_at_least_one(count: int, away: int) -> None:
    assert len(_drains(count, _pool(count, count))) == away


def test_a_recycled_worker_is_replaced_at_once() -> None:
    actions = plan(_desired(2), [_zygote(), *_pool(2, 2)], 0.0)
    assert actions == [drain(FIRST, Reason.MAX_TASKS), Start(Role.WORKER, POOL, 1, FIRST + 2)]


def test_the_oldest_worker_that_requests_recycling_is_recycled_first() -> None:
    young = _worker(0, recycle_for=Reason.MAX_TASKS)
    old = _worker(1, recycle_for=Reason.MAX_RSS)
    young.requested_at = 50.0
    assert _drains(2, [young, old]) == [(1, Reason.MAX_RSS)]


@pytest.mark.parametrize(
    "state", [ChildState.REGISTERING, ChildState.REQUESTED, ChildState.BOOTING, ChildState.DRAINING, ChildState.KILLED]
)
def test_starting_or_ending_workers_count_against_the_recycling_limit(state: ChildState) -> None:
    pool = _pool(8, 3)
    pool[7] = _worker(7, state)
    assert _drains(8, pool) == []


def test_the_next_worker_is_recycled_once_the_replacement_is_ready() -> None:
    pool = [_worker(0, ChildState.DRAINING, recycle_for=Reason.MAX_TASKS), _worker(1, recycle_for=Reason.MAX_TASKS)]
    assert _drains(2, [*pool, _worker(2, ChildState.BOOTING)]) == []
    assert _drains(2, [*pool, _worker(2)]) == [(1, Reason.MAX_TASKS)]


def test_after_a_crash_among_sixteen_workers_only_one_is_recycled() -> None:
    crashed = [*_pool(15, 5), _worker(15, ChildState.EXITED)]
    assert _drains(16, crashed) == [(0, Reason.MAX_TASKS)]


def test_no_worker_is_recycled_without_a_ready_zygote() -> None:
    children = [_zygote(state=ChildState.BOOTING), *_pool(4, 4)]
    assert plan(_desired(4), children, 0.0) == []


def test_workers_of_the_old_generation_are_not_recycled() -> None:
    stale = [_worker(n, recycle_for=Reason.MAX_TASKS) for n in range(3)]
    assert _drains(3, [*stale, _worker(3, ChildState.BOOTING, 2)], generation=2) == []


def test_at_most_one_worker_is_recycled_during_a_rollout() -> None:
    count = 24
    stale = [_worker(n) for n in range(12)]
    fresh = [_worker(12 + n, generation=2, recycle_for=Reason.MAX_RSS) for n in range(11)]
    assert _drains(count, [*stale, *fresh], generation=2) == []  # only 23 of 24 workers are READY
    going = _drains(count, [*stale, *fresh, _worker(23, generation=2)], generation=2)
    assert len(going) == 1


def test_a_pool_that_shrinks_also_recycles_remaining_workers() -> None:
    assert _drains(3, _pool(4, 1)) == [(3, Reason.SURPLUS), (0, Reason.MAX_TASKS)]
    assert sorted(_drains(0, _pool(2, 2))) == [(0, Reason.SURPLUS), (1, Reason.SURPLUS)]


def test_the_only_new_worker_stays_while_an_old_one_exists() -> None:
    stale = _worker(0, ChildState.REQUESTED)
    fresh = _worker(1, generation=2, recycle_for=Reason.MAX_TASKS)
    assert _drains(1, [stale, fresh], generation=2) == []
    assert _drains(1, [fresh], generation=2) == [(1, Reason.MAX_TASKS)]
