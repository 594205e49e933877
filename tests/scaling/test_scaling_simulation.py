"""The scaling rule on simulated pools, compared with the best controller that knows the trace.

SCALING_SEEDS sets the number of seeds, and SCALING_FIRST_SEED sets the first seed. A seed takes about 20 s of one
processor: `SCALING_SEEDS=200 pytest -n 2 tests/scaling` runs two thousand traces in about 40 minutes.
"""

import os
from collections.abc import Callable
from itertools import pairwise
from typing import Final, NamedTuple

import pytest

from scaling.controllers import Rota
from scaling.pool_model import Trace
from scaling.scaling_run import Outcome, best, run, run_together
from scaling.traces import TRACES, burst, poisoned, saturated, stuck, two_pools

SEEDS: Final = int(os.environ.get("SCALING_SEEDS", "1"))
FIRST_SEED: Final = int(os.environ.get("SCALING_FIRST_SEED", "0"))
CASES: Final = [(make, seed) for make in TRACES for seed in range(FIRST_SEED, FIRST_SEED + SEEDS)]
MOST_COST: Final[dict[Callable[[int], Trace], float]] = {burst: 1.4, saturated: 1.5, poisoned: 1.6}
"""The worker-seconds of the rule, divided by those of the best controller with the same shrink delay. It is 1.3 for
other traces.

In a burst, the workers that drain the backlog are added to those for the arrivals. The limit of a downstream must be
found again each time that a freeze ends. The backlog of a poisoned queue is worked off late, because no worker is added
while tasks fail.
"""


class Case(NamedTuple):
    """A trace, and the outcome of Rota's rule on it."""

    make: Callable[[int], Trace]
    seed: int
    outcome: Outcome


# The scope is the module, so pytest runs all tests of a case one after another, and each trace is simulated only once.
@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0].__name__}-{case[1]}")
def case(request: pytest.FixtureRequest) -> Case:
    make, seed = request.param
    return Case(make, seed, run(make(seed), Rota()))


def test_objective_is_held_with_few_workers(case: Case, record_property: Callable[[str, object], None]) -> None:
    trace, outcome, optimum = case.make(case.seed), case.outcome, best(case.make(case.seed))
    cost = outcome.worker_seconds / optimum.delayed_worker_seconds
    record_property("cost", round(cost, 3))
    record_property("late_share", round(outcome.late_share, 5))
    assert cost <= MOST_COST.get(case.make, 1.3)
    if case.make is not poisoned:  # the rule does not grow for failing tasks, so it may miss the objective
        is_held = outcome.late_share <= 1 - trace.target
        assert is_held or outcome.late_seconds <= 2 * optimum.outcome.late_seconds


def test_number_changes_direction_at_most_once_a_minute(case: Case) -> None:
    # Within a minute after a change of direction, the number may change direction again only to grow, and only if tasks
    # would otherwise be late.
    assert [at for at, direction in case.outcome.hasty if direction < 0] == []


def test_workers_leave_one_by_one(case: Case) -> None:
    steps = [count for _, count in case.outcome.steps]
    shrinks = {before - after for before, after in pairwise(steps) if after < before}
    # In these traces, growth that brought no gain is reversed at once.
    assert shrinks <= {1} or case.make in (saturated, poisoned)


def test_a_saturated_downstream_gets_only_useful_workers() -> None:
    outcome = run(saturated(FIRST_SEED), Rota())
    overloaded = (1200, 2400)
    counts = [_count_at(outcome, at) for at in range(*overloaded)]
    assert sum(counts) / len(counts) < 7


def test_no_worker_is_added_while_tasks_fail() -> None:
    outcome = run(poisoned(FIRST_SEED), Rota())
    assert outcome.most_workers(1210, 2400) <= _count_at(outcome, 1210)


def test_a_stuck_task_costs_one_worker() -> None:
    outcome = run(stuck(FIRST_SEED), Rota())
    assert max(_count_at(outcome, at) for at in range(1200, 4000)) <= 1 + _count_at(outcome, 600)


def test_pools_share_the_budget_of_a_node() -> None:
    outcomes, most = run_together(two_pools(FIRST_SEED), 14)
    assert most <= 14
    assert [outcome.late_share < 0.01 for outcome in outcomes] == [True, True]


def _count_at(outcome: Outcome, at: float) -> int:
    return [count for begin, count in outcome.steps if begin <= at][-1]
