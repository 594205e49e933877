"""The state of the fleet at one time. It is combined from the slots and the master's state, and is shown by the control
socket and the status page.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from rota.child.slot_record import TaskInSlot
from rota.child.slots import Phase
from rota_supervisor.cli import node_verbs
from rota_supervisor.fleet_snapshot import (
    LOST,
    FleetSnapshot,
    HeartbeatLimits,
    Member,
    MemberTask,
    Moment,
    WorkerLoad,
    node_report,
    one_line,
    readiness,
    rows_by_task,
    snapshot,
)
from rota_supervisor.layout import Role
from rota_supervisor.master_snapshot import ChildFacts, MasterSnapshot, PoolFacts, PoolInBackoff

AT = Moment(now=100.0, wall=5000.0)
HEARTBEAT_LIMITS = HeartbeatLimits(tick_seconds=1.0, beat_seconds=30.0)
STATUS_PAGE = Path(__file__).parents[2] / "docs/status.md"
TASK = MemberTask(TaskInSlot(b"id-1 mail i 1 1 0 0 0 0 -", "send", 1, 2), 4.0, 6.0)
MASTER = Member(0, Role.MASTER, 70, Phase.IDLE, 0.1)
POLLER = Member(4, Role.POLLER, 71, Phase.IDLE, 0.1)
WORKER = Member(8, Role.WORKER, 77, Phase.BUSY, 0.5, (TASK,))
NOTICE = MasterSnapshot(
    fleet="shop",
    node="a",
    pid=70,
    started_at=40.0,
    generation=2,
    redis_up=True,
    pools=(PoolFacts("mail", 2, "file", 2, 1, {"running": 1}),),
    children=(ChildFacts(4, "", 1, "ready", 90.0), ChildFacts(8, "mail", 2, "ready", 97.0)),
)


def snapshot_of(*slots: Member, **said: Any) -> FleetSnapshot:
    return snapshot(slots, replace(NOTICE, **said), AT, HEARTBEAT_LIMITS)


def shown(*slots: Member, **said: Any) -> dict[str, Any]:
    return snapshot_of(*slots, **said).to_json()


def test_each_process_row_joins_its_slot_with_the_masters_report() -> None:
    found = shown(MASTER, POLLER, WORKER)
    assert [row["slot"] for row in found["processes"]] == [0, 4, 8]
    row = found["processes"][2]
    assert (row["pid"], row["pool"], row["generation"], row["state"], row["phase"]) == (77, "mail", 2, "ready", "busy")
    assert (row["ready_seconds"], row["beat_age_seconds"]) == (3.0, 0.5)
    [task] = row["tasks"]
    assert (task["task"]["id"], task["task_age_seconds"], task["limit_seconds"], task["left_seconds"]) == (
        "id-1",
        4.0,
        10.0,
        6.0,
    )
    assert found["pools"][0]["busy"] == 1
    assert (found["state"], found["started_at"]) == ("running", 4940.0)


def test_a_child_that_has_no_process_yet_is_shown_from_the_masters_report() -> None:
    starting = ChildFacts(9, "mail", 2, "registering")
    row = shown(MASTER, children=(starting,))["processes"][1]
    assert (row["slot"], row["role"], row["pid"], row["state"]) == (9, "worker", 0, "registering")
    assert (row["phase"], row["beat_age_seconds"], row["ready_seconds"], row["tasks"]) == (None, None, None, [])


def test_a_fleet_without_a_master_is_shown_as_lost() -> None:
    assert shown(WORKER)["state"] == LOST


def test_the_status_shows_the_state_of_a_pool_in_back_off() -> None:
    held = PoolInBackoff("worker", "mail", "fatal", 3, 105.0, "exit code 3")
    found = shown(MASTER, held=(held,))
    assert found["pools"][0]["state"] == "fatal"
    assert found["held"][0]["next_try_seconds"] == 5.0


def test_health_probes_the_command_and_the_status_agree_on_readiness() -> None:
    cases: tuple[tuple[tuple[Member, ...], dict[str, Any]], ...] = (
        ((MASTER, POLLER, WORKER), {}),
        ((MASTER, WORKER), {"redis_up": False}),
        ((MASTER, POLLER, WORKER), {"redis_up": False, "redis_refusal": "MISCONF"}),
        ((MASTER, POLLER, WORKER), {"evicts_keys": True}),
    )
    for slots, said in cases:
        status = shown(*slots, **said)
        probe = readiness(slots, replace(NOTICE, **said), AT.now, HEARTBEAT_LIMITS)
        assert status["ready"] == probe.to_json()
        assert node_verbs.judge(status, node_verbs.READY) == (probe.ok, one_line(probe.to_json()))


def test_the_documentation_of_the_status_page_explains_every_key() -> None:
    explained = set(re.findall(r"`([a-z_0-9]+)`", STATUS_PAGE.read_text(encoding="utf-8")))
    found = shown(MASTER, POLLER, WORKER)
    rows = (found, *found["processes"], *found["pools"], *found["processes"][2]["tasks"])
    assert {key for row in rows for key in row} - explained == set()


def test_each_task_of_a_concurrent_worker_has_a_row() -> None:
    second = MemberTask(TASK.task._replace(task_index=2), 1.0, 1.0)
    several = Member(8, Role.WORKER, 77, Phase.BUSY, 0.5, (TASK, second), 10)
    rows = rows_by_task(shown(MASTER, several, children=())["processes"])
    assert [(row["where"], bool(row["task"])) for row in rows] == [(0, False), ("8.0", True), ("8.2", True)]


def test_the_report_of_a_node_counts_its_workers() -> None:
    report = node_report(NOTICE, "running", [WorkerLoad(2, 5, False), WorkerLoad(0, 1, True)])
    assert (report.workers, report.desired, report.busy, report.concurrency, report.quiet) == (2, 2, 2, 6, 1)
