"""The outcomes and events that a client receives agree with the journal that the tasks write, even if workers and the
server are killed.
"""

import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import rota
from rota import Call, Handle
from rota.protocol.keys import Keys
from support.event_paths import places
from support.fleets import Measure, RunningFleet
from support.server_fixtures import Shaken
from support.waiting import until

TASKS = 10_000
WORKERS = 4
KILLS = 20
KILLS_BEFORE_THE_SERVERS = 8
WAITING = 100  # the number of threads that wait for tasks to end; each thread waits for one task after another
SECONDS = 240.0

ReportedEnd = tuple[str, object]  # the state of the task, and its return value or its error line


def end_by_result(handle: Handle[Any]) -> ReportedEnd:
    try:
        return "done", handle.result(SECONDS)
    except rota.TaskDead as dead:
        return "dead", str(dead).rpartition(": ")[2]


def kill_all_the_while(shaken: Shaken, fleet: RunningFleet) -> None:
    """Kill workers with SIGKILL at regular intervals, measured in finished tasks, and kill the server once. Returns
    when about half of the tasks are done.
    """
    chance = random.Random(12)
    totals = Keys(shaken.namespace).totals
    for number in range(KILLS):
        share = number * TASKS // 2 // (KILLS + 1)
        until(lambda share=share: int(shaken.redis.hget(totals, "done") or 0) >= share, "tasks that are done", SECONDS)  # type: ignore[misc]
        pids = until(fleet.workers, "a worker that is ready")
        os.kill(chance.choice(sorted(pids)), signal.SIGKILL)
        if number == KILLS_BEFORE_THE_SERVERS:
            shaken.server.kill()
            time.sleep(0.5)  # the time for which the server is down
            shaken.server.start()


def written(fleet: RunningFleet) -> dict[str, set[tuple[str, str]]]:
    """Return what each task wrote to the journal when it ended, by task id. Each element is a pair: `end` or `fail`,
    and the number that was the task's argument.
    """
    told: dict[str, set[tuple[str, str]]] = {}
    for line in fleet.journal():
        if line.event != "start":
            told.setdefault(line.id, set()).add((line.event, line.label))
    return told


@pytest.mark.timeout(300)
@pytest.mark.parametrize("server_options", [{"appendonly": "yes", "appendfsync": "always"}], ids=[""])
def test_the_reported_ends_of_10000_tasks_are_correct_despite_kills(shaken: Shaken, measured: Measure) -> None:
    fleet = shaken.start(workers=WORKERS, log={"tasks": "failures"}, events={"enabled": True})
    until(lambda: shaken.redis.exists(Keys(shaken.namespace).events_on), "events that are on")
    handles = fleet.client.enqueue_many(Call("judge", args=[number], queue="default") for number in range(TASKS))
    began = time.monotonic()
    with ThreadPoolExecutor(2 * WAITING) as threads, rota.Client(shaken.server.url, shaken.namespace) as other:
        results = [threads.submit(end_by_result, handle) for handle in handles]
        ends = [threads.submit(other.wait, handle.id, SECONDS) for handle in handles]
        kill_all_the_while(shaken, fleet)
        told = [future.result() for future in results]
        waited = [future.result().state for future in ends]
    measured("seconds until all 10000 had ended", time.monotonic() - began)
    expected: list[ReportedEnd] = [("dead", f"{n} is odd") if n % 2 else ("done", 3 * n) for n in range(TASKS)]
    assert told == expected
    assert waited == [state for state, _ in expected]
    assert [handle.status().state for handle in handles] == waited
    evidence = written(fleet)
    event_of = {"done": "end", "dead": "fail"}
    for number, (handle, state) in enumerate(zip(handles, waited, strict=True)):
        assert evidence[handle.id] == {(event_of[state], str(number))}
    with fleet.client.events("0", timeout=0) as events:  # every change must be reported, and none of them twice
        last = places(events)
    assert [last[handle.id] for handle in handles] == waited
    assert fleet.books_balance()
