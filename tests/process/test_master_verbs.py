"""Signals and commands to a running fleet, and their effects on the fleet's processes. Signals that Rota does not use
have no effect.
"""

import functools
import json
import os
import re
import signal

import pytest

from rota import Client, Every
from rota.child.slot_record import TaskInSlot
from rota_supervisor.fleet_snapshot import MemberTask
from rota_supervisor.master_snapshot import PoolInBackoff
from support.masters import ON_ONE_SERVER, TASKS, Mastered
from support.prose import ROOT
from support.waiting import until

pytestmark = ON_ONE_SERVER

STRAY = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT)


def until_quiet(fleet: Mastered, count: int) -> None:
    """Wait until exactly this many workers are quiet."""
    until(lambda: sum(row["quiet"] for row in fleet.children("worker", "ready")) == count, f"{count} are quiet")


def until_all_ready(fleet: Mastered) -> None:
    """Wait until all children of each role are ready. The fleet itself counts as ready earlier, as soon as its workers
    are ready.
    """
    until(lambda: all(row["state"] == "ready" for row in fleet.children()))


def held_by(fleet: Mastered, text: str) -> int:
    """Let a worker run the task `hold`. Returns the worker's pid."""
    fleet.push("hold", text)
    return until(lambda: fleet.starts(text))[0]


def keys_on_the_page() -> dict[str, set[str]]:
    """Return the JSON keys that docs/cli.md lists, by command."""
    page = (ROOT / "docs/cli.md").read_text(encoding="utf-8").partition("### As JSON")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+) \| (`.+`) \|$", page, re.MULTILINE)
    return {what.replace("`", ""): set(re.findall("[a-z_]+", keys)) for what, keys in rows}


def the_pool(fleet: Mastered) -> tuple[object, ...]:
    """Return the number of workers that the pool should have, the origin of this number, and the number in the
    configuration file.
    """
    (row,) = fleet.status()["pools"]
    return row["desired"], row["origin"], row["configured"]


def test_scaled_number_lasts_until_the_file_changes_it(fleet: Mastered) -> None:
    fleet.start()
    assert the_pool(fleet) == (2, "file", 2)
    fleet.signal(signal.SIGTTIN)
    fleet.until_workers(3)
    scaled = fleet.rota("scale", "-2", "--json")
    assert (scaled.returncode, scaled.stdout) == (0, '{"pool": "default", "from": 3, "to": 1, "origin": "operator"}\n')
    fleet.until_workers(1)
    fleet.configure("workers = 2\ntiers = [['default', 'more']]")
    assert fleet.reload()["result"] == "success"
    assert the_pool(fleet) == (1, "operator", 2)
    fleet.until_workers(1)
    fleet.configure("workers = 3\ntiers = [['default', 'more']]")
    assert fleet.reload()["result"] == "success"
    assert the_pool(fleet) == (3, "file", 3)
    fleet.until_workers(3)
    refused = fleet.rota("scale", "501")
    assert refused.returncode == 1
    assert "a node has at most 500" in refused.stderr


def test_tstp_quiets_a_fleet_and_cont_resumes_it(fleet: Mastered) -> None:
    fleet.start()
    worker = held_by(fleet, "a")
    fleet.signal(signal.SIGTSTP)
    until_quiet(fleet, 1)
    fleet.push("note", "b")
    fleet.request("scale", more=1)  # the additional worker is quiet from the start
    until_quiet(fleet, 2)
    fleet.release()
    until(lambda: "end a" in fleet.ran())
    until_quiet(fleet, 3)
    assert fleet.status()["state"] == "quiet"
    until(lambda: fleet.get("/readyz")[0] == 503)
    assert fleet.ran()[1:] == ["end a"]
    assert len(fleet.lane()) == 1
    fleet.signal(signal.SIGCONT)
    until(lambda: "b" in fleet.ran())
    until(lambda: fleet.get("/readyz")[0] == 200)
    assert worker in fleet.until_workers(3)


def test_a_fleet_quieted_by_command_stays_quiet_after_sigcont_and_restart(fleet: Mastered) -> None:
    fleet.start()
    before = fleet.until_workers(2)
    os.kill(fleet.pid, signal.SIGSTOP)
    os.kill(fleet.pid, signal.SIGCONT)  # a debugger sends this signal too; it must not affect a fleet that is not quiet
    assert fleet.log("fleet.resumed") == []
    assert fleet.rota("quiet").returncode == 0
    until_quiet(fleet, 2)
    os.kill(fleet.pid, signal.SIGSTOP)
    os.kill(fleet.pid, signal.SIGCONT)
    assert fleet.rota("restart").returncode == 0
    assert not fleet.until_workers(2) & before
    until_quiet(fleet, 2)
    fleet.push("note", "a")
    assert fleet.log("fleet.resumed") == []
    assert fleet.rota("resume").returncode == 0
    until(lambda: "a" in fleet.ran())


def test_usr1_logs_the_status_and_every_stack(fleet: Mastered) -> None:
    fleet.start()
    worker = held_by(fleet, "a")
    until_all_ready(fleet)
    everybody = {row["pid"] for row in fleet.children()}
    for _ in range(3):  # a signal that arrives while a report is being written causes no second report
        fleet.signal(signal.SIGUSR1)
    until(lambda: len(fleet.log("worker.stack")) >= len(everybody))
    stacks = fleet.log("worker.stack")
    assert {line["child_pid"] for line in stacks} == everybody
    (stack,) = [line["stack"] for line in stacks if line["child_pid"] == worker]
    # If the task is inside another function at that moment, the last function of the stack is not `hold`.
    assert "hold" in {frame.split(" ")[0] for frame in stack.split(" < ")}
    assert all(".py:" in line["stack"] for line in stacks)
    (status,) = fleet.log("fleet.status")
    assert (status["state"], status["pools"][0]["busy"], status["redis_up"]) == ("running", 1, True)
    assert {row["pid"] for row in fleet.children()} == everybody


def test_usr2_replaces_every_worker_with_fresh_code(fleet: Mastered) -> None:
    fleet.start()
    before = fleet.until_workers(2)
    (fleet.folder / "tasks.py").write_text(TASKS.replace("    record(text)\n", "    record('new ' + text)\n"))
    fleet.signal(signal.SIGUSR2)
    until(lambda: fleet.log("config.reloaded"))
    fresh = fleet.until_workers(2)
    assert not fresh & before
    fleet.push("note", "a")
    until(lambda: "new a" in fleet.ran())
    (fleet.folder / "tasks.py").write_text("raise RuntimeError('does not load')")
    failed = fleet.rota("restart")
    assert failed.returncode == 78
    assert "does not load" in failed.stderr
    assert fleet.until_workers(2) == fresh
    last = fleet.status()["last_reload"]
    assert (last["result"], "does not load" in str(last["faults"])) == ("failure", True)


def test_unrelated_signals_do_not_affect_children(fleet: Mastered) -> None:
    fleet.start()
    held_by(fleet, "a")
    until_all_ready(fleet)  # a process that is not ready yet may not have installed its signal handlers
    before = {row["pid"] for row in fleet.children()}
    for pid in before:
        # `systemctl kill` and `pkill` may send such signals to all processes of a fleet.
        for number in STRAY:
            os.kill(pid, number)
            os.killpg(pid, number)
    # This process group has only one process, the master, because each child has its own session.
    group = os.getpgid(fleet.pid)
    for number, event in (
        (signal.SIGTSTP, "fleet.quiet"),
        # CONT is sent only after TSTP has taken effect, because TSTP and CONT discard each other while they are
        # pending.
        (signal.SIGCONT, "fleet.resumed"),
        (signal.SIGTTIN, "fleet.scaled"),
        (signal.SIGUSR1, "fleet.status"),
        (signal.SIGHUP, "config.reloaded"),
    ):
        os.killpg(group, number)
        until(functools.partial(fleet.log, event), event)
    fleet.release()
    until(lambda: "end a" in fleet.ran())
    fleet.push("note", "b")
    until(lambda: "b" in fleet.ran())
    until(lambda: {row["pid"] for row in fleet.children()} >= before)
    deaths = [line["child_pid"] for line in fleet.log() if line["event"].endswith(".exited")]
    assert not before & set(deaths), deaths


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_to_the_process_group_lets_tasks_finish(fleet: Mastered, number: signal.Signals) -> None:
    fleet.start()
    held_by(fleet, "a")
    os.killpg(os.getpgid(fleet.pid), number)  # Ctrl-C in a terminal sends the signal to the whole group
    until(lambda: fleet.log("fleet.draining"))
    refused = fleet.rota("reload")
    assert refused.returncode == 1
    assert "the fleet is draining" in refused.stderr
    fleet.release()
    assert fleet.exit_code() == 0
    assert "end a" in fleet.ran()


def test_json_keys_match_the_documentation(fleet: Mastered) -> None:
    fleet.configure('workers = 2\n[adopt."queue:mail"]\nqueue = "default"\n')
    fleet.start()
    with Client(fleet.server.url, fleet.namespace) as client, client.consumer("own"):
        client.schedules.put("hourly", "note", Every(3600, queue="default"))
        client.pause("default")
        until(lambda: fleet.rota_json("status")["closed"])
        status = fleet.rota_json("status")
    scale = fleet.rota_json("scale", "2")
    reload = fleet.rota_json("reload")
    quiet = fleet.rota_json("quiet")
    events = fleet.rota_json("status")["events"]
    fleet.configure("workers = 3")
    preview = fleet.rota_json("reload", "--dry-run")
    fleet.configure("workers = 'three'")
    refused = json.loads(fleet.rota("reload", "--json").stdout)
    task = MemberTask(TaskInSlot(b"id-1 mail i 1 1 0 0 0 0 -", "send", 1, 0), 1.0, 1.0)
    held = PoolInBackoff("worker", "mail", "backoff", 1, 2.0, "why").row(1.0)
    found = {
        "status": status,
        "a row of pools": status["pools"][0],
        "a row of processes": status["processes"][0],
        "a row of tasks, which a process runs": task.to_json(),
        "a row of consumers": status["consumers"][0],
        "a row of schedules (the first 100 are shown)": status["schedules"][0],
        "a row of adopts": status["adopts"][0],
        "a row of events, [the last 100](status.md#events)": events[0],
        "a row of closed: a queue that is paused, or that its condition keeps closed": status["closed"][0],
        "a row of held": held,
        "scale": scale,
        "reload, restart": reload,
        "the same, refused": refused,
        "reload --dry-run": preview,
        "a row of its changes": preview["changes"][0],
        "quiet, resume": quiet,
        "stop": fleet.rota_json("stop"),
    }
    assert {what: set(keys) for what, keys in found.items()} == keys_on_the_page()
