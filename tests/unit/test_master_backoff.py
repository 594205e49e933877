"""The back-off of a pool: when it begins, grows and ends."""

import pytest

from rota_supervisor.config.model import Restarts
from rota_supervisor.layout import Role
from rota_supervisor.master.core.start_backoff import (
    BUDGETS,
    CALM,
    GIVE_UP_AFTER,
    SUDDEN_DEATHS,
    TASK_PAUSE_SECONDS,
    TOLERATED,
    ChildEnd,
    StartBackoff,
)
from rota_supervisor.master_snapshot import PoolState

LIMITS = Restarts(backoff_seconds=1.0, backoff_max_seconds=5.0, healthy_seconds=60.0)


def test_without_failures_any_number_of_children_may_start_at_once() -> None:
    assert CALM.allowance(now=0.0, starting=50) is None


def test_each_failed_start_doubles_the_back_off_up_to_the_limit() -> None:
    backoff = CALM
    now = 0.0
    waits = []
    for _ in range(5):
        backoff = backoff.after_failed_start(requested_at=now, now=now, limits=LIMITS)
        waits.append(backoff.wait_until - now)
        now = backoff.wait_until
    assert waits == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_after_a_back_off_only_one_child_is_started_as_a_probe() -> None:
    backoff = CALM.after_failed_start(requested_at=0.0, now=1.0, limits=LIMITS)
    assert backoff.allowance(now=1.5, starting=0) == 0
    assert backoff.allowance(now=2.0, starting=0) == 1
    assert backoff.allowance(now=2.0, starting=1) == 0


def test_failures_of_children_that_were_started_together_count_once() -> None:
    backoff = CALM
    for died_at in (1.0, 1.1, 1.2):
        backoff = backoff.after_failed_start(requested_at=0.0, now=died_at, limits=LIMITS)
    assert backoff.failures == 1


def test_a_child_that_becomes_ready_ends_the_back_off() -> None:
    backoff = CALM.after_failed_start(requested_at=0.0, now=1.0, limits=LIMITS).after_ready(1.0)
    assert backoff.allowance(now=1.0, starting=9) is None


def test_a_failing_generation_is_given_up_only_if_it_was_never_ready() -> None:
    never = CALM
    once = CALM.after_ready(0.0)
    for now in range(1, GIVE_UP_AFTER + 1):
        assert not never.gave_up
        never = never.after_failed_start(requested_at=now, now=now, limits=LIMITS)
        once = once.after_failed_start(requested_at=now, now=now, limits=LIMITS)
    assert never.gave_up
    assert not once.gave_up


def test_too_many_sudden_worker_deaths_in_a_minute_delay_restarts() -> None:
    backoff = CALM.after_ready(0.0)
    for number in range(SUDDEN_DEATHS):
        now = number * 0.01
        backoff = backoff.after_sudden_death(requested_at=now, now=now, limits=LIMITS).after_ready(now)
        assert backoff.allowance(now, starting=0) is None
    backoff = backoff.after_sudden_death(requested_at=2.0, now=2.0, limits=LIMITS).after_ready(2.0)
    assert backoff.allowance(2.0, starting=0) == 0


def test_workers_killed_together_count_as_one_sudden_death() -> None:
    backoff = CALM.after_ready(0.0)
    for wave in range(SUDDEN_DEATHS):
        for number in range(50):
            requested_at = float(wave)
            backoff = backoff.after_outside_kill(requested_at, now=requested_at + 0.1 + number * 0.001, limits=LIMITS)
        assert backoff.allowance(wave + 0.2, starting=0) is None
    assert len(backoff.sudden_deaths) <= SUDDEN_DEATHS


def test_sudden_deaths_are_forgotten_after_a_healthy_minute() -> None:
    backoff = CALM.after_ready(0.0)
    for number in range(SUDDEN_DEATHS + 1):
        now = number * 0.01
        backoff = backoff.after_sudden_death(requested_at=now, now=now, limits=LIMITS)
    assert backoff.calmed(30.0, LIMITS).failures
    assert backoff.calmed(62.0, LIMITS).allowance(62.0, starting=3) is None


def test_a_few_kills_from_outside_cause_no_back_off_for_working_code() -> None:
    backoff = CALM.after_ready(0.0)
    for number in range(SUDDEN_DEATHS):
        now = number * 0.1
        backoff = backoff.after_outside_kill(requested_at=now, now=now, limits=LIMITS)
        assert backoff.allowance(now, starting=50) is None
    backoff = backoff.after_outside_kill(requested_at=10.0, now=10.0, limits=LIMITS)
    assert backoff.allowance(10.0, starting=0) == 0, "but not without bound"


def test_a_kill_from_outside_does_not_shorten_a_back_off() -> None:
    failed = CALM.after_ready(0.0).after_failed_start(requested_at=0.0, now=1.0, limits=LIMITS)
    killed = failed.after_outside_kill(requested_at=1.0, now=1.5, limits=LIMITS)
    assert (killed.failures, killed.wait_until) == (failed.failures, failed.wait_until)


def test_a_generation_that_never_worked_is_given_up_after_repeated_kills() -> None:
    backoff = CALM
    for now in range(1, GIVE_UP_AFTER + 1):
        backoff = backoff.after_outside_kill(requested_at=now, now=now, limits=LIMITS)
    assert backoff.gave_up


# Early exits: children that die by their own fault, soon after READY and before they have finished a task


def early_exit(requested_at: float, at: float, *, in_task: bool = False) -> ChildEnd:
    return ChildEnd(requested_at, at, ready_at=requested_at, in_task=in_task, text="killed by SIGSEGV")


def exiting_early(times: int, *, in_task: bool = False, backoff: StartBackoff = CALM) -> StartBackoff:
    """Return the back-off after this number of early exits, each a second after the child was READY."""
    for number in range(times):
        now = float(number)
        backoff = backoff.after_ready(now).after_end(early_exit(now, now + 1, in_task=in_task), LIMITS)
    return backoff


def test_each_early_exit_beyond_the_tolerated_number_doubles_the_back_off() -> None:
    assert exiting_early(TOLERATED).allowance(float(TOLERATED), starting=3) is None
    backoff = exiting_early(TOLERATED)
    waits = []
    for now in (100.0, 200.0, 300.0, 400.0):
        backoff = backoff.after_ready(now).after_end(early_exit(now, now + 1), LIMITS)
        waits.append(backoff.wait_until - now - 1)
    assert waits == [1.0, 2.0, 4.0, 5.0]


def test_after_early_exits_a_new_child_must_survive_before_the_next_starts() -> None:
    backoff = exiting_early(TOLERATED + 2)
    at = backoff.wait_until
    assert backoff.allowance(at, starting=0) == 1
    up = backoff.after_ready(at)
    assert up.allowance(at, starting=0) == 0
    assert up.allowance(at + 2.0, starting=0) == 1, "it has lived for as long as the wait was"


def test_early_exits_of_children_that_were_started_together_count_once() -> None:
    backoff = CALM
    for wave in range(5):
        for number in range(50):
            backoff = backoff.after_end(early_exit(float(wave), wave + 0.5 + number * 0.001), LIMITS)
    assert backoff.early_exits == 5


def test_early_exits_are_forgotten_only_after_a_healthy_minute() -> None:
    backoff = exiting_early(TOLERATED + 1)
    assert backoff.calmed(10_000.0, LIMITS).exits_early, "nothing has come up since"
    up = backoff.after_ready(100.0)
    assert up.calmed(159.0, LIMITS).exits_early
    assert up.calmed(160.0, LIMITS) == up.calmed(160.0, LIMITS).calmed(161.0, LIMITS)
    assert up.calmed(160.0, LIMITS).allowance(160.0, starting=9) is None


def test_a_task_done_by_a_newer_worker_clears_early_exits() -> None:
    backoff = exiting_early(TOLERATED + 1, in_task=True)
    assert backoff.after_work(requested_at=1.0).exits_early, "that one came before"
    assert not backoff.after_work(requested_at=100.0).failures_in_a_row


def test_workers_killed_by_their_first_task_restart_after_bounded_delays() -> None:
    slow = Restarts(backoff_seconds=0.1, backoff_max_seconds=30.0)
    backoff = CALM
    now = 0.0
    for _ in range(100):
        backoff = backoff.after_ready(now).after_end(early_exit(now, now, in_task=True), slow)
        now = max(now, backoff.wait_until)
    assert backoff.wait_until - backoff.early_exit_at == TASK_PAUSE_SECONDS
    assert backoff.condition(Role.WORKER) is PoolState.FATAL


def test_tasks_that_kill_proven_workers_do_not_delay_restarts() -> None:
    backoff = CALM
    for number in range(1000):
        now = number * 0.01
        end = ChildEnd(now, now, ready_at=now, in_task=True, has_worked=True)
        backoff = backoff.after_ready(now).after_end(end, LIMITS)
    assert backoff.allowance(10.0, starting=8) is None
    assert not backoff.failures_in_a_row


@pytest.mark.parametrize(
    "end",
    [
        ChildEnd(0.0, 1.0, ready_at=0.5, explained=True),
        ChildEnd(0.0, 1.0, ready_at=0.5, in_task=True, from_outside=True),
        ChildEnd(0.0, 60.5, ready_at=0.5),
    ],
    ids=["we know why it died", "somebody killed it in a task", "it was healthy"],
)
def test_explained_or_late_ends_of_children_do_not_change_the_back_off(end: ChildEnd) -> None:
    assert CALM.after_end(end, LIMITS) == CALM


def test_a_kill_from_outside_does_not_count_as_early_exit() -> None:
    backoff = CALM.after_end(ChildEnd(0.0, 1.0, ready_at=0.5, from_outside=True), LIMITS)
    assert (backoff.early_exits, len(backoff.sudden_deaths)) == (0, 1)


# The displayed state


def test_repeated_start_failures_lead_to_back_off_and_then_to_fatal() -> None:
    backoff = CALM
    shown = []
    for number in range(max(BUDGETS.values())):
        now = number * 10.0
        end = ChildEnd(now, now, text="exited with code 3")
        backoff = backoff.after_end(end, LIMITS)
        shown.append(backoff.condition(Role.WORKER))
    budget = BUDGETS[Role.WORKER]
    assert shown == [PoolState.RUNNING, *[PoolState.BACKOFF] * (budget - 2), PoolState.FATAL]
    assert (backoff.failures_in_a_row, backoff.last_end) == (budget, "exited with code 3")
    assert backoff.allowance(backoff.wait_until, starting=0) == 1, "probes continue"
    assert backoff.after_ready(1000.0).condition(Role.WORKER) is PoolState.RUNNING


def test_every_role_that_the_master_restarts_has_a_failure_budget() -> None:
    assert BUDGETS.keys() == set(Role) - {Role.MASTER}
    assert min(BUDGETS.values()) > GIVE_UP_AFTER, "a generation that never worked is given up before a person is called"


def test_early_exits_beyond_the_tolerated_number_change_the_pool_state() -> None:
    assert exiting_early(TOLERATED).condition(Role.WORKER) is PoolState.RUNNING
    assert exiting_early(TOLERATED + 1).condition(Role.WORKER) is PoolState.BACKOFF
    assert exiting_early(TOLERATED + BUDGETS[Role.WORKER]).condition(Role.WORKER) is PoolState.FATAL


def test_a_reload_resets_the_back_off() -> None:
    fatal = exiting_early(TOLERATED + BUDGETS[Role.WORKER])
    assert fatal.reset().condition(Role.WORKER) is PoolState.RUNNING
    assert fatal.reset().allowance(0.0, starting=5) is None
    assert fatal.reset().ever_ready
