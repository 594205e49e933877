"""Limits that the master enforces. To enforce them, it interrupts tasks, recycles workers one at a time, and kills
workers that do not exit.
"""

from collections import Counter

import pytest

from support.masters import ON_ONE_SERVER, Mastered
from support.waiting import until

TASKS = """
@rota.task(soft_time_limit=0.3)
def sleep_on(text):
    try:
        time.sleep(600)
    except rota.TimeLimit:
        record(f"interrupted {text}")

@rota.task
def short(text):
    time.sleep(0.02)
    record(f"short {os.getpid()}")

@rota.task
def deafen(text):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    record(f"deaf {os.getpid()}")
"""
COUNT = 3
ATTEMPTS = 6
PUSHED = 90

pytestmark = ON_ONE_SERVER


@pytest.fixture
def fleet(fleet: Mastered) -> Mastered:
    fleet.configure(f"workers = {COUNT}")
    fleet.add_tasks(TASKS)
    return fleet


def _reasons(fleet: Mastered, pids: set[int]) -> set[str]:
    return {line["reason"] for line in fleet.log() if line.get("child_pid") in pids and "reason" in line}


def test_workers_are_recycled_one_by_one_at_max_tasks(fleet: Mastered) -> None:
    fleet.configure(f"workers = {COUNT}\n[limits]\nmax_tasks = {ATTEMPTS}\nmax_tasks_jitter = 0.5")
    fleet.start()
    fleet.until_workers(COUNT)
    for number in range(PUSHED):
        fleet.push("short", str(number))
    ready: list[int] = []

    def all_ran() -> bool:
        ready.append(len(fleet.pids("worker", "ready")))
        return len(fleet.ran()) == PUSHED

    until(all_ran)
    attempts = Counter(int(line.split()[1]) for line in fleet.ran())
    assert max(attempts.values()) <= ATTEMPTS
    assert min(ready) >= COUNT - 1
    gone = set(attempts) - fleet.until_workers(COUNT)
    until(lambda: _reasons(fleet, gone) == {"max_tasks"})


def test_soft_limit_interrupts_the_task_but_not_the_worker(fleet: Mastered) -> None:
    fleet.start()
    workers = fleet.until_workers(COUNT)
    for text in ("first", "second"):
        fleet.push("sleep_on", text)
        until(lambda text=text: f"interrupted {text}" in fleet.ran())  # type: ignore[misc]  # a default
    assert fleet.until_workers(COUNT) == workers


def test_worker_that_ignores_sigterm_is_killed(fleet: Mastered) -> None:
    fleet.configure(f"workers = {COUNT}\n[limits]\nbeat_seconds = 2")
    fleet.start()
    fleet.push("deafen", "a")
    deaf = int(until(fleet.ran)[0].split()[1])
    assert fleet.request("restart")["restart"]["result"] == "success"
    assert deaf not in fleet.until_workers(COUNT)
    assert _reasons(fleet, {deaf}) == {"stop"}
