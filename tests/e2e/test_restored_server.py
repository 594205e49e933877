"""A server that is restored from an old RDB file. The audit reports which tasks were lost, and which of the waiting
tasks have already run.
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import redis

from support.fleet_process import LOG_FILE, rota
from support.fleets import RunningFleet
from support.servers import Server
from support.waiting import until

Ran = dict[str, Any]


@dataclass(frozen=True)
class Restored:
    """A server that was restored to an old state, and the files that the server's fleet had written until the crash."""

    fleet: RunningFleet
    repeated: set[str]  # tasks that were waiting when the snapshot was made, and ran before the crash
    lost: set[str]  # tasks that were enqueued after the snapshot and never ran
    kept: set[str]  # tasks that waited from before the snapshot until the crash

    def audit(self, *files: str) -> tuple[int, Ran, str]:
        """Run `rota audit` with these files. Returns its exit code, its JSON document and its message."""
        words = [word for file in files for word in ("--against", file)]
        done = rota(self.fleet.folder, "audit", "--json", *words)
        return done.returncode, json.loads(done.stdout or "{}"), done.stderr


@pytest.fixture(scope="module")
def restored(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restored]:
    """Yield a server that was restored from a snapshot. Its fleet had continued for a while after the snapshot was
    made.
    """
    folder, node = tmp_path_factory.mktemp("server"), tmp_path_factory.mktemp("node")
    own = Server(server.binary, folder, dbfilename="dump.rdb").start()
    fleet = RunningFleet(own.url, "restored", node, tiers=[["default", "later"]], events={"enabled": True})
    try:
        yield _crashed(own, fleet)
    finally:
        fleet.close()
        own.stop()


def _crashed(own: Server, fleet: RunningFleet) -> Restored:
    fleet.start()
    client, snapshot = fleet.client, own.folder / "old.rdb"
    with redis.Redis.from_url(own.url) as asking:
        fleet.rota("queue", "pause", "later")
        repeated = {client.enqueue("note", queue="later").id for _ in range(3)}
        kept = {client.enqueue("note", queue="default", delay=3600).id for _ in range(2)}
        asking.save()
        shutil.copyfile(own.folder / "dump.rdb", snapshot)
    fleet.rota("queue", "resume", "later")
    ended = {client.enqueue("note", queue="default").id for _ in range(2)}
    lost = {client.enqueue("note", queue="default", delay=3600).id for _ in range(4)}
    until(lambda: repeated | ended <= {line.id for line in fleet.journal("end")}, "the end of these tasks")
    until(lambda: repeated | ended <= {line["task_id"] for line in fleet.log("task.done")}, "lines in the log")
    assert fleet.rota("export", "new.jsonl").returncode == 0
    (fleet.folder / "events.jsonl").write_text(fleet.rota("events", "--json").stdout)
    fleet.kill_all()
    own.kill()
    shutil.copyfile(snapshot, own.folder / "dump.rdb")
    own.start()
    return Restored(fleet, repeated, lost, kept)


def ids_of(found: Ran) -> tuple[set[str], set[str]]:
    """Return the ids of the lost tasks and of the waiting tasks that have already run, from the audit's document."""
    return set(found["lost"]), {task["id"] for task in found["ran_already"]}


def test_an_audit_against_task_events_finds_every_task(restored: Restored) -> None:
    code, found, message = restored.audit("events.jsonl")
    assert (code, ids_of(found)) == (1, (restored.lost, restored.repeated))
    assert {task["how"] for task in found["ran_already"]} == {"done"}
    assert "the server has lost 4 tasks: " in message
    assert "3 waiting tasks had ended already: " in message


def test_an_audit_against_a_newer_export_finds_every_task(restored: Restored) -> None:
    code, found, _ = restored.audit("new.jsonl")
    assert (code, ids_of(found)) == (1, (restored.lost, restored.repeated))
    assert {task["how"] for task in found["ran_already"]} == {"ended"}


def test_an_audit_against_the_log_finds_the_tasks_that_ran(restored: Restored) -> None:
    """The audit cannot find a lost task that was enqueued but never claimed, because no line of the log names it."""
    _, found, _ = restored.audit(LOG_FILE)
    assert ids_of(found) == (set(), restored.repeated)
    _, found, _ = restored.audit(LOG_FILE, "new.jsonl")
    assert ids_of(found) == (restored.lost, restored.repeated)


def test_the_audit_refuses_files_without_usable_records(restored: Restored) -> None:
    (restored.fleet.folder / "text.log").write_text("12:00:00 info task.done worker 1 note\n")
    lines = (restored.fleet.folder / "new.jsonl").read_text().splitlines(keepends=True)
    (restored.fleet.folder / "part.jsonl").write_text("".join(lines[:-1]))
    for file, fault in (("text.log", "none of its lines is a task event"), ("part.jsonl", "without its last record")):
        code, _, message = restored.audit(file)
        assert (code, fault in message) == (1, True), message


def test_tasks_repaired_after_the_audit_do_not_run_again(restored: Restored) -> None:
    """This must be the last test of the module, because it changes the server."""
    _, found, _ = restored.audit("new.jsonl", LOG_FILE)
    fleet, ran_before = restored.fleet, {line.id for line in restored.fleet.journal("end")}
    for task in found["ran_already"]:
        assert rota(fleet.folder, "task", "cancel", task["id"]).returncode == 0
    assert restored.audit("events.jsonl")[1]["ran_already"] == []

    fleet.start()
    fleet.client.enqueue("note", args=["after"], queue="later")
    fleet.rota("queue", "resume", "later")
    fleet.wait_for("end", label="after")
    assert {line.id for line in fleet.journal("start") if line.label != "after"} == ran_before
    code, _, message = restored.audit("new.jsonl")
    assert (code, "a fleet has used the namespace until" in message) == (1, True)
