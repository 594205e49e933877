"""The main promises of the master: no task is lost if children die, the pool follows the configuration file, and a
drain is clean.
"""

import os
import signal

import pytest

from support.masters import ON_ONE_SERVER, Mastered
from support.processes import descendants, is_alive
from support.waiting import until


def test_killed_worker_is_replaced_and_its_task_restarted(fleet: Mastered) -> None:
    fleet.start()
    before = fleet.until_workers(2)
    fleet.push("hold", "a")
    first = until(lambda: fleet.starts("a"))[0]
    os.kill(first, signal.SIGKILL)
    second = until(lambda: fleet.starts("a")[1:])[0]
    after = fleet.until_workers(2)
    assert first not in after
    assert second in after
    assert len(after - before) == 1
    recovered = fleet.log("task.recovered")
    assert [(line["task_id"], line["crashes"]) for line in recovered] == [("a", 1)]
    fleet.release()
    until(lambda: "end a" in fleet.ran())
    until(lambda: not fleet.inflight())


@pytest.mark.parametrize(("task", "cause"), [("die", "signal"), ("leave", "crash")])
def test_task_that_kills_three_workers_is_dead_with_cause(fleet: Mastered, task: str, cause: str) -> None:
    fleet.start()
    fleet.push(task, "poison")
    record = until(lambda: fleet.death_record("poison"))
    assert fleet.ran() == [f"{task} poison"] * 3
    assert (record["reason"], record["cause"]) == ("crashed", cause)
    assert record.get("signal") == ("SIGKILL" if cause == "signal" else None)
    fleet.push("note", "neighbour")
    until(lambda: "neighbour" in fleet.ran())


@ON_ONE_SERVER
def test_a_task_that_blocks_every_signal_is_killed_at_its_hard_limit(fleet: Mastered) -> None:
    fleet.start()
    fleet.push("overrun", "stuck")
    until(lambda: fleet.log("worker.killed"))
    assert fleet.log("worker.killed")[0]["reason"] == "timeout"
    until(lambda: len(fleet.ran()) >= 2)


@ON_ONE_SERVER
def test_processes_of_a_task_die_with_its_worker(fleet: Mastered) -> None:
    fleet.start()
    fleet.push("leave_behind", "a")
    line = until(lambda: [line for line in fleet.ran() if line.startswith("behind")])[0]
    left = [int(word) for word in line.split()[1:]]
    assert all(map(is_alive, left))
    worker = next(row["pid"] for row, task in fleet.running() if task["task"]["id"] == "a")
    os.kill(worker, signal.SIGKILL)
    until(lambda: not any(map(is_alive, left)), "group, session and marked daemon are gone")
    # Stop the fleet, because the task is running again. If the master had been killed instead, the daemon of this run
    # would survive.
    fleet.signal(signal.SIGQUIT)
    fleet.exit_code()


@ON_ONE_SERVER
def test_killed_children_are_replaced_and_workers_keep_running(fleet: Mastered) -> None:
    fleet.start()
    workers = fleet.until_workers(2)
    for role in ("zygote", "poller", "exporter"):
        fleet.until_replaced(role, 0)
        (old,) = fleet.pids(role, "ready")
        os.kill(old, signal.SIGKILL)
        fleet.until_replaced(role, old)
    assert fleet.until_workers(2) == workers
    os.kill(min(workers), signal.SIGKILL)
    until(lambda: fleet.pids("worker", "ready") - workers, "the new zygote forks")


def test_workers_killed_at_once_are_replaced(fleet: Mastered) -> None:
    fleet.configure("workers = 8")
    fleet.start()
    before = fleet.until_workers(8)
    for text in "abcdefgh":
        fleet.push("hold", text)
    until(lambda: all(fleet.starts(text) for text in "abcdefgh"))
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not fleet.pids("worker") & before)
    fleet.until_workers(8)
    until(lambda: all(len(fleet.starts(text)) == 2 for text in "abcdefgh"), "every task has started again")
    fleet.release()
    until(lambda: not fleet.inflight())
    zombies = [pid for pid in descendants(fleet.pid) if not is_alive(pid)]
    assert zombies == []


@ON_ONE_SERVER
def test_a_worker_stopped_by_sigstop_is_killed_after_its_heartbeat_limit(fleet: Mastered) -> None:
    fleet.configure("workers = 2\n[limits]\nbeat_seconds = 2")
    fleet.start()
    stopped = min(fleet.until_workers(2))
    os.kill(stopped, signal.SIGSTOP)
    until(lambda: stopped not in fleet.pids("worker"))
    [hung] = fleet.log("worker.hung")
    assert (hung["child_pid"], hung["stopped"], hung["limit_value"]) == (stopped, True, 2.0)
    assert "SIGSTOP" in hung["words"]
    fleet.until_workers(2)


@ON_ONE_SERVER
def test_killed_master_leaves_no_children(fleet: Mastered) -> None:
    fleet.start()
    fleet.push("leave_behind", "a")
    line = until(lambda: [line for line in fleet.ran() if line.startswith("behind")])[0]
    same_group = int(line.split()[1])
    everybody = descendants(fleet.pid)
    # This daemon has its own session, so only a living master can find it.
    marked_daemon = int(line.split()[3])
    fleet.signal(signal.SIGKILL)
    fleet.exit_code()
    until(
        lambda: not any(is_alive(pid) for pid in everybody - set(map(int, line.split()[2:]))), "all children are gone"
    )
    assert not is_alive(same_group)
    for pid in (int(line.split()[2]), marked_daemon):
        os.kill(pid, signal.SIGKILL)


@ON_ONE_SERVER
def test_task_output_never_overwrites_the_log(fleet: Mastered) -> None:
    (fleet.folder / "tasks.py").write_text(
        'import rota\n\n@rota.task\ndef shout(text): print(text * 100 + "\\n", end="", flush=True)\n'
    )
    fleet.prefix = ["sh", "-c", 'exec "$@" > fleet.log 2>&1', "sh"]
    fleet.start()
    before = fleet.log_text()
    for text in "abc":
        fleet.push("shout", text)
    until(lambda: len(fleet.log("task.done")) == 3)
    assert fleet.log_text().startswith(before)
    assert {text * 100 for text in "abc"} <= set(fleet.log_text().splitlines())
