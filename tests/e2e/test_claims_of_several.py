"""Workers that claim several short tasks at once. Nevertheless, no task waits behind a long task, and no finished task
runs again.
"""

import functools
import os
import random
import signal
from collections import Counter
from collections.abc import Collection
from typing import Any

import pytest
import redis

import rota
from rota import Call
from support.fleet_readings import Line
from support.fleets import Fleets, Measure, RunningFleet
from support.following import after, check_followed_once, lines_by_group, wait_until_nothing_is_left
from support.waiting import seconds_until, until

SLOW_HOOK = """
import time

import rota


@rota.task
def doomed() -> None:
    raise rota.Dead("as it was told")


@rota.on_dead
def report_slowly(task: rota.CurrentTask, error: str) -> None:
    time.sleep(0.1)  # longer than a claim may be held up
"""
BEFORE = 300  # enough short tasks to make workers claim several at once
BEHIND = 20
ROUNDS = 8
# Several rounds may be necessary, because it is random which task is the last of a claim. On a busy machine, tasks seem
# long and are therefore claimed one by one.
MOST_ROUNDS = 80
# The longest time between two tasks of one claim, in seconds. If a worker makes a turn between two tasks, the turn
# alone takes more than half of this time.
CLAIM_SECONDS = 0.001
KILLS = 1_000
TASKS_A_KILL = 30
DRAIN_SECONDS = 300  # on a busy machine, nearly all tasks may still be waiting after the last kill


def _notes(label: str, count: int) -> list[Call[None]]:
    return [Call("note", [label], queue="default") for _ in range(count)]


def _hold_up(fleet: RunningFleet, label: str) -> tuple[str, float]:
    """Enqueue short tasks, then one long task, then more short tasks. Wait until the last short tasks have run, while
    the long task still runs. Returns the id of the long task, and how many seconds after its start the last short task
    started.
    """
    behind = f"behind {label}"
    long_one: Call[None] = Call("hold", [label], queue="default")
    fleet.client.enqueue_many([*_notes(f"before {label}", BEFORE), long_one, *_notes(behind, BEHIND)])
    [held] = fleet.wait_for("start", label=label)
    ended = fleet.wait_for("end", BEHIND, label=behind)
    assert not fleet.journal("end", label=label)
    started = fleet.journal("start", label=behind)
    assert len(started) == len({line.id for line in ended}) == BEHIND
    # If the long task was given back, its worker may have run some of the short tasks before it.
    assert held.pid not in {line.pid for line in started if line.at > held.at}
    fleet.release(label)
    fleet.wait_for("end", label=label)
    return held.id, max(line.at for line in started) - held.at


def _recalled_for(fleet: RunningFleet, long_ones: Collection[str]) -> list[str]:
    """Return the ids of the long tasks that made a worker give back the tasks behind them. An id is listed once for
    each time. Short tasks are left out, although the log may name them too: on a busy machine, even a short task may
    take so long that its worker gives back the rest of the claim.
    """
    return [line["task_id"] for line in fleet.log("claim.returned") if line["task_id"] in long_ones]


def test_tasks_claimed_behind_a_long_task_move_to_other_workers(fleets: Fleets, measured: Measure) -> None:
    fleet = fleets.start(log={"level": "debug", "tasks": "failures"})
    seconds: dict[str, float] = {}
    while len(seconds) < ROUNDS or not _recalled_for(fleet, seconds):
        seconds |= [_hold_up(fleet, f"long{len(seconds)}")]
        assert len(seconds) < MOST_ROUNDS, "the long task was not claimed before others in any of these rounds"
    recalled = _recalled_for(fleet, seconds)
    assert max(Counter(recalled).values()) == 1
    measured("recalls", len(recalled))
    measured("ms from the start of a long task to the last start behind it, longest", max(seconds.values()) * 1000)
    assert fleet.books_balance()


def test_tasks_finished_before_a_long_one_are_settled_while_it_runs(fleets: Fleets, measured: Measure) -> None:
    fleet = fleets.start(workers=1)
    seconds: list[float] = []
    in_one_claim = 0
    while len(seconds) < ROUNDS or not in_one_claim:
        label = f"long{len(seconds)}"
        long_one: Call[None] = Call("hold", [label], queue="default")
        fleet.client.enqueue_many([*_notes(f"before {label}", BEFORE), long_one])
        [held] = fleet.wait_for("start", label=label)
        seconds.append(seconds_until(lambda: fleet.rota_json("audit")["live"] == 1, "the end of all but the long one"))
        in_one_claim += held.at - max(line.at for line in fleet.journal("end")) < CLAIM_SECONDS
        fleet.release(label)
        fleet.wait_for("end", label=label)
        assert len(seconds) < MOST_ROUNDS, "no task ended right before the long task began in any of these rounds"
    measured("s until all before a long task were settled, as the command line sees it, longest", max(seconds))
    assert not fleet.log("task.stale")
    assert fleet.books_balance()


def test_an_outcome_that_the_master_has_settled_is_not_logged_as_stale(fleets: Fleets) -> None:
    fleet = fleets.make(imports=["tasks", "hooks"], workers=1)
    (fleet.folder / "hooks.py").write_text(SLOW_HOOK)
    fleet.start()
    for number in range(ROUNDS):
        fleet.client.enqueue_many([*_notes(f"before {number}", BEFORE), Call("doomed", queue="default")])
        fleet.wait_for("end", BEFORE, label=f"before {number}")
    fleet.client.enqueue("note", args=["after"], queue="default")
    fleet.wait_for("end", label="after")
    assert len(fleet.log("task.dead")) == ROUNDS
    assert not fleet.log("task.stale")
    assert fleet.books_balance()


@pytest.mark.timeout(2 * DRAIN_SECONDS)
def test_no_finished_task_of_a_killed_worker_runs_again(
    fleets: Fleets, redis_client: redis.Redis, measured: Measure
) -> None:
    # Workers count as healthy at once. Otherwise, the master would delay starts in the pool after more than a hundred
    # sudden deaths per minute.
    restarts = {"crash_limit": 50, "healthy_seconds": 0.01}
    settings: dict[str, Any] = {"workers": 2, "restarts": restarts, "log": {"tasks": "failures"}}
    nodes = [fleets.node(name, **settings).start() for name in "ab"]
    seconds = seconds_until(functools.partial(_kill_workers, nodes, random.Random(KILLS)), "the kills")
    measured("kills a second", KILLS / seconds)
    fleet = nodes[0]
    fleet.wait_until_nothing_waits(DRAIN_SECONDS)
    lines = fleet.journal()
    assert len({line.id for line in lines if line.event == "end"}) == KILLS * (TASKS_A_KILL + 1)
    finished, again = _finished_and_started_again(lines)
    assert len(finished) > KILLS * TASKS_A_KILL // 2
    assert not again
    starts = Counter(line.id for line in lines if line.event == "start")
    measured("tasks started more than once, all in the hands of a killed worker", sum(n > 1 for n in starts.values()))
    for label, of_group in lines_by_group(lines).items():
        check_followed_once(of_group, label)
    wait_until_nothing_is_left(redis_client, fleet.namespace)
    assert fleet.books_balance()


def _kill_workers(nodes: list[RunningFleet], drawn: random.Random) -> bool:
    for number in range(KILLS):
        label = f"group {number}"
        spin: Call[None] = Call("spin", [label], queue="default")
        members: list[Call[None] | rota.Chain] = [rota.chain(spin, spin), *[spin] * (TASKS_A_KILL - 2)]
        nodes[0].client.enqueue(rota.group(members, then=after(label)))
        node = drawn.choice(nodes)
        pid = drawn.choice(sorted(until(node.workers, "a worker")))
        os.kill(pid, signal.SIGKILL)
        until(functools.partial(_has_left, node, pid), "its end")
    return True


def _has_left(fleet: RunningFleet, pid: int) -> bool:
    return pid not in fleet.workers()


def _finished_and_started_again(lines: list[Line]) -> tuple[set[str], list[str]]:
    """Return the ids of all tasks that had certainly finished, and of those among them that were started again
    afterwards. A task has certainly finished if its worker then began another task. The last task of a killed worker
    does not count, because the worker may have died before the outcome was stored.
    """
    last_end: dict[int, str] = {}
    finished: set[str] = set()
    again: list[str] = []
    for line in lines:
        if line.event == "end":
            last_end[line.pid] = line.id
            continue
        if line.pid in last_end:
            finished.add(last_end.pop(line.pid))
        if line.id in finished:
            again.append(line.id)
    return finished, again
