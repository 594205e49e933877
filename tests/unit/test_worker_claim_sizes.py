"""The number of tasks in a claim. In small steps, it approaches the number that takes about 5 ms to run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.protocol.tiers import NO_LIMITS, pack_limits
from rota.protocol.wire import Packed
from rota.worker.claims import CLAIM_NS, MOST, PIPELINED_NS, PREFETCH_NS, ClaimTimes, Prefetch

MILLISECOND_NS = 1_000_000


def _run(prefetch: Prefetch, limit: int, took_ns: list[int], queue: str = "q") -> int:
    """Run one claim of `limit` tasks, and return the limit of the next claim. The tasks take their run times from
    `took_ns`, in turn.
    """
    batch = ClaimTimes(queue, 0)
    for number in range(limit):
        batch.ended(batch.at_ns + took_ns[number % len(took_ns)])
    prefetch.learn(batch)
    return _limit_in(prefetch.limits, queue)


def _limit_in(packed: Packed, queue: str) -> int:
    found = [limit for limit in range(2, MOST + 1) if pack_limits({queue: limit}) == packed]
    return found[0] if found else 1


def _settled(took_ns: list[int], claims: int = 30) -> tuple[Prefetch, int]:
    prefetch, limit = Prefetch(), 1
    for _ in range(claims):
        limit = _run(prefetch, limit, took_ns)
    return prefetch, limit


def test_a_queue_with_unknown_run_times_is_claimed_one_task_at_a_time() -> None:
    assert Prefetch().limits == NO_LIMITS


def test_claims_of_short_tasks_grow_fourfold_each_up_to_the_limit() -> None:
    prefetch, limit, limits = Prefetch(), 1, []
    for _ in range(5):
        limit = _run(prefetch, limit, [1000])
        limits.append(limit)
    assert limits == [4, 16, 64, 128, MOST]


@given(st.integers(min_value=1, max_value=20 * MILLISECOND_NS))
def test_a_claim_is_one_task_or_at_most_five_milliseconds_of_work(took_ns: int) -> None:
    _, limit = _settled([took_ns])
    assert limit == 1 or limit * took_ns <= CLAIM_NS
    assert limit == MOST or (limit + 1) * took_ns > CLAIM_NS


def test_tasks_of_five_milliseconds_or_more_are_claimed_one_by_one() -> None:
    prefetch, limit = _settled([6 * MILLISECOND_NS])
    assert limit == 1
    assert prefetch.limits == NO_LIMITS


def test_one_long_task_shrinks_claims_which_then_grow_again() -> None:
    prefetch, _ = _settled([10_000])
    after = _run(prefetch, MOST, [10_000] * (MOST - 1) + [200 * MILLISECOND_NS])
    assert after == 1
    limit, limits = after, [after]
    for _ in range(30):
        limit = _run(prefetch, limit, [10_000])
        limits.append(limit)
    assert limits[1] == 1
    assert limits == sorted(limits)
    assert limits[-1] == MOST


def test_each_queue_has_its_own_claim_limit() -> None:
    prefetch = Prefetch()
    _run(prefetch, 1, [1000], "short")
    _run(prefetch, 1, [50 * MILLISECOND_NS], "long")
    assert prefetch.limits == pack_limits({"short": 4})


def test_a_claim_of_which_no_task_started_does_not_change_the_claim_size() -> None:
    prefetch = Prefetch()
    prefetch.learn(ClaimTimes("q", 0))
    assert prefetch.limits == NO_LIMITS


@given(st.integers(min_value=1, max_value=20 * MILLISECOND_NS), st.integers(min_value=0, max_value=MOST))
def test_the_next_tasks_are_claimed_when_at_most_half_a_claim_is_left(took_ns: int, tasks: int) -> None:
    prefetch, _ = _settled([took_ns])
    left = prefetch.left_at_turn("q", tasks, is_backlogged=False)
    assert left != 1
    assert 2 * left <= tasks
    assert left * took_ns <= PIPELINED_NS
    assert left or min(tasks // 2, PIPELINED_NS // took_ns) < 2


@given(st.integers(min_value=1, max_value=20 * MILLISECOND_NS), st.integers(min_value=1, max_value=MOST))
def test_with_a_backlog_the_next_tasks_are_claimed_before_a_short_last_task(took_ns: int, tasks: int) -> None:
    prefetch, _ = _settled([took_ns])
    left = prefetch.left_at_turn("q", tasks, is_backlogged=True)
    assert left == max(prefetch.left_at_turn("q", tasks, is_backlogged=False), int(took_ns <= PREFETCH_NS))


@pytest.mark.parametrize("is_backlogged", [False, True])
def test_with_unknown_run_times_a_worker_claims_again_after_its_last_task(*, is_backlogged: bool) -> None:
    assert Prefetch().left_at_turn("q", 10, is_backlogged=is_backlogged) == 0
