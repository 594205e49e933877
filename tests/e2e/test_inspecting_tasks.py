"""Tasks that are inspected while a fleet runs them: their progress, the place where they are, and how they ended."""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

import rota
from rota.protocol.keys import Keys
from rota.protocol.nodes import Node, NodeReport
from rota_supervisor.cli.task_verbs import find_run
from rota_supervisor.config.model import Config, Control
from support.fleets import Measure, RunningFleet, running_fleet
from support.servers import Server
from support.waiting import seconds_until, until

HOSTILE = "\x1b[2J<script>\u202e"


@pytest.fixture(scope="module")
def fleet(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFleet]:
    folder: Path = tmp_path_factory.mktemp("looking")
    with running_fleet(server.url, f"looking-{folder.name}", folder, workers=2) as running:
        yield running


def test_the_progress_of_a_task_is_shown_in_every_view_until_it_ends(
    fleet: RunningFleet, redis_client: "redis.Redis", measured: Measure
) -> None:
    handle = fleet.client.enqueue("advance", args=["far", HOSTILE], queue="default")
    fleet.wait_for("start", label="far")
    measured("seconds until its progress is known", seconds_until(lambda: handle.status().progress is not None))
    first = handle.status().progress
    assert first is not None
    assert (first.total, first.note) == (1_000_000, HOSTILE)
    until(lambda: (now := handle.status().progress) is not None and now.done > first.done, "more progress")

    [running] = [task for _, task in fleet.running() if task["task"]["name"] == "advance"]
    assert (running["progress"]["done"] >= first.done, running["progress"]["note"]) == (True, HOSTILE)
    shown = fleet.get("/status.json")[1]
    assert HOSTILE in [
        row["progress"]["note"] for each in json.loads(shown)["processes"] for row in each["tasks"] if row["progress"]
    ]
    for text in (fleet.rota("status").stdout, fleet.rota("task", "show", handle.id).stdout):
        assert "/1" in text
        assert HOSTILE not in text
        assert "\x1b" not in text

    fleet.release("far")
    until(lambda: handle.status().state == "done", "its end")
    assert not redis_client.exists(Keys(fleet.namespace).progress)


def test_a_running_task_shows_its_start_node_pid_and_age(fleet: RunningFleet) -> None:
    handle = fleet.client.enqueue("advance", args=["runs", "x"], queue="default")
    fleet.wait_for("start", label="runs")
    [(row, task)] = [(row, task) for row, task in fleet.running() if task["task"]["id"] == handle.id]
    shown = fleet.rota_json("task", "show", handle.id)
    assert (shown["state"], shown["pid"], shown["node"]) == ("running", row["pid"], fleet.status()["node"])
    assert shown["running_seconds"] >= task["task_age_seconds"]
    assert shown["timeline"][-1]["what"] == "attempt 1 started"
    assert shown["timeline"][-1]["at"] == shown["started_at"]
    fields = dict(line.split(maxsplit=1) for line in fleet.rota("task", "show", handle.id).stdout.splitlines())
    assert fields["pid:"] == str(row["pid"])
    assert fields["running_for:"].endswith(" s")

    elsewhere = Config(namespace=fleet.namespace, control=Control(socket="/nowhere"))
    node = Node(shown["node"], {}, NodeReport(url=f"http://{fleet.target()}/"), 10.0, 10.0)
    run = find_run(handle.status(), elsewhere, [node])
    assert run is not None, "another machine reads it from the node's HTTP server"
    assert run.pid == row["pid"]
    assert find_run(handle.status(), elsewhere, [node._replace(report=NodeReport())]) is None

    fleet.release("runs")
    until(lambda: handle.status().state == "done", "its end")
    assert "running_seconds" not in fleet.rota_json("task", "show", handle.id)


def test_task_show_lists_all_attempts_of_a_task_that_succeeded(fleet: RunningFleet) -> None:
    handle = fleet.client.enqueue("live", args=[["first", f"second {HOSTILE}", "kill", "well"]], queue="default")
    until(lambda: handle.status().state == "done", "its end")
    attempts = handle.status().attempts
    assert [(each.attempt, each.reason) for each in attempts] == [(1, "failed"), (2, "failed"), (3, "crashed")]
    assert attempts[1].error == f"ValueError: second {HOSTILE}"
    assert all(each.node and each.pid and each.at for each in attempts)
    shown = fleet.rota("task", "show", handle.id)
    assert (shown.returncode, "\x1b" in shown.stdout) == (0, False)
    words = ["attempt 1 failed", "attempt 2 failed", "attempt 3 crashed", "attempt 4 started", "done"]
    moments = [
        moment["what"] for moment in fleet.rota_json("task", "show", handle.id)["timeline"] if moment["what"] in words
    ]
    assert moments == words


def test_a_dead_task_shows_its_attempts_and_revive_clears_them(fleet: RunningFleet) -> None:
    handle = fleet.client.enqueue("live", args=[["first", "second", "third", "fourth"]], queue="default")
    until(lambda: handle.status().state == "dead", "its death")
    status = handle.status()
    assert [each.reason for each in status.attempts] == ["failed", "failed", "failed", "retries"]
    assert status.death is not None
    assert "ValueError: fourth" in status.death["error"]
    timeline = fleet.rota_json("task", "show", handle.id)["timeline"]
    assert [moment["what"] for moment in timeline][-2:] == ["attempt 4 started", "dead"]
    [listed] = [each for each in fleet.rota_json("dead", "ls") if each["id"] == handle.id]
    assert listed["death"] == status.death
    fleet.rota("queue", "pause", "default")
    assert fleet.client.revive(handle.id)
    assert handle.status().attempts == ()
    fleet.rota("task", "cancel", handle.id)
    fleet.rota("queue", "resume", "default")


def test_tasks_of_a_paused_queue_are_listed_by_state(fleet: RunningFleet) -> None:
    fleet.hold("held")
    fleet.rota("queue", "pause", "default")
    waiting = [fleet.client.enqueue("note", args=["listed"], queue="default").id for _ in range(3)]
    late = fleet.client.enqueue("note", args=["listed"], queue="default", delay=600).id
    assert [row["id"] for row in fleet.rota_json("task", "ls", "default")] == waiting
    assert [row["id"] for row in fleet.rota_json("task", "ls", "--limit", "2", "--task", "note")] == waiting[:2]
    assert [row["id"] for row in fleet.rota_json("task", "ls", "--state", "scheduled")] == [late]
    [running] = fleet.rota_json("task", "ls", "--state", "running")
    assert (running["name"], running["state"]) == ("hold", "running")
    assert fleet.rota("task", "ls", "--state", "dead").returncode == 0
    fleet.release("held")
    fleet.rota("queue", "resume", "default")
    fleet.wait_for("end", 3, label="listed")
    fleet.rota("task", "cancel", late)
    assert fleet.books_balance()


def test_a_purged_queue_that_no_pool_serves_disappears_from_every_view(fleet: RunningFleet) -> None:
    def shown() -> list[str]:
        return [each["name"] for each in json.loads(fleet.get("/status.json")[1])["queues"]]

    with warnings.catch_warnings(action="ignore", category=rota.RotaWarning):
        fleet.client.enqueue("advance", args=["x", "x"], queue="ghost")
    until(lambda: "ghost" in shown(), "the queue is shown")
    assert "ghost" in fleet.rota("top", "--once").stdout
    assert fleet.rota("queue", "purge", "ghost", "--yes").returncode == 0
    until(lambda: "ghost" not in shown(), "the queue is gone")
    assert "ghost" not in fleet.rota("top", "--once").stdout
