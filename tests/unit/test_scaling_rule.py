"""The number of workers of a pool with a range, computed from measurements."""

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota_supervisor.master.core.scaling_reason import CAUSES
from rota_supervisor.master.core.scaling_rule import (
    BudgetClaim,
    Decision,
    LoadWindow,
    NodeLoad,
    PoolInputs,
    PoolScaling,
    QueueBacklog,
    budget_grants,
    decide,
    shares,
)
from rota_supervisor.master.core.waiting_times import tail_slots


def window(seconds: float, rate: float = 0.0, task_seconds: float = 0.0, failures: float = 0.0) -> LoadWindow:
    """Return the measurements of a period in which `rate` tasks a second started, each of which took `task_seconds`.
    `failures` is the share of the first attempts that failed.
    """
    starts = round(rate * seconds)
    return LoadWindow(seconds, starts, starts * task_seconds, 1.0, starts, round(failures * starts))


def node(rate: float = 0.0, task_seconds: float = 0.0, **changes: Any) -> NodeLoad:
    """Return the load of a node whose workers start `rate` tasks a second, each of which takes `task_seconds`."""
    load = NodeLoad(
        node="a",
        short=window(2, rate, task_seconds),
        long=window(60, rate, task_seconds),
        workers=1,
        starting=0,
        free_slots=0,
        running_seconds=0.0,
        running=0,
        held=0,
        concurrency=1,
        least=1,
        most=16,
        granted=16,
        limited_by="",
        start_seconds=0.5,
        is_blocked=False,
        operator=None,
    )
    return load._replace(**changes)


def queue(ready: int, oldest_seconds: float = 0.0, **changes: Any) -> QueueBacklog:
    """Return a queue with ready tasks, and an objective of 10 s for 99 % of them."""
    return QueueBacklog("mail", ready, oldest_seconds, 0, True, 0, math.inf, 10.0, 0.99)._replace(**changes)


@dataclass
class Pool:
    """A pool and its consecutive decisions, with one round every half second."""

    history: PoolScaling = field(default_factory=PoolScaling)
    now: float = 0.0

    def round(self, load: NodeLoad, *queues: QueueBacklog) -> Decision:
        """Return the next decision for a pool on one node."""
        return self.together((load,), *queues)

    def together(self, nodes: tuple[NodeLoad, ...], *queues: QueueBacklog) -> Decision:
        """Return the next decision for a pool on several nodes."""
        self.now += 0.5
        self.history, decision = decide(self.history, PoolInputs("default", nodes, queues), self.now)
        return decision

    def rounds(self, seconds: float, load: NodeLoad, *queues: QueueBacklog) -> list[int]:
        """Return the number of workers that each round decides on in a period in which nothing else changes."""
        found = []
        for _ in range(round(2 * seconds)):
            workers = self.history.wanted if self.history.wanted is not None else load.workers
            found.append(self.round(load._replace(workers=workers), *queues).wanted)
        return found


def settled(workers: int, load: NodeLoad) -> Pool:
    """Return a pool that has this number of workers, and no recent change that would delay the next change."""
    pool = Pool()
    pool.round(load._replace(workers=workers))
    return pool


# The three numbers of a decision


def test_pools_are_scaled_so_that_workers_are_busy_at_most_90_percent() -> None:
    decision = Pool().round(node(rate=100, task_seconds=0.05, workers=2))
    assert (decision.wanted, decision.steady) == (6, 6)
    assert decision.reason == "100 per second, 50 ms each: 5.0 busy"


def test_a_backlog_is_worked_off_before_its_oldest_task_is_late() -> None:
    decision = Pool().round(node(rate=200, task_seconds=0.012, workers=2), queue(1840, oldest_seconds=3.0))
    # New tasks keep 2.4 workers busy. In addition, the backlog must start within 10 - 3 - 0.5 s. It has 1,840 x 12 ms
    # of work, plus the work that 2 workers cannot do in the 0.5 s until new workers are ready.
    assert (decision.wanted, decision.drain) == (6, 6)
    assert decision.reason == "1,840 ready, 12 ms each, oldest 3 s, objective 10 s: drained in 6.1 s"
    assert decision.drain_seconds == pytest.approx(1840 * 0.012 / (6 - 2.4))


def test_a_backlog_that_will_start_in_time_adds_no_worker() -> None:
    assert (
        settled(3, node(rate=100, task_seconds=0.02))
        .round(node(rate=100, task_seconds=0.02, workers=3), queue(600))
        .wanted
        == 3
    )


def test_a_short_objective_needs_workers_that_are_mostly_idle() -> None:
    pool = Pool()
    load = node(rate=20, task_seconds=0.1, workers=3)
    pool.round(load, queue(1, objective_seconds=0.01))
    decision = pool.round(load)
    assert decision.steady == 3
    assert decision.wanted == decision.tail == tail_slots(2.0, 0.1, 1.0, 0.01, 0.99) == 7


@given(st.floats(0.1, 30.0), st.floats(0.01, 5.0), st.floats(0.5, 0.999))
def test_the_number_of_slots_for_a_lag_target_matches_the_textbook_formula(
    load: float, objective: float, target: float
) -> None:
    def late(slots: int) -> float:
        last = load**slots / math.factorial(slots) * slots / (slots - load)
        waits = last / (sum(load**k / math.factorial(k) for k in range(slots)) + last)
        return waits * math.exp(-(slots - load) * objective)

    slots = tail_slots(load, 1.0, 1.0, objective, target)
    assert late(slots) <= 1 - target + 1e-9
    assert slots - 1 <= load or late(slots - 1) > 1 - target - 1e-9


def test_thousands_of_slots_do_not_overflow_the_queueing_formula() -> None:
    assert 5000 < tail_slots(5000.0, 1.0, 4.0, 0.5, 0.99) < 5200


def test_without_load_no_worker_is_needed() -> None:
    assert tail_slots(0.0, 0.1, 1.0, 1.0, 0.99) == 0
    assert Pool().round(node(least=0, workers=0)).wanted == 0


# What counts as load


def test_a_burst_of_tasks_does_not_count_as_a_lasting_load() -> None:
    pool = settled(4, node(rate=30, task_seconds=0.1))
    load = node(rate=30, task_seconds=0.1, workers=4)
    pool.rounds(5, load)
    assert pool.round(load, queue(300)).steady == 4


def test_a_backlog_that_keeps_growing_counts_as_load() -> None:
    pool = settled(4, node(rate=30, task_seconds=0.1))
    load = node(rate=30, task_seconds=0.1, workers=4)
    for ready in range(0, 300, 50):
        decision = pool.round(load, queue(ready))
    assert decision.steady > 10


def test_scaling_rounds_that_come_too_early_change_nothing() -> None:
    load = node(rate=30, task_seconds=0.1, workers=4)
    pool = settled(4, load)
    pool.rounds(5, load)
    for ready in (10, 20, 30, 40):
        pool.now -= 0.49
        decision = pool.round(load, queue(ready))
    assert decision.steady == 4


def test_random_peaks_in_the_short_window_are_ignored() -> None:
    load = node(rate=10, task_seconds=0.1, workers=2)
    lucky = load._replace(short=window(2, 16, 0.1))
    assert Pool().round(lucky).steady == Pool().round(load).steady == 2


def test_the_backlog_of_a_queue_that_opens_does_not_count_as_arrivals() -> None:
    load = node(rate=10, task_seconds=0.01)
    pool = settled(1, load)
    pool.rounds(5, load, queue(5000, is_open=False))
    assert pool.round(load, queue(5000)).steady == 1


def test_the_load_includes_a_task_that_is_stuck() -> None:
    busy = window(60, 50, 0.1)._replace(occupied_seconds=60 * 6.0)
    load = node(rate=50, task_seconds=0.1, held=1, workers=7, long=busy)
    short = window(2, 50, 0.1)._replace(occupied_seconds=2 * 6.0)
    decision = Pool().round(load._replace(short=short))
    assert decision.steady == 7  # 5 busy workers / 0.9, plus the stuck worker
    assert decision.reason == "50 per second, 100 ms each: 5.0 busy and 1 held"


def test_long_tasks_do_not_count_as_stuck() -> None:
    long = LoadWindow(60, 12, 60 * 4.0, 0.0, 12, 0)
    assert Pool().round(node(long=long, short=window(2), held=2, workers=5)).steady == 5


def test_until_a_task_has_ended_the_age_of_running_ones_is_their_run_time() -> None:
    load = node(running=1, running_seconds=5.0, workers=1, long=window(60), short=window(2))
    assert Pool().round(load, queue(3)).wanted == 2  # 3 tasks of 5 s must start within 9.5 s


def test_tasks_that_free_workers_can_take_add_no_worker() -> None:
    load = node(rate=10, task_seconds=2.0, workers=24, free_slots=4, most=40, granted=40)
    assert Pool().round(load, queue(4, oldest_seconds=9.0)).reason.startswith("10 per second")


def test_a_pool_of_concurrent_workers_is_sized_by_their_concurrency() -> None:
    decision = Pool().round(node(rate=100, task_seconds=1.0, concurrency=50))
    assert decision.wanted == 3  # 100 busy slots / 0.9, at 50 slots per worker


# Lag that more workers would not reduce


def test_a_paused_queue_adds_no_worker() -> None:
    load = node(rate=10, task_seconds=0.02)
    assert set(Pool().rounds(20, load, queue(100_000, 500.0, is_open=False))) == {1}


def test_a_queue_that_waits_for_its_rate_adds_no_worker() -> None:
    load = node(rate=10, task_seconds=0.02)
    assert set(Pool().rounds(20, load, queue(100_000, 500.0, rate_per_second=10.0))) == {1}


def test_a_queue_at_its_cap_adds_no_worker() -> None:
    load = node(rate=2, task_seconds=1.0, workers=3)
    assert set(Pool().rounds(20, load, queue(100_000, 500.0, cap=2, running=2))) == {3}


def test_tasks_that_wait_for_a_cap_do_not_count_as_load() -> None:
    load = node(rate=2, task_seconds=1.0, workers=3)
    pool = settled(3, load)
    for ready in range(0, 1000, 5):
        decision = pool.round(load, queue(ready, ready / 10, cap=2, running=2))
        assert decision.wanted == 3


def test_a_queue_below_its_cap_adds_workers_up_to_it() -> None:
    load = node(rate=1, task_seconds=1.0, workers=2)
    assert Pool().round(load, queue(1000, cap=5, running=1)).wanted == 5


def test_failing_first_attempts_freeze_the_growth_of_a_pool() -> None:
    load = node(rate=50, task_seconds=0.02, short=window(2, 50, 0.02, failures=0.6))
    decision = Pool().round(load, queue(5000))
    assert (decision.wanted, decision.limited_by) == (1, ("failing",))
    assert decision.reason.endswith("; not more, because most first attempts fail")


def test_a_few_failures_do_not_freeze_the_growth_of_a_pool() -> None:
    rare = window(2, 4, 0.02, failures=1.0)
    load = node(rate=50, task_seconds=0.02, short=rare)
    assert Pool().round(load, queue(50_000)).wanted == 16


@pytest.mark.parametrize(
    ("attempts", "failures", "is_frozen"), [(1, 1, False), (2, 2, True), (3, 2, False), (9, 7, True)]
)
def test_a_few_failed_first_attempts_stop_growth_only_if_chance_is_unlikely(
    attempts: int, failures: int, is_frozen: bool
) -> None:
    known = LoadWindow(60, attempts, attempts * 0.2, 1.0, attempts, failures)
    decision = Pool().round(node(long=known, short=window(2)), queue(500))
    assert (decision.limited_by == ("failing",)) is is_frozen


def test_failures_of_rare_tasks_freeze_the_growth_through_the_long_window() -> None:
    load = node(rate=1, task_seconds=1.0, long=window(60, 1, 1.0, failures=0.9))
    assert Pool().round(load, queue(500)).limited_by == ("failing",)


def test_the_first_worker_of_a_pool_starts_even_if_growth_is_frozen() -> None:
    load = node(rate=5, task_seconds=0.1, short=window(2, 5, 0.1, failures=1.0), least=0, workers=0)
    assert Pool().round(load, queue(50)).wanted == 1


def test_a_blocked_event_loop_freezes_the_growth_of_its_pool() -> None:
    decision = Pool().round(node(rate=50, task_seconds=0.02, is_blocked=True), queue(5000))
    assert (decision.wanted, decision.limited_by) == (1, ("blocked",))


# Increases without a gain in throughput


def grown(pool: Pool, rate_after: float, task_seconds: float = 0.1) -> list[int]:
    """Let a pool of 4 saturated workers grow, after which it starts `rate_after` tasks a second. Return the number of
    workers that each round of the next 10 s decides on.
    """
    before = node(rate=40, task_seconds=0.1, workers=4)
    pool.round(before)
    pool.round(before, queue(1500, 1.0))
    after = node(rate=rate_after, task_seconds=task_seconds)
    return pool.rounds(10, after._replace(long=before.long), queue(1500, 5.0))


def test_workers_added_without_more_throughput_are_removed_and_growth_is_frozen() -> None:
    pool = Pool()
    counts = grown(pool, 40)
    assert counts[0] == 16
    assert counts[-1] == 4
    assert pool.round(node(rate=40, task_seconds=0.1, workers=4), queue(1500, 5.0)).limited_by == ("no_gain",)


def test_only_added_workers_that_increase_the_throughput_are_kept() -> None:
    assert grown(Pool(), 60)[-1] == 6


def test_added_workers_that_increase_the_throughput_as_predicted_are_kept() -> None:
    assert grown(Pool(), 150)[-1] == 16


def test_several_added_workers_without_more_throughput_are_removed_together() -> None:
    pool = Pool()
    before = node(rate=40, task_seconds=0.1, workers=4)
    pool.rounds(70, before)
    counts = []
    for most in (6, 7, 8, 9, 10):  # one more worker every 4 s, because one worker's gain is too small to judge
        counts += pool.rounds(4, before._replace(most=most, granted=most), queue(1500, 4.0))
    assert max(counts) > 6
    assert counts[-1] == 5


def test_added_workers_that_were_kept_are_not_judged_again() -> None:
    pool = Pool()
    grown(pool, 150)
    load = node(rate=50, task_seconds=0.1)
    assert pool.rounds(10, load, queue(1500, 1.0))[-1] == 16


def test_tasks_that_become_longer_are_not_mistaken_for_a_bottleneck() -> None:
    assert grown(Pool(), 8, task_seconds=2.0)[-1] == 16


def test_each_growth_freeze_is_twice_as_long_until_the_backlog_is_gone() -> None:
    pool = Pool()
    grown(pool, 40)
    load, backlog = node(rate=40, task_seconds=0.1), queue(1500, 5.0)
    counts = pool.rounds(400, load, backlog)
    frozen = "".join("-" if count == 4 else "#" for count in counts).strip("#").split("#")
    lengths = [len(each) / 2 for each in frozen if each]
    assert lengths[1] == pytest.approx(2 * 60, abs=2)
    assert max(counts) == 6  # a trial increase by one half
    pool.rounds(1, load)
    assert pool.history.freezes == 0


# Shrinking


def test_after_five_quiet_minutes_surplus_workers_leave_one_by_one() -> None:
    counts = settled(8, node()).rounds(400, node(rate=20, task_seconds=0.1))
    assert set(counts[:598]) == {8}
    assert counts[-1] == 3
    assert [before - after for before, after in pairwise(counts) if after != before] == [1] * 5
    left = [at / 2 for at, (before, after) in enumerate(pairwise(counts)) if after != before]
    assert all(later - earlier == 10 for earlier, later in pairwise(left))


def test_one_busy_moment_restarts_the_five_minutes_before_workers_leave() -> None:
    pool = settled(8, node())
    pool.rounds(200, node(rate=20, task_seconds=0.1))
    pool.round(node(rate=70, task_seconds=0.1, workers=8))
    assert set(pool.rounds(290, node(rate=20, task_seconds=0.1))) == {8}


def test_a_gap_between_scaling_rounds_restarts_the_five_minutes() -> None:
    pool = settled(8, node())
    pool.rounds(290, node(rate=20, task_seconds=0.1))
    pool.now += 60
    assert set(pool.rounds(290, node(rate=20, task_seconds=0.1))) == {8}


def test_the_last_worker_leaves_if_no_task_arrives() -> None:
    load = node(least=0, workers=2)
    counts = settled(2, load).rounds(330, load)
    assert counts[-1] == 0


def test_a_pool_whose_tasks_arrive_rarely_keeps_one_worker() -> None:
    load = node(rate=1 / 30, task_seconds=0.1, least=0, workers=1)
    assert set(settled(1, load).rounds(330, load)) == {1}


def test_one_ready_task_starts_the_first_worker() -> None:
    pool = Pool()
    pool.round(node(least=0, workers=0))
    assert pool.round(node(least=0, workers=0), queue(1)).wanted == 1


def turned() -> Pool:
    """Return a pool that has grown and has just begun to shrink."""
    pool = Pool()
    pool.round(node(rate=70, task_seconds=0.1, workers=4))
    load = node(rate=20, task_seconds=0.1)
    while pool.history.direction != -1:
        pool.rounds(0.5, load)
    return pool


def test_a_shrinking_pool_grows_again_after_a_minute() -> None:
    pool = turned()
    counts = pool.rounds(70, node(rate=90, task_seconds=0.1))
    assert counts.index(10) == pytest.approx(120, abs=1)


def test_a_shrinking_pool_grows_at_once_if_tasks_would_be_late() -> None:
    assert turned().round(node(rate=70, task_seconds=0.1, workers=7), queue(2000, 1.0)).wanted == 16


# Bounds


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"most": 5, "granted": 5}, "range"),
        ({"most": 5, "granted": 5, "limited_by": "memory"}, "memory"),
        ({"most": 5, "granted": 5, "limited_by": "cpu"}, "cpu"),
        ({"granted": 5}, "budget"),
        ({"operator": 5}, "operator"),
    ],
)
def test_a_scaling_decision_names_what_limits_the_number_of_workers(changes: dict[str, Any], cause: str) -> None:
    decision = Pool().round(node(rate=50, task_seconds=0.02, **changes), queue(20_000))
    assert (decision.wanted, decision.limited_by) == (5, (cause,))
    assert decision.reason.endswith(f"; not more, because {CAUSES[cause]}")


def test_a_smaller_worker_range_applies_at_once() -> None:
    pool = settled(8, node())
    assert pool.round(node(workers=8, most=3, granted=3)).wanted == 3


def test_a_smaller_share_of_the_worker_budget_applies_at_once() -> None:
    pool = settled(8, node())
    decision = pool.round(node(workers=8, granted=3))
    assert (decision.wanted, decision.limited_by) == (3, ("budget",))


def test_a_smaller_budget_removes_workers_at_most_once_a_minute() -> None:
    pool = settled(4, node())
    assert pool.round(node(workers=4, granted=3)).wanted == 3
    assert pool.round(node(rate=90, task_seconds=0.1, workers=3), queue(2000, 5.0)).wanted == 16
    decision = pool.round(node(rate=90, task_seconds=0.1, workers=16, granted=3), queue(2000, 5.0))
    assert (decision.wanted, decision.shares) == (16, {"a": 16})


def test_automatic_scaling_continues_from_the_operators_worker_count() -> None:
    pool = Pool()
    assert pool.round(node(operator=9, workers=9)).wanted == 9
    assert pool.round(node(workers=9)).wanted == 9


def test_a_new_scaling_leader_starts_from_the_existing_workers() -> None:
    assert Pool().round(node(workers=5, starting=2)).wanted == 7


def test_starting_workers_are_awaited_before_more_are_started() -> None:
    pool = settled(2, node(rate=100, task_seconds=0.02))
    load = node(rate=100, task_seconds=0.02, workers=2, start_seconds=2.0)
    wanted = pool.round(load, queue(2000, 0.5)).wanted
    assert pool.round(load._replace(starting=wanted - 2), queue(2000, 1.0)).wanted == wanted


# Nodes and pools


def test_workers_are_shared_among_nodes_in_proportion_to_their_limits() -> None:
    nodes = (node(node="a", granted=4), node(node="b", granted=12))
    assert shares(8, nodes) == {"a": 2, "b": 6}


def test_a_node_whose_count_an_operator_set_keeps_that_count() -> None:
    nodes = (node(node="a", operator=2), node(node="b"))
    assert shares(8, nodes) == {"a": 2, "b": 6}


LOADS = st.builds(
    lambda least, more, operator: node(least=least, granted=least + more, most=least + more, operator=operator),
    st.integers(0, 3),
    st.integers(0, 9),
    st.none() | st.integers(0, 5),
)


@given(st.lists(LOADS, min_size=1, max_size=6), st.integers(0, 60))
def test_node_shares_add_up_and_no_share_shrinks_when_the_total_grows(loads: list[NodeLoad], wanted: int) -> None:
    nodes = tuple(load._replace(node=f"n{at}") for at, load in enumerate(loads))
    least = sum(each.least if each.operator is None else each.operator for each in nodes)
    most = sum(each.most if each.operator is None else each.operator for each in nodes)
    found = shares(wanted, nodes)
    assert sum(found.values()) == min(max(wanted, least), most)
    assert shares(wanted, nodes[::-1]) == found
    assert all(count >= found[name] for name, count in shares(wanted + 1, nodes).items())


def claim(workers: int, needed: int, lag_ratio: float = 0.0) -> BudgetClaim:
    """Return the needs of a pool with a range of 1 to 10 workers, from which its part of the budget is computed."""
    return BudgetClaim(1, 10, workers, needed, lag_ratio)


def test_the_worker_budget_goes_first_to_the_pool_furthest_from_its_objective() -> None:
    granted = budget_grants(8, {"mail": claim(2, 6, 0.5), "reports": claim(2, 6, 2.0)})
    assert granted == {"mail": 2, "reports": 6}


def test_a_pool_gives_up_workers_that_another_pool_needs() -> None:
    claims = {"mail": claim(7, 2), "reports": claim(1, 6, 2.0)}
    assert budget_grants(8, claims) == {"mail": 2, "reports": 1}
    claims["mail"] = claim(2, 2)
    assert budget_grants(8, claims) == {"mail": 2, "reports": 6}


def test_between_pools_that_all_lack_workers_one_worker_moves_at_a_time() -> None:
    claims = {"mail": claim(4, 9, 0.5), "reports": claim(4, 9, 2.0)}
    assert budget_grants(8, claims) == {"mail": 3, "reports": 4}
    claims["mail"] = claim(3, 9, 0.5)
    assert budget_grants(8, claims) == {"mail": 2, "reports": 5}


def test_pools_that_are_equally_late_keep_their_workers() -> None:
    assert budget_grants(8, {"mail": claim(4, 9, 1.8), "reports": claim(4, 9, 2.0)}) == {"mail": 4, "reports": 4}


def test_a_pool_keeps_workers_that_no_other_pool_needs() -> None:
    assert budget_grants(8, {"mail": claim(5, 2), "reports": claim(2, 2, 0.1)}) == {"mail": 5, "reports": 3}


@given(
    st.dictionaries(
        st.sampled_from("abcd"),
        st.builds(claim, st.integers(1, 6), st.integers(0, 20), st.floats(0, 3)),
        min_size=1,
    ),
    st.integers(0, 20),
)
def test_granted_workers_never_exceed_the_budget(claims: dict[str, BudgetClaim], more: int) -> None:
    budget = sum(each.workers for each in claims.values()) + more
    granted = budget_grants(budget, claims)
    assert sum(max(granted[pool], each.workers) for pool, each in claims.items()) <= budget
    assert all(granted[pool] >= each.least for pool, each in claims.items())


def test_a_scaling_decision_divides_its_workers_among_the_nodes() -> None:
    nodes = (node(rate=100, task_seconds=0.05, node="a"), node(rate=100, task_seconds=0.05, node="b", granted=2))
    decision = Pool().together(nodes)
    assert decision.shares == {"a": 11, "b": 1}
    assert decision.needs == {"a": 6, "b": 6}


def test_the_decision_for_an_idle_pool_states_that_it_has_nothing_to_do() -> None:
    assert Pool().round(node()).reason == "nothing to do"
