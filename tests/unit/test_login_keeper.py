"""The times at which the master calls a password provider again, and the way in which the master's children read the
login.
"""

import contextlib
import os

from rota.server.logins import Login, SharedLogins
from rota_supervisor.master.effects.login_keeper import MOST_PAUSE_SECONDS, RenewalPlan

NOW = 1000.0
FOR_EVER = Login("shop", "word", NOW)
OF_A_MINUTE = Login("shop", "word", NOW, NOW + 60)


def test_a_login_without_expiry_is_renewed_after_refusal_or_new_provider() -> None:
    plan = RenewalPlan(FOR_EVER, "a:b")
    assert not plan.is_due("a:b", NOW + 1e9)
    assert plan.is_due("c:d", NOW)
    plan.is_refused = True
    assert plan.is_due("a:b", NOW)


def test_a_login_is_renewed_after_four_fifths_of_its_time() -> None:
    plan = RenewalPlan(OF_A_MINUTE, "a:b")
    assert [plan.is_due("a:b", NOW + seconds) for seconds in (0, 47.9, 48, 90)] == [False, False, True, True]
    plan.was_read("a:b", Login("shop", "next", NOW + 48, NOW + 108), NOW + 48)
    assert not plan.is_due("a:b", NOW + 80)


def test_a_login_that_differs_only_in_its_start_time_counts_as_unchanged() -> None:
    plan = RenewalPlan(OF_A_MINUTE, "a:b")
    assert not plan.is_another(OF_A_MINUTE._replace(since=NOW + 1))
    assert plan.is_another(OF_A_MINUTE._replace(password="next"))
    assert plan.is_another(OF_A_MINUTE._replace(until=NOW + 61))


def test_a_provider_whose_logins_are_refused_is_called_with_back_off() -> None:
    plan, now, provider_called = RenewalPlan(FOR_EVER, "a:b", is_refused=True), NOW, 0
    while now < NOW + 600:
        if plan.is_due("a:b", now):
            plan.was_read("a:b", FOR_EVER if provider_called % 2 else None, now)
            provider_called += 1
        plan.is_refused = True
        now += 0.5
    assert 600 / MOST_PAUSE_SECONDS <= provider_called <= 100


def test_a_refused_login_is_renewed_at_once_if_the_last_call_was_long_ago() -> None:
    plan = RenewalPlan(FOR_EVER, "a:b", is_refused=True)
    for _ in range(9):
        plan.was_read("a:b", None, NOW)
    plan.was_read("a:b", FOR_EVER, NOW)
    assert not plan.is_due("a:b", NOW + 2 * MOST_PAUSE_SECONDS)
    plan.is_refused = True
    assert plan.is_due("a:b", NOW + 2 * MOST_PAUSE_SECONDS)


def test_a_new_source_is_read_without_the_pauses_of_the_old_one() -> None:
    plan = RenewalPlan(FOR_EVER, "a:b", is_refused=True)
    for _ in range(9):
        plan.was_read("a:b", None, NOW)
    assert not plan.is_due("a:b", NOW + 1)
    assert plan.is_due("c:d", NOW + 1)
    plan.was_read("c:d", None, NOW + 1)
    assert not plan.is_due("c:d", NOW + 1)


def test_children_read_the_latest_login_but_cannot_write_it() -> None:
    shared = SharedLogins.create(OF_A_MINUTE)
    child = SharedLogins(shared.to_read, shared.bell)
    assert child.current() == child.kept() == OF_A_MINUTE
    for password in ("w" * 50_000, "short"):
        shared.put(FOR_EVER._replace(password=password))
        assert child.current().password == password
    try:
        child.put(FOR_EVER)
    except OSError:
        assert child.current().password == "short"
    else:
        raise AssertionError("a child wrote the login")
    for fd in (shared.memory, shared.to_read, shared.bell):
        os.close(fd)


def test_a_child_reports_a_refused_login_to_the_master_only_once() -> None:
    shared = SharedLogins.create(FOR_EVER)
    child = SharedLogins(shared.to_read, shared.bell)
    assert not shared.take_refusals()
    assert not child.refused()
    assert not child.refused()
    assert [shared.take_refusals() for _ in range(2)] == [True, False]
    for fd in (shared.memory, shared.to_read, shared.bell):
        os.close(fd)


def test_a_task_that_writes_to_the_pipe_and_changes_its_flags_does_not_block_the_master() -> None:
    shared = SharedLogins.create(FOR_EVER)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(shared.bell, bytes(4096))
    os.set_blocking(shared.bell, True)
    while shared.take_refusals():
        pass
    assert not shared.refused()
    assert [shared.take_refusals() for _ in range(2)] == [True, False]
    for fd in (shared.memory, shared.to_read, shared.bell):
        os.close(fd)
