"""How commands show a worker that runs several tasks: each task separately, with the line of code that the task is
executing.
"""

import json
import re
import signal
from collections.abc import Iterator

import pytest

from support.fleets import Fleets, RunningFleet
from support.masters import ON_ONE_SERVER
from support.waiting import until

pytestmark = ON_ONE_SERVER

IDS = ["task-0", "task-1", "task-2"]


@pytest.fixture
def fleet(fleets: Fleets) -> Iterator[RunningFleet]:
    """Yield a fleet with a single worker, which is running three tasks."""
    fleet = fleets.start(pools={"all": {"workers": 1, "concurrency": 10}})
    for task_id in IDS:
        fleet.client.enqueue("attend", args=[task_id], queue="default", id=task_id)
    fleet.wait_for("start", len(IDS))
    yield fleet
    (fleet.shared / "release-all").touch()


def stacks_of_tasks(fleet: RunningFleet) -> dict[str, str]:
    return {line["task_id"]: line["stack"] for line in fleet.log("worker.stack") if "task_id" in line}


def test_the_status_shows_each_task_of_a_worker(fleet: RunningFleet) -> None:
    [row] = fleet.children("worker")
    assert [task["task"]["id"] for task in row["tasks"]] == IDS
    assert [(pool["busy"], pool["concurrency"]) for pool in fleet.status()["pools"]] == [(len(IDS), 10)]
    numbered = [f"{row['slot']}.{task['place']}" for task in row["tasks"]]
    assert re.findall(r"^ *(\d+\.\d+) ", fleet.rota("status").stdout, re.MULTILINE) == numbered
    processes = json.loads(fleet.get("/status.json")[1])["processes"]
    assert [task["task"]["id"] for process in processes for task in process["tasks"]] == IDS


def test_usr1_logs_the_stack_of_each_task_of_a_worker(fleet: RunningFleet) -> None:
    fleet.signal(signal.SIGUSR1)
    until(lambda: len(stacks_of_tasks(fleet)) == len(IDS), "a stack of each")
    stacks = stacks_of_tasks(fleet)
    assert sorted(stacks) == IDS
    for stack in stacks.values():
        assert re.fullmatch(r"sleep \(.* < attend_to_the_end \(.* < attend \(.*", stack), stack
