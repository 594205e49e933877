"""The back-off of a pool: what feeds it, what ends it."""

from rota_supervisor.config.model import Restarts
from rota_supervisor.master.backoff import CALM, EARLY_DEATHS, GIVE_UP_AFTER

LIMITS = Restarts(backoff_seconds=1.0, backoff_max_seconds=5.0, healthy_seconds=60.0)


def test_without_a_failure_any_number_may_start() -> None:
    assert CALM.allowance(now=0.0, starting=50) is None


def test_each_failed_start_doubles_the_wait_up_to_the_limit() -> None:
    backoff, now, waits = CALM, 0.0, []
    for _ in range(5):
        backoff = backoff.after_failed_start(asked_at=now, now=now, limits=LIMITS)
        waits.append(backoff.wait_until - now)
        now = backoff.wait_until
    assert waits == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_while_it_waits_nothing_starts_and_then_one_probe_at_a_time() -> None:
    backoff = CALM.after_failed_start(asked_at=0.0, now=1.0, limits=LIMITS)
    assert backoff.allowance(now=1.5, starting=0) == 0
    assert backoff.allowance(now=2.0, starting=0) == 1
    assert backoff.allowance(now=2.0, starting=1) == 0


def test_children_of_one_wave_count_once() -> None:
    backoff = CALM
    for died_at in (1.0, 1.1, 1.2):
        backoff = backoff.after_failed_start(asked_at=0.0, now=died_at, limits=LIMITS)
    assert backoff.failures == 1


def test_a_ready_child_ends_it() -> None:
    backoff = CALM.after_failed_start(asked_at=0.0, now=1.0, limits=LIMITS).after_ready()
    assert backoff.allowance(now=1.0, starting=9) is None


def test_a_generation_is_given_up_only_when_nothing_of_it_was_ever_ready() -> None:
    never, once = CALM, CALM.after_ready()
    for now in range(1, GIVE_UP_AFTER + 1):
        assert not never.gave_up
        never = never.after_failed_start(asked_at=now, now=now, limits=LIMITS)
        once = once.after_failed_start(asked_at=now, now=now, limits=LIMITS)
    assert never.gave_up
    assert not once.gave_up


def test_deaths_after_ready_restart_at_once_until_there_are_too_many_in_a_minute() -> None:
    backoff = CALM.after_ready()
    for number in range(EARLY_DEATHS):
        now = number * 0.01
        backoff = backoff.after_early_death(asked_at=now, now=now, limits=LIMITS).after_ready()
        assert backoff.allowance(now, starting=0) is None
    backoff = backoff.after_early_death(asked_at=2.0, now=2.0, limits=LIMITS).after_ready()
    assert backoff.allowance(2.0, starting=0) == 0


def test_children_that_are_killed_together_count_as_one_early_death() -> None:
    backoff = CALM.after_ready()
    for wave in range(EARLY_DEATHS):
        for number in range(50):
            asked_at = float(wave)
            backoff = backoff.after_outside_kill(asked_at, now=asked_at + 0.1 + number * 0.001, limits=LIMITS)
        assert backoff.allowance(wave + 0.2, starting=0) is None
    assert len(backoff.early) <= EARLY_DEATHS


def test_a_healthy_minute_forgets_early_deaths() -> None:
    backoff = CALM.after_ready()
    for number in range(EARLY_DEATHS + 1):
        now = number * 0.01
        backoff = backoff.after_early_death(asked_at=now, now=now, limits=LIMITS)
    assert backoff.calmed(30.0, LIMITS).failures
    assert backoff.calmed(62.0, LIMITS).allowance(62.0, starting=3) is None


def test_kills_from_outside_while_they_start_slow_no_generation_that_has_worked() -> None:
    backoff = CALM.after_ready()
    for number in range(EARLY_DEATHS):
        now = number * 0.1
        backoff = backoff.after_outside_kill(asked_at=now, now=now, limits=LIMITS)
        assert backoff.allowance(now, starting=50) is None
    backoff = backoff.after_outside_kill(asked_at=10.0, now=10.0, limits=LIMITS)
    assert backoff.allowance(10.0, starting=0) == 0, "but not without bound"


def test_a_kill_from_outside_does_not_hasten_a_pool_that_backs_off() -> None:
    failed = CALM.after_ready().after_failed_start(asked_at=0.0, now=1.0, limits=LIMITS)
    killed = failed.after_outside_kill(asked_at=1.0, now=1.5, limits=LIMITS)
    assert (killed.failures, killed.wait_until) == (failed.failures, failed.wait_until)


def test_a_generation_that_never_worked_is_given_up_however_its_children_die() -> None:
    backoff = CALM
    for now in range(1, GIVE_UP_AFTER + 1):
        backoff = backoff.after_outside_kill(asked_at=now, now=now, limits=LIMITS)
    assert backoff.gave_up
