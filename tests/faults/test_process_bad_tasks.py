"""Tasks that behave very badly. They crash in native code, catch every exception, use up all memory, or leave daemons
behind.
"""

import os
import signal
from collections.abc import Iterator

import psutil
import pytest

from support.cgroups import Group, group
from support.fleets import Fleets, RunningFleet
from support.masters import ON_ONE_SERVER
from support.processes import descendants, is_alive
from support.waiting import until

pytestmark = ON_ONE_SERVER

HOG_MB = 600
LIMIT_MB = 400


def dies(fleet: RunningFleet, name: str, *args: object) -> dict[str, object]:
    """Run this task until it is dead, and return its death record."""
    task_id = fleet.client.enqueue(name, args=list(args), queue="default").id
    until(lambda: fleet.client.status(task_id).state == "dead", "its death")
    [dead] = fleet.rota_json("dead", "ls", "--task", name)
    found: dict[str, object] = dead["death"]
    return found


def test_a_task_that_segfaults_runs_three_times_and_harms_no_other(fleets: Fleets) -> None:
    fleet = fleets.start()
    neighbour = fleet.hold("neighbour")
    for number in range(20):
        fleet.client.enqueue("note", args=[f"{number}"], queue="default")
    record = dies(fleet, "segfault")
    for number in range(20, 40):
        fleet.client.enqueue("note", args=[f"{number}"], queue="default")
    fleet.release("neighbour")
    fleet.wait_for("end", 41)
    assert (record["signal"], record["cause"]) == ("SIGSEGV", "signal")
    runs = fleet.journal("start", name="segfault")
    assert [line.crashes for line in runs] == [0, 1, 2]
    told = [line for line in fleet.log("worker.exited") if line["reason"] == "signal"]
    assert [(line["task"], line["task_id"], line["child_pid"]) for line in told] == [
        ("segfault", line.id, line.pid) for line in runs
    ]
    assert all(f"segfault ({fleet.folder}/tasks.py:" in line["stack"] for line in told)
    others = [line for line in fleet.journal("start") if line.name != "segfault"]
    assert len({line.id for line in others}) == len(others) == 41
    assert neighbour.pid in fleet.workers()
    assert fleet.books_balance()


def test_task_that_catches_everything_is_killed_after_its_hard_limit(fleets: Fleets) -> None:
    fleet = fleets.start()
    fleet.client.enqueue("shrug", queue="default")
    [first] = fleet.wait_for("start")
    second = fleet.wait_for("start", 2)[1]
    assert 2 <= second.at - first.at < 5
    killed = fleet.log("worker.killed")[0]
    assert (killed["child_pid"], killed["reason"], killed["task_id"]) == (first.pid, "timeout", first.id)
    assert (killed["limit"], killed["limit_value"]) == ("time_limit_seconds", 1)
    assert killed["elapsed_seconds"] >= 2
    assert f"shrug ({fleet.folder}/tasks.py:" in killed["stack"]
    fleet.client.enqueue("note", args=["meanwhile"], queue="default")
    fleet.wait_for("end", label="meanwhile")


def test_a_task_over_its_hard_limit_is_retried_if_it_has_retries_left(fleets: Fleets) -> None:
    fleet = fleets.start()
    record = dies(fleet, "oversleep")
    assert (record["reason"], record["cause"], record["limit"]) == ("time_limit", "timeout", "time_limit_seconds")
    assert (record["limit_value"], "oversleep" in str(record["stack"])) == (2, True)
    assert len(fleet.journal("start", name="oversleep")) == 1
    [told] = fleet.log("task.dead")
    assert (told["task"], told["reason"], told["role"]) == ("oversleep", "time_limit", "master")
    assert not fleet.log("task.recovered")
    labels = {"queue": "default", "task": "oversleep"}
    assert fleet.metrics().total("rota_tasks_dead_total", reason="time_limit", **labels) == 1
    fleet.client.enqueue("shrug", queue="default")
    fleet.wait_for("start", 2, name="shrug")
    retried = until(lambda: fleet.log("task.retried"))[0]
    assert (retried["task"], retried["reason"], retried["attempt"]) == ("shrug", "time_limit", 1)
    assert fleet.metrics().total("rota_task_retries_total", task="shrug") == 1
    assert fleet.journal("start", name="shrug")[1].crashes == 0
    assert fleet.books_balance()


def test_stopped_worker_is_killed_and_its_task_runs_again(fleets: Fleets) -> None:
    fleet = fleets.start(limits={"beat_seconds": 2})
    held = fleet.hold("a")
    neighbour = fleet.hold("b")
    os.kill(held.pid, signal.SIGSTOP)
    again = fleet.wait_for("start", 2, label="a")[1]
    assert (again.id, again.crashes) == (held.id, 1)
    [hung] = fleet.log("worker.hung")
    assert (hung["child_pid"], hung["task_id"], hung["stopped"]) == (held.pid, held.id, True)
    assert (hung["limit"], hung["limit_value"]) == ("beat_seconds", 2)
    for label in ("a", "b"):
        fleet.release(label)
    assert {line.pid for line in fleet.wait_for("end", 2)} == {again.pid, neighbour.pid}


def daemon_of(fleet: RunningFleet, label: str) -> int:
    """Let a worker run a task that leaves a daemon behind. Returns the pid of the daemon."""
    fleet.client.enqueue("leave_daemon", args=[label], queue="default")
    fleet.wait_for("start", label=label)
    written = fleet.folder / f"daemon-{label}"
    pid = int(until(lambda: written.exists() and written.read_text(), "the daemon's pid"))
    assert psutil.Process(pid).ppid() == fleet.pid  # the daemon is already a child of the master
    return pid


def test_forked_daemon_dies_only_with_its_own_worker(fleets: Fleets) -> None:
    fleet = fleets.start()
    daemons = {label: daemon_of(fleet, label) for label in ("a", "b")}
    families = {label: [pid, *descendants(pid)] for label, pid in daemons.items()}
    [worker] = {line.pid for line in fleet.journal("start", label="a")}
    os.kill(worker, signal.SIGKILL)
    until(lambda: not any(map(is_alive, families["a"])), "the daemon and its children are gone")
    fleet.wait_for("start", 2, label="a")
    assert all(map(is_alive, families["b"]))
    for label in daemons:
        fleet.release(label)
    fleet.wait_for("end", 2)
    fleet.term()
    assert fleet.exit_code() == 0
    assert fleet.processes() == []


@pytest.fixture
def little_memory() -> Iterator[Group]:
    with group("memory") as made:
        limit = "memory.max" if made.is_v2 else "memory.limit_in_bytes"
        made.set(limit, LIMIT_MB << 20)
        yield made


def test_out_of_memory_kill_is_explained_in_log_and_record(fleets: Fleets, little_memory: Group) -> None:
    fleet = fleets.make(workers=2)
    fleet.prefix = ["sh", "-c", f'echo $$ > {little_memory.folder}/cgroup.procs && exec "$0" "$@"']
    fleet.start()
    neighbour = fleet.hold("neighbour")
    record = dies(fleet, "grow", HOG_MB)
    assert (record["signal"], record["cause"]) == ("SIGKILL", "oom")
    assert "out of memory" in str(record["error"])
    exits = fleet.log("worker.exited")
    assert [(line["reason"], line["task"], line["oom_killed"]) for line in exits] == [("oom", "grow", True)] * 3
    assert all(line["max_rss_mb_with_shared"] > LIMIT_MB / 2 for line in exits)
    assert fleet.metrics().total("rota_process_restarts_total", role="worker", reason="oom") == 3
    fleet.release("neighbour")
    [end] = fleet.wait_for("end", label="neighbour")
    assert end.pid == neighbour.pid
    until(fleet.is_whole, "a whole fleet")
    assert fleet.books_balance()
