"""The task events of a fleet. The application and the command line read the events, and a reload by HUP enables and
disables them.
"""

import json
import os
import random
import signal
import subprocess
from collections.abc import Iterable
from functools import partial

import pytest

import rota
from rota import Call, TaskEvent
from support.event_paths import ENDED, places
from support.fleet_process import ROTA, environment
from support.fleets import Fleets, RunningFleet
from support.waiting import until

ON = {"enabled": True}
LEASE = {"seconds": 2.5, "renew_seconds": 0.6}
SPUN = 300
KILLS = 5


@pytest.fixture
def fleet(fleets: Fleets) -> RunningFleet:
    made = fleets.start(events=ON, lease=LEASE)
    until(lambda: wants_events(made), "events that are on")
    return made


def wants_events(fleet: RunningFleet) -> bool:
    try:
        fleet.client.events().close()
    except rota.EventsOff:
        return False
    return True


def stored_events(fleet: RunningFleet, after: str = "0") -> list[TaskEvent]:
    with fleet.client.events(after, timeout=0) as events:
        return list(events)


def events_of(events: Iterable[TaskEvent], task_id: str) -> list[str]:
    return [event.event for event in events if event.task_id == task_id]


def test_every_change_of_a_task_is_an_event(fleet: RunningFleet) -> None:
    client = fleet.client
    ways = {
        client.enqueue("note", queue="default").id: ["enqueued", "started", "done"],
        client.enqueue("note", queue="default", delay=0.1).id: ["scheduled", "ready", "started", "done"],
        client.enqueue("add", args=["x", 1], queue="default", retries=0).id: ["enqueued", "started", "dead"],
        client.enqueue("kill_worker", queue="default").id: [
            "enqueued", "started", "recovered", "started", "recovered", "started", "dead",
        ],
    }  # fmt: skip
    waits = client.enqueue("note", queue="default", delay=3600)
    ways[waits.id] = ["scheduled", "cancelled"]
    waits.cancel()
    runs = fleet.hold("long")
    client.cancel(runs.id)
    fleet.release("long")
    until(
        lambda: events_of(stored_events(fleet), runs.id)[-1] in {"cancelled", "done"}, "its end, whichever was sooner"
    )
    until(
        lambda: all(events_of(stored_events(fleet), task_id) == expected for task_id, expected in ways.items()),
        lambda: stored_events(fleet),
    )
    dead_id = next(task_id for task_id, expected in ways.items() if expected == ["enqueued", "started", "dead"])
    assert fleet.client.revive(dead_id)
    until(lambda: events_of(stored_events(fleet), dead_id)[3:] == ["revived", "started", "dead"])
    assert fleet.rota("dead", "purge", dead_id, "--yes").returncode == 0
    assert events_of(stored_events(fleet), dead_id)[-1] == "purged"
    done = [event for event in stored_events(fleet) if event.event == "done"]
    assert all(event.task in {"note", "hold"} and event.attempt == 1 and event.owner for event in done)
    assert all(event.runtime_seconds is not None for event in done)


def test_task_events_agree_with_the_journal_despite_killed_workers(fleet: RunningFleet) -> None:
    chance = random.Random(7)
    with fleet.client.events(timeout=60) as reader:
        handles = fleet.client.enqueue_many(Call("spin", args=["x"], queue="default") for _ in range(SPUN))
        handles += fleet.client.enqueue_many(
            Call("add", args=[n, "no"], queue="default", retries=0) for n in range(SPUN // 3)
        )
        for _ in range(KILLS):
            killed = chance.choice(sorted(until(fleet.workers)))
            os.kill(killed, signal.SIGKILL)
            until(partial(fleet.is_whole_without, killed), "a whole pool")
        received: list[TaskEvent] = []
        while sum(event.event in {"done", "dead"} for event in received) < len(handles):
            received.append(next(reader))
    last = places(received)
    assert set(last) == {handle.id for handle in handles}
    assert set(last.values()) <= {*ENDED, "dead"}
    ran = {line.id for line in fleet.journal("end")}
    assert {task_id for task_id, place in last.items() if place == "done"} == ran
    starts = [event for event in received if event.event == "started"]
    assert len(fleet.journal("start")) <= len(starts)
    assert fleet.books_balance()


def test_a_reload_turns_task_events_off_and_on(fleet: RunningFleet) -> None:
    fleet.client.enqueue("note", queue="default")
    until(lambda: len(stored_events(fleet)) == 3)
    fleet.edit(events={"enabled": False})
    fleet.hup()
    until(lambda: not wants_events(fleet), "events that are off")
    fleet.client.enqueue("note", args=["untold"], queue="default")
    fleet.wait_for("end", label="untold")
    until(fleet.books_balance)
    assert len(stored_events(fleet)) == 3
    fleet.edit(events=ON)
    fleet.hup()
    until(lambda: wants_events(fleet), "events that are on again")
    fleet.client.enqueue("note", queue="default")
    until(lambda: len(stored_events(fleet)) == 6)


def test_the_events_command_shows_and_follows_events_until_ctrl_c(fleet: RunningFleet) -> None:
    first = fleet.client.enqueue("note", queue="default")
    until(lambda: len(stored_events(fleet)) == 3)
    shown = [json.loads(line) for line in fleet.rota("events", "--json").stdout.splitlines()]
    assert [(event["event"], event["task_id"]) for event in shown] == [
        (event, first.id) for event in ("enqueued", "started", "done")
    ]
    assert fleet.rota("events", "--after", shown[0]["id"], "--task", "note").stdout.count("\n") == 2
    with following(fleet, "--after", shown[-1]["id"], "--json") as process:
        assert process.stdout is not None
        second = fleet.client.enqueue("note", queue="default")
        lines = [json.loads(process.stdout.readline()) for _ in range(3)]
        assert {event["task_id"] for event in lines} == {second.id}
        process.send_signal(signal.SIGINT)
        assert (process.wait(30), process.stderr.read().strip() if process.stderr else "") == (130, "")
    with following(fleet) as process:
        assert process.stdout is not None
        assert "enqueued" in process.stdout.readline()
        process.stdout.close()  # close the pipe as `head -1` does; the command must notice it without further events
        assert process.wait(30) == 0


def following(fleet: RunningFleet, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [ROTA, "events", "-f", *arguments],
        cwd=fleet.folder,
        env=environment(fleet.folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
