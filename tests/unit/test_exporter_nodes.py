"""The nodes that the exporter shows. Other nodes than its own are shown with their last heartbeat. A silent node that
held tasks is shown as lost.
"""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from rota.child.slots import MASTER_SLOT, Phase
from rota.protocol.nodes import Node, NodeReport
from rota_supervisor.exporter import node_status
from rota_supervisor.exporter.history import History
from rota_supervisor.exporter.observer import Observation
from rota_supervisor.exporter.series import Samples
from rota_supervisor.fleet_snapshot import Member, Moment
from rota_supervisor.layout import RANGES, Role
from rota_supervisor.master_snapshot import MasterSnapshot

WORKER_SLOT = RANGES[Role.WORKER][0]
NEVER_USED = cast(Any, SimpleNamespace())


def node(name: str, state: str = "running", left_seconds: float = 15.0) -> Node:
    return Node(name, {}, NodeReport(state=state, version="1", workers=3), 20.0, left_seconds)


def observation_of(*fleet: Member, **told: Any) -> Observation:
    samples = Samples()
    recent = History().recent(samples, 100.0)
    return Observation(Moment(50.0, 1000.0), fleet, samples, recent, None, MasterSnapshot(node="this", **told))


def others(*known: Node) -> list[tuple[str, str, float]]:
    rows = node_status.node_rows(observation_of(), known)[1:]
    return [(row["node"], row["state"], row["seen_seconds_ago"]) for row in rows]


def test_the_status_shows_the_own_node_first_and_only_once() -> None:
    rows = node_status.node_rows(observation_of(), [node("a"), node("this"), node("b")])
    assert [(row["node"], row["is_this"]) for row in rows] == [("this", True), ("a", False), ("b", False)]
    assert rows[0]["seen_seconds_ago"] == 0.0
    assert [row["node"] for row in node_status.node_rows(observation_of(), None)] == ["this"]


@pytest.mark.parametrize("state", ["starting", "draining"])
def test_a_silent_node_that_was_starting_or_draining_is_not_lost(state: str) -> None:
    assert others(node("a", state, left_seconds=-1.0)) == []
    assert others(node("a", state)) == [("a", state, 5.0)]


def test_a_lost_node_shows_how_long_it_has_been_silent() -> None:
    assert others(node("a", left_seconds=-40.0)) == [("a", "lost", 60.0)]


def test_a_node_reports_the_number_of_its_workers_and_running_tasks() -> None:
    master = Member(MASTER_SLOT, Role.MASTER, 1, Phase.IDLE, 0.1)
    workers = [
        Member(WORKER_SLOT, Role.WORKER, 2, Phase.BUSY, 0.1, (NEVER_USED, NEVER_USED), concurrency=5),
        Member(WORKER_SLOT + 1, Role.WORKER, 3, Phase.QUIET, 0.1),
    ]
    death = {"child": "worker", "slot": 9, "words": "killed by SIGSEGV", "at": 1.0}
    report = node_status.own_report(observation_of(master, *workers, last_death=death, url="http://web-1:9477/"))
    counts = report.state, report.workers, report.busy, report.concurrency, report.quiet
    assert counts == ("running", 2, 2, 6, 1)
    assert (report.last_death, report.url) == ("worker in slot 9: killed by SIGSEGV", "http://web-1:9477/")


def test_a_node_without_a_master_reports_itself_as_lost() -> None:
    assert node_status.own_report(observation_of()).state == "lost"
