"""The document `/status.json` of a real fleet with two nodes, and how this document changes over time."""

import json
import os
import re
import signal
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from support.fleet_process import DEADLINE_SECONDS
from support.fleets import Fleets, RunningFleet
from support.masters import ON_ONE_SERVER
from support.prose import ROOT
from support.waiting import until

pytestmark = ON_ONE_SERVER

TIERS: Final = [["mail", "default"], ["bulk", "t:*"]]
QUEUES: Final = {"mail": {"weight": 3.0}, "default": {"weight": 1.0}}
LEASE: Final = {"seconds": 3, "renew_seconds": 0.5}
TASKS: Final = 12
Status = dict[str, Any]


def status_of(fleet: RunningFleet, query: str = "") -> Status:
    code, body = fleet.get(f"/status.json{query}")
    assert code == 200, body
    found: Status = json.loads(body)
    return found


def until_status(fleet: RunningFleet, holds: Callable[[Status], object], what: str) -> Status:
    """Wait until the status meets the condition `holds`, and return this status."""

    def look() -> Status | None:
        found = status_of(fleet)
        return found if holds(found) else None

    found = until(look, what)
    assert found is not None
    return found


def row(rows: list[Status], **fields: Any) -> Status:
    [found] = [each for each in rows if fields.items() <= each.items()]
    return found


def event(status: Status, name: str) -> Status | None:
    return next((each for each in status["events"] if each["event"] == name), None)


def other_node(status: Status) -> Status:
    return row(status["nodes"], is_this=False)


def keys_in(value: Any) -> Iterator[str]:
    """Yield the keys of a document at all levels. Parts that are documented elsewhere, and parts whose keys are
    user-defined names, are not searched.
    """
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield key
        if key not in ("fields", "processed", "workers", "last_death", "checks"):
            yield from keys_in(inner)
    for each in value if isinstance(value, list) else ():
        yield from keys_in(each)


@pytest.fixture
def nodes(fleets: Fleets) -> tuple[RunningFleet, RunningFleet]:
    """Return two nodes, one with two workers and one with a single worker. The task `hold` has a time limit of a
    minute.
    """
    settings = {"tiers": TIERS, "queues": QUEUES, "lease": LEASE, "tasks": {"hold": {"time_limit_seconds": 60}}}
    first = fleets.node("first", **settings).start()
    return first, fleets.node("second", **settings, workers=1).start()


def test_the_status_shows_running_tasks_events_and_other_nodes(
    nodes: tuple[RunningFleet, RunningFleet],
) -> None:
    first, second = nodes
    assert second.request("quiet")["ok"]  # from now on, only the first node claims tasks
    for number in range(TASKS):
        first.client.enqueue("note", args=[str(number)], queue=("mail", "default", "t:1")[number % 3])
    first.wait_for("end", TASKS)
    first.hold("long", queue="mail")
    seen = until_status(first, lambda found: sum(found["overall"]["done"]) == TASKS, "a step with all of them")
    check_history(seen)
    check_running_task(first, seen)
    check_events(first)
    check_other_node(first, second)
    documented = set(re.findall(r"`([a-z0-9_]+)`", (ROOT / "docs/status.md").read_text(encoding="utf-8")))
    assert set(keys_in(seen)) <= documented


def check_history(seen: Status) -> None:
    assert seen["tiers"] == [{"number": number, "queues": tier} for number, tier in enumerate(TIERS, 1)]
    steps = seen["history"]["length"]
    assert {len(values) for queue in seen["queues"] if queue["history"] for values in queue["history"].values()} == {
        steps
    }
    assert seen["lag"]["starts"] == sum(seen["overall"]["started"]) == TASKS + 1
    mail, default = row(seen["queues"], name="mail"), row(seen["queues"], name="default")
    assert (mail["tier"], mail["weight"], mail["due_share"], default["due_share"]) == (1, 3.0, 0.75, 0.25)
    assert mail["share"] + default["share"] == pytest.approx(1, abs=1e-3)
    assert sum(row(seen["queues"], name="t:*")["history"]["done"]) == TASKS / 3
    of_pattern = row(seen["queues"], name="t:1")
    assert (of_pattern["pattern"], of_pattern["history"], of_pattern["share"]) == ("t:*", None, None)
    assert max(filter(None, mail["history"]["p99"])) > 0


def check_running_task(fleet: RunningFleet, seen: Status) -> None:
    [line] = fleet.journal("start", label="long")
    worker = row(seen["processes"], pid=line.pid)
    assert (worker["pool"], worker["generation"], worker["concurrency"], worker["quiet"]) == ("default", 1, 1, False)
    [task] = worker["tasks"]
    assert (task["task"]["name"], task["limit_seconds"]) == ("hold", 60)
    assert task["left_seconds"] == pytest.approx(60 - task["task_age_seconds"], abs=0.01)
    assert 0 <= task["lag_seconds"] < 30


def check_events(fleet: RunningFleet) -> None:
    [line] = fleet.journal("start", label="long")
    os.kill(line.pid, signal.SIGKILL)
    seen = until_status(fleet, lambda found: event(found, "worker.exited"), "the death")
    died = event(seen, "worker.exited")
    assert died is not None
    assert (died["level"], died["fields"]["task"]) == ("warning", "hold")
    assert "killed by SIGKILL" in died["text"]
    assert seen["last_death"]["at"] == pytest.approx(died["at"], abs=0.01)
    fleet.write("tiers = 7")
    fleet.hup()
    seen = until_status(fleet, lambda found: event(found, "config.rejected"), "the refusal")
    assert (seen["last_reload"]["result"], "tiers" in seen["last_reload"]["faults"][0]) == ("failure", True)
    assert [each["n"] for each in seen["events"]] == list(range(1, len(seen["events"]) + 1))
    assert [each["n"] for each in status_of(fleet, f"?events_after={died['n']}")["events"]] == [
        each["n"] for each in seen["events"] if each["n"] > died["n"]
    ]
    assert [each["n"] for each in fleet.status()["events"]] == [each["n"] for each in seen["events"]]


def check_other_node(first: RunningFleet, second: RunningFleet) -> None:
    status = until_status(first, lambda found: other_node(found)["quiet"] == 1, "the other node is quiet")
    there = other_node(status)
    assert (there["state"], there["workers"], there["desired"], there["busy"]) == ("quiet", 1, 1, 0)
    assert there["version"] == status["version"] == status["nodes"][0]["version"]
    assert until_status(first, lambda found: other_node(found)["done_per_second"] is not None, "its pace")
    second.kill_all()
    lost = until_status(first, lambda found: other_node(found)["state"] == "lost", "it is known as lost")
    assert other_node(lost)["node"] == there["node"]
    assert f"nodes/{there['node']}" in {each["where"] for each in lost["headlines"]}


def test_the_status_omits_stopped_nodes_and_is_served_if_the_master_hangs(
    nodes: tuple[RunningFleet, RunningFleet],
) -> None:
    first, second = nodes
    second.term()
    assert second.exit_code() == 0
    until_status(first, lambda found: len(found["nodes"]) == 1, "the other one is gone")
    first.request("scale", workers=3)
    seen = until_status(first, lambda found: event(found, "fleet.scaled"), "it is scaled")
    address = f"http://{first.target()}/status.json"
    os.kill(first.pid, signal.SIGSTOP)
    try:
        with urllib.request.urlopen(address, timeout=DEADLINE_SECONDS) as response:
            hanging = json.load(response)
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert [each["n"] for each in hanging["events"]] == [each["n"] for each in seen["events"]]


def test_lists_with_misspelt_queue_keys_are_reported_until_they_are_deleted(
    fleets: Fleets, redis_client: Any, namespace: str
) -> None:
    fleet = fleets.start(workers=1, lease=LEASE)
    misspelt = {f"{namespace}:queue:email", f"{{{namespace}}}:queue:no space"}
    for key in misspelt:
        redis_client.rpush(key, '["id", "email", "note", []]')
    seen = until_status(fleet, lambda found: len(found["stray_lists"]) == len(misspelt), "both are named")
    assert {stray["key"] for stray in seen["stray_lists"]} == misspelt
    shown = fleet.rota("top", "--once").stdout
    for key in misspelt:
        assert f'no worker takes from the list "{key}"' in str(seen["headlines"])
        assert key in shown
    redis_client.delete(*misspelt)
    until_status(fleet, lambda found: not found["stray_lists"], "they are gone")
