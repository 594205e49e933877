"""A pool whose `concurrency` is set. One process runs a hundred tasks at once, and each task ends with its own
outcome.
"""

import os
import signal
from collections.abc import Iterable

import pytest

import rota
from support.fleets import Fleets, RunningFleet
from support.waiting import until

PLACES = 100


@pytest.fixture
def fleet(fleets: Fleets) -> RunningFleet:
    return fleets.start(pools={"all": {"workers": 1, "concurrency": PLACES}})


def attend(fleet: RunningFleet, label: str, how: str = "waits") -> rota.Handle[None]:
    return fleet.client.enqueue("attend", args=[label, how], queue="default")


def named(fleet: RunningFleet, task: str) -> rota.Handle[None]:
    return fleet.client.enqueue(task, args=[task], queue="default")


def until_ended(handles: Iterable[rota.Handle[None]], state: str = "done") -> None:
    left = list(handles)

    def all_have() -> bool:
        left[:] = [handle for handle in left if handle.status().state != state]
        return not left

    until(all_have, lambda: [handle.status() for handle in left[:3]], 60)


def release_all(fleet: RunningFleet) -> None:
    (fleet.shared / "release-all").touch()


def test_concurrent_tasks_of_one_process_end_independently_of_each_other(
    fleet: RunningFleet,
) -> None:
    [worker] = fleet.workers()
    cancelled = [attend(fleet, f"cancelled-{n}") for n in range(3)]
    limited = [named(fleet, "attend_briefly") for _ in range(3)]
    failing = [attend(fleet, f"failing-{n}", "fails") for n in range(3)]
    others = [attend(fleet, f"other-{n}") for n in range(PLACES - 9)]
    fleet.wait_for("start", PLACES)
    until(lambda: fleet.metrics().total("rota_workers_busy") >= PLACES - len(limited), "all of them at once")
    assert fleet.metrics().total("rota_worker_concurrency") == PLACES
    assert [handle.cancel() for handle in cancelled] == ["running"] * 3
    until_ended(cancelled, "cancelled")
    until_ended(limited, "dead")
    assert ["TimeLimit" in handle.status().attempts[-1].error for handle in limited] == [True] * 3
    assert {line.id for line in fleet.journal("told")} == {handle.id for handle in (*cancelled, *limited)}
    release_all(fleet)
    until_ended((*failing, *others))
    assert len(fleet.journal("fail")) == len(failing)
    assert (len(fleet.journal("start")), len(fleet.journal("end"))) == (PLACES, PLACES - 6)
    assert fleet.workers() == {worker}
    assert {line.pid for line in fleet.journal()} == {worker}
    assert fleet.books_balance()


def test_a_task_over_its_hard_limit_ends_its_process_but_is_the_only_one_charged(fleet: RunningFleet) -> None:
    over = named(fleet, "attend_too_long")
    others = [attend(fleet, f"other-{n}") for n in range(19)]
    for handle in others:
        fleet.wait_for("start", 2, id=handle.id)
    until_ended([over], "dead")
    assert "time limit" in over.status().attempts[-1].error
    release_all(fleet)
    until_ended(others)
    assert {line.crashes for line in fleet.journal("start")} == {0}
    assert len(fleet.journal("start", id=over.id)) == 1
    assert fleet.books_balance()


def test_only_running_tasks_of_a_killed_worker_start_again(fleet: RunningFleet) -> None:
    ended = [fleet.client.enqueue("note", args=[f"ended-{n}"], queue="default") for n in range(50)]
    running = [attend(fleet, f"running-{n}") for n in range(PLACES)]
    for handle in running:
        fleet.wait_for("start", id=handle.id)
    [worker] = fleet.workers()
    os.kill(worker, signal.SIGKILL)
    release_all(fleet)
    until_ended((*ended, *running))
    assert all(len(fleet.journal("start", id=handle.id)) == 1 for handle in ended)
    assert all([line.crashes for line in fleet.journal("start", id=handle.id)] == [0, 1] for handle in running)
    assert all(len(fleet.journal("end", id=handle.id)) == 1 for handle in running)
    assert fleet.books_balance()


def test_only_the_task_that_kills_its_process_becomes_dead_and_others_end(fleet: RunningFleet) -> None:
    others = [attend(fleet, f"other-{n}") for n in range(PLACES - 1)]
    poison = attend(fleet, "poison", "kills")
    until(lambda: fleet.log("worker.exited"), "the first crash")
    release_all(fleet)
    until_ended([poison], "dead")
    until_ended(others)
    assert [line.crashes for line in fleet.journal("start", id=poison.id)] == [0, 1, 2]
    assert max(line.crashes for line in fleet.journal("start") if line.id != poison.id) <= 1
    assert fleet.books_balance()


def test_a_task_that_blocks_the_event_loop_is_logged_with_its_stack(fleet: RunningFleet) -> None:
    other = attend(fleet, "other")
    fleet.wait_for("start", id=other.id)
    blocker = attend(fleet, "blocker", "blocks")
    fleet.wait_for("start", id=blocker.id)
    release_all(fleet)
    until_ended([blocker, other])
    blocked = [line for line in fleet.log("worker.blocked") if line["task_id"] == blocker.id]
    assert max(line["seconds"] for line in blocked if "seconds" in line) > 2
    assert any(line.get("stack", "").startswith("attend (") for line in blocked)
    assert fleet.metrics().total("rota_worker_loop_blocked_seconds_total", task="attend") > 2
