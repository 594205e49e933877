"""The server replies to commands but refuses them, because its memory or disk is full, keys may be evicted, or a
command is forbidden.
"""

import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import rota
from rota import Call
from rota.server.address import Topology
from rota_supervisor.acl_roles import AclRole, needed_commands
from rota_supervisor.exits import ExitCode
from support.fleets import RunningFleet
from support.server_fixtures import (
    LEASE_SECONDS,
    SHORT_LEASE,
    Shaken,
    everything_ended_once,
    extra_runs,
    nothing_was_requeued,
)
from support.waiting import until

WAITING = 300
DISK_BYTES = 2 << 20
NOTES = 100
REFUSALS = 40

NEEDED = needed_commands(AclRole.FLEET, "none", Topology.SINGLE)


def first_line(fleet: RunningFleet) -> str:
    """Return the first line of the status page, which must also be the first line of `rota top`."""
    code, body = fleet.get("/status.json")
    assert code == 200, body
    return str(json.loads(body)["headlines"][0]["text"])


def check_shown(fleet: RunningFleet, text: str, *commands: list[str]) -> None:
    """Check that the status page and `rota top` begin with this text, and that the output of each of these commands
    contains the text.
    """
    until(lambda: first_line(fleet).startswith(text), lambda: first_line(fleet))
    for command in (["top", "--once"], *commands):
        assert text in " ".join(fleet.rota(*command).stdout.split()), command


def test_a_server_without_memory_refuses_enqueues_but_no_lease_is_lost(
    shaken: Shaken,
) -> None:
    fleet = shaken.start(workers=2, lease=SHORT_LEASE)
    fleet.hold("ends later")
    workers = fleet.workers()
    fleet.client.pause("default")
    fleet.client.enqueue_many(Call("note", ["waiting"], queue="default") for _ in range(WAITING))
    fleet.client.enqueue_many(Call("note", ["due"], queue="default", delay=1) for _ in range(20))
    shaken.do("CONFIG", "SET", "maxmemory", "1mb")
    with pytest.raises(rota.ServerFull, match="accepts no more tasks, because its memory is full"):
        fleet.client.enqueue("note", queue="default")
    refused = fleet.rota("task", "enqueue", "note", "--queue", "default")
    assert (refused.returncode, "memory is full" in refused.stderr) == (ExitCode.UNREACHABLE, True), refused.stderr
    fleet.client.resume("default")
    fleet.wait_for("end", WAITING, label="waiting")
    fleet.wait_for("end", 20, label="due")
    time.sleep(1.5 * LEASE_SECONDS)
    fleet.release("ends later")
    fleet.wait_for("end", label="ends later")
    fleet.wait_until_nothing_waits(30)
    nothing_was_requeued(fleet)
    assert fleet.workers() == workers
    assert not extra_runs(fleet)
    shaken.do("CONFIG", "SET", "maxmemory", "0")
    fleet.client.enqueue("note", args=["room"], queue="default")
    fleet.wait_for("end", label="room")
    assert fleet.books_balance()


def test_an_eviction_policy_set_while_the_fleet_runs_is_reported(shaken: Shaken) -> None:
    fleet = shaken.start(lease=SHORT_LEASE)
    assert fleet.metrics().total("rota_redis_evicts_keys") == 0
    shaken.do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    until(lambda: fleet.metrics().total("rota_redis_evicts_keys") == 1, "the alarm")
    check_shown(fleet, "Redis is configured to drop keys when its memory is full", ["status"], ["health", "--ready"])
    [line] = fleet.log("redis.evicts_keys")
    assert (line["level"], line["policy"], line["wanted"]) == ("error", "allkeys-lru", "noeviction")
    shaken.do("CONFIG", "SET", "maxmemory-policy", "noeviction")
    until(lambda: fleet.metrics().total("rota_redis_evicts_keys") == 0, "its end")
    until(lambda: fleet.rota("health", "--ready").stdout == "ok\n", "health has nothing to warn of")
    assert len(fleet.log("redis.keeps_keys")) == 1


def test_command_forbidden_by_the_acl_prevents_the_start(shaken: Shaken) -> None:
    granted = [f"+{command.lower()}" for command in NEEDED if command not in ("BLPOP", "ZRANGE")]
    shaken.do("ACL", "SETUSER", "fleet", "on", ">secret", f"~{{{shaken.namespace}}}:*", "+eval", "+info", *granted)
    fleet = shaken.make(redis_url=shaken.server.url.replace("//", "//fleet:secret@"))
    fleet.launch()
    assert fleet.exit_code() == ExitCode.CONFIG
    assert "forbids the user 'fleet' to run BLPOP, ZRANGE" in fleet.log_text()
    assert "+blpop +zrange" in fleet.log_text()
    assert not shaken.redis.keys()
    shaken.do("ACL", "SETUSER", "fleet", "+blpop", "+zrange")
    fleet.start()
    fleet.client.enqueue("note", queue="default")
    fleet.wait_for("end")
    assert not fleet.log("redis.refused")


def test_a_revoked_permission_is_logged_once_for_each_script(shaken: Shaken) -> None:
    granted = [f"+{command.lower()}" for command in NEEDED]
    shaken.do("ACL", "SETUSER", "fleet", "on", ">secret", f"~{{{shaken.namespace}}}:*", "+eval", "+info", *granted)
    fleet = shaken.start(redis_url=shaken.server.url.replace("//", "//fleet:secret@"), workers=3, lease=SHORT_LEASE)
    shaken.do("ACL", "SETUSER", "fleet", "-eval", "-evalsha")
    for worker in fleet.workers():
        os.kill(worker, signal.SIGKILL)
    until(lambda: fleet.metrics().total("rota_redis_errors_total", reason="noperm") > REFUSALS, "refusals", seconds=30)
    told = Counter((line["pid"], line["call"]) for line in fleet.log("redis.refused"))
    assert any(call == "reap" for _, call in told)
    assert set(told.values()) == {1}
    shaken.do("ACL", "SETUSER", "fleet", "+eval", "+evalsha")
    fleet.client.enqueue("note", queue="default")
    fleet.wait_for("end")


# A full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder for the server's files. The folder is on a small file system of its own."""
    folder = tmp_path / "server"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a file system of its own needs the right to mount: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def save_until(shaken: Shaken, status: str) -> None:
    """Make the server save its data, and wait until its last save has this status."""
    shaken.do("BGSAVE")
    until(lambda: shaken.redis.info("persistence")["rdb_last_bgsave_status"] == status, f"a save that ends {status}")


def test_outcomes_are_kept_while_the_server_disk_is_full(small_disk: Path, shaken: Shaken) -> None:
    fleet = shaken.start(workers=2)
    fleet.hold("ends meanwhile")
    workers = fleet.workers()
    (small_disk / "ballast").write_bytes(os.urandom(DISK_BYTES - (64 << 10)))
    shaken.redis.set("large", os.urandom(1 << 20))
    shaken.do("CONFIG", "SET", "save", "3600 1")
    save_until(shaken, "err")
    fleet.release("ends meanwhile")
    fleet.wait_for("end", label="ends meanwhile")
    with pytest.raises(rota.Unavailable, match="MISCONF"):
        fleet.client.enqueue("note", queue="default")
    until(lambda: any(line.get("reason") == "misconf" for line in fleet.log("redis.lost")), "a worker that waits")
    until(lambda: re.match(r"Redis has refused for .+: MISCONF", first_line(fleet)), lambda: first_line(fleet))
    assert "refuses: MISCONF" in " ".join(fleet.rota("status").stdout.split())
    assert "Redis refuses: MISCONF" in fleet.rota("health", "--ready").stderr
    (small_disk / "ballast").unlink()
    save_until(shaken, "ok")
    fleet.client.enqueue_many(Call("note", ["after"], queue="default") for _ in range(NOTES))
    fleet.wait_for("end", NOTES, label="after")
    everything_ended_once(fleet)
    assert fleet.workers() == workers
