"""Deaths of children. The master reports each death once, with everything that it knows about the death. The record of
a worker's death is kept as long as the worker's last task is live.
"""

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from rota import Client
from rota.telemetry import log_events
from support.masters import ON_ONE_SERVER, Mastered
from support.processes import is_alive
from support.waiting import until

pytestmark = ON_ONE_SERVER

TASKS = """
import ctypes, re

@rota.task
def scribble(text):
    if rota.current_task().crashes:
        return
    mapped = [line.split() for line in open("/proc/self/maps") if "rota-slots" in line]
    [(start, end)] = [map(lambda at: int(at, 16), span.split("-")) for span, access, *_ in mapped if "w" in access]
    words = memoryview((ctypes.c_char * (end - start)).from_address(start)).cast("B").cast("q")
    words[0] = (5 << 32) + 9  # as many outcomes as were never there; the copy of the nonce stays
    words[2], words[3], words[6], words[7], words[8] = 17, 1 << 62, 9, -1, -1
    words[16:176] = memoryview(bytes([255]) * 160 * 8).cast("q")  # what runs
    record("scribbled")
    hold(text)

@rota.task
def nothing(text):
    pass

@rota.task
def crash_once(text):
    if rota.current_task().crashes == 0:
        ctypes.string_at(0)

@rota.task(time_limit=1)
def hold_interpreter(text):
    re.match("(a+)+$", "a" * 40 + "b")

@rota.task
def grow(text):
    grow.kept = b"x" * (100 << 20)

@rota.task
def fork_daemon(text):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(3, 256)
            record(f"daemon {text} {os.getpid()}")
            while True:
                time.sleep(1)
        os._exit(0)
    hold(text)

@rota.task
def list_descriptors(text):
    os.system(f"ls -l /proc/self/fd > {HERE}/descriptors")
    record("listed")
"""


@pytest.fixture
def fleet(fleet: Mastered) -> Mastered:
    fleet.configure("workers = 2\n[limits]\nboot_seconds = 2\nmax_rss_mb = 64")
    fleet.add_tasks(TASKS)
    return fleet


def deaths(fleet: Mastered) -> list[dict[str, Any]]:
    return [line for event in log_events.DEATHS for line in fleet.log(event)]


def stack_files(pid: int) -> int:
    """Return how many stack files this process has open. A child writes the stacks of its threads into such a file when
    it ends with a fatal error.
    """
    names = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor has been closed since it was listed
            names.append(str(entry.readlink()))
    return sum("rota-stack" in name for name in names)


def test_requeued_task_keeps_its_last_crash_until_it_ends(fleet: Mastered) -> None:
    fleet.start()
    fleet.push("hold", "first")
    [worker] = until(lambda: fleet.starts("first"))
    os.kill(worker, signal.SIGKILL)
    until(lambda: fleet.starts("first")[1:])
    with Client(fleet.server.url, fleet.namespace) as client:
        status = client.status("first")
    assert (status.state, status.crashes, status.death) == ("running", 1, None)
    assert status.last_crash is not None
    assert (status.last_crash["cause"], status.last_crash["pid"]) == ("signal", worker)
    shown = fleet.rota("task", "show", "first").stdout
    assert "last_crash.error:  killed by SIGKILL: not sent by its master" in shown
    fleet.release()
    [done] = until(lambda: [line for line in fleet.log("task.done") if line["task_id"] == "first"])
    assert (done["crashes"], done["last_crash"]) == (1, "signal")
    until(lambda: not fleet.redis.exists(fleet.keys.epitaphs), "nothing is kept of a task that has ended")


def test_every_finished_task_of_a_killed_worker_is_logged(fleet: Mastered) -> None:
    fleet.configure("workers = 1")
    fleet.start()
    texts = [f"short-{number}" for number in range(300)]
    for text in texts[:200]:  # so many short tasks that the worker begins to claim several at once
        fleet.push("nothing", text)
    until(lambda: len(fleet.log("task.done")) == 200)
    assert fleet.request("quiet")["ok"]
    for text in texts[200:]:
        fleet.push("nothing", text)
    fleet.push("crash_once", "native")
    assert fleet.request("resume")["ok"]
    until(lambda: len(fleet.log("task.done")) > 300)
    ended = [line["task_id"] for line in fleet.log("task.done")]
    assert sorted(ended) == sorted([*texts, "native"])


def test_a_worker_that_overwrites_its_slot_affects_no_other_process(fleet: Mastered) -> None:
    fleet.start()
    fleet.push("scribble", "odd")
    [odd] = until(lambda: fleet.starts("odd"))
    assert fleet.request("quiet")["ok"]
    assert fleet.request("resume")["ok"]
    fleet.push("note", "beside it")
    until(lambda: "beside it" in fleet.ran())
    # The test kills the worker itself. The master might kill the worker too, because the slot may look as if a task had
    # exceeded its time limit.
    with contextlib.suppress(ProcessLookupError):
        os.kill(odd, signal.SIGKILL)
    until(lambda: [line for line in fleet.log("task.done") if line["task_id"] == "odd"])
    fleet.until_workers(2)
    assert fleet.log("redis.lost") == []
    fleet.signal(signal.SIGTERM)
    assert fleet.exit_code() == 0


def test_each_death_is_logged_once_with_stack_and_limit(fleet: Mastered) -> None:
    fleet.start()
    fleet.push("crash_once", "native")
    [crashed] = until(lambda: fleet.log("worker.exited"))
    assert (crashed["signal"], crashed["task_id"], crashed["task"]) == ("SIGSEGV", "native", "crash_once")
    assert f"crash_once ({fleet.folder}/tasks.py:" in crashed["stack"]
    fleet.push("hold_interpreter", "stuck")
    killed = until(lambda: fleet.log("worker.killed"))[0]
    assert (killed["reason"], killed["limit"], killed["limit_value"]) == ("timeout", "time_limit_seconds", 1.0)
    assert f"hold_interpreter ({fleet.folder}/tasks.py:" in killed["stack"]
    fleet.push("grow", "large")
    recycled = until(lambda: [line for line in fleet.log("worker.exited") if line["reason"] == "max_rss"])[0]
    assert (recycled["exit_code"], recycled["limit"], recycled["limit_value"]) == (0, "max_rss_mb", 64)
    assert recycled["idle"]
    assert recycled["max_rss_mb_with_shared"] > 100
    fleet.until_workers(2)
    fleet.signal(signal.SIGTERM)
    assert fleet.exit_code() == 0
    ended = [line["child_pid"] for line in deaths(fleet)]
    # Three workers died during the test. At the stop, the other two workers and one child of each other role ended.
    assert len(ended) == len(set(ended)) >= 8


def test_failed_import_is_rejected_with_its_source_line(fleet: Mastered) -> None:
    fleet.start()
    (fleet.folder / "hangs.py").write_text("import time\n\n\ndef wait():\n    time.sleep(600)\n\n\nwait()\n")
    fleet.configure('imports = ["tasks", "hangs"]\nworkers = 2\n[limits]\nboot_seconds = 2')
    assert fleet.reload()["result"] == "failure"
    [rejected] = fleet.log("config.rejected")
    assert f"wait ({fleet.folder}/hangs.py:5) < <module> ({fleet.folder}/hangs.py:8)" in rejected["error"]
    (fleet.folder / "hangs.py").write_text("import ctypes\n\nctypes.string_at(0)\n")
    assert fleet.reload()["result"] == "failure"
    crashed = fleet.log("config.rejected")[1]["error"]
    assert "killed by SIGSEGV" in crashed
    assert f"<module> ({fleet.folder}/hangs.py:3)" in crashed


def test_stack_files_are_closed_and_not_inherited_by_tasks(fleet: Mastered) -> None:
    fleet.start()
    pids = fleet.until_workers(2)
    for role in ("zygote", "poller", "exporter"):
        fleet.until_replaced(role, 0)
    assert stack_files(fleet.pid) == 5
    assert {stack_files(pid) for pid in fleet.pids()} == {1}
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    until(lambda: len(deaths(fleet)) == 2, "both are reaped")
    fleet.until_workers(2)
    until(lambda: stack_files(fleet.pid) == 5, "those of the dead are closed")
    fleet.push("list_descriptors", "a")
    until(lambda: "listed" in fleet.ran())
    assert "rota-stack" not in (fleet.folder / "descriptors").read_text()


def daemon_of(fleet: Mastered, text: str) -> int:
    """Let a task fork a daemon and continue to run. Returns the daemon's pid."""
    fleet.push("fork_daemon", text)
    said = until(lambda: [line for line in fleet.ran() if line.startswith(f"daemon {text} ")])[0]
    until(lambda: fleet.starts(text))
    return int(said.split()[2])


def test_daemon_of_a_task_dies_only_with_its_worker(fleet: Mastered) -> None:
    fleet.start()
    dying = daemon_of(fleet, "a")
    living = daemon_of(fleet, "b")
    os.kill(fleet.starts("a")[0], signal.SIGKILL)
    until(lambda: not is_alive(dying))
    until(lambda: fleet.starts("a")[1:])
    assert is_alive(living)
    fleet.signal(signal.SIGQUIT)
    fleet.exit_code()
    until(lambda: not is_alive(living))


def test_children_without_a_stack_file_write_stacks_to_stderr(fleet: Mastered) -> None:
    fleet.prefix = ["sh", "-c", 'ulimit -n 76 && exec "$0" "$@"']
    fleet.start()
    [worker, _] = fleet.until_workers(2)
    assert stack_files(fleet.pid) == 0
    os.kill(worker, signal.SIGRTMIN + 3)
    until(lambda: "most recent call first" in fleet.log_text())
    assert worker in fleet.until_workers(2)
