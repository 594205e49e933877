"""A fleet that is moved to another server while producers enqueue tasks. Every accepted task runs once, after a short
pause.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import redis

import rota
from support.fleets import Measure, RunningFleet
from support.server_fixtures import Producer
from support.servers import Server
from support.waiting import until

MOST_SECONDS: Final = 30.0  # the longest permitted pause, which may be long on a busy machine
LATER_SECONDS: Final = 12.0


class Move:
    """A fleet on the old server, and its copy for the new server, which a test starts later."""

    def __init__(self, old: Server, new: Server, namespace: str, folder: Path) -> None:
        self.old_server, self.new_server = old, new
        folders = folder / "old-node", folder / "new-node"
        for each in folders:
            each.mkdir()
        self.old = RunningFleet(old.url, namespace, folders[0], shared=folder)
        self.new = RunningFleet(new.url, namespace, folders[1], shared=folder)
        self.namespace = namespace

    def producer(self, server: Server) -> Producer:
        return Producer(server.url, self.namespace, threads=2, patience_seconds=60, **self.old.signing_options)

    def start_new(self) -> float:
        """Start the fleet on the new server. Returns the time at which the first task started on this server."""
        before = len(self.new.journal("start"))
        self.new.start()
        until(lambda: len(self.new.journal("start")) > before, "a task that starts")
        return self.new.journal("start")[before].at

    def close(self) -> None:
        self.old.close()
        self.new.close()


@pytest.fixture
def servers(server: Server, tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """Yield an old and a new server."""
    made = []
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        made.append(Server(server.binary, tmp_path / name, repl_diskless_sync_delay="0").start())
    old, new = made
    yield old, new
    for each in made:
        each.stop()


@pytest.fixture
def move(servers: tuple[Server, Server], namespace: str, tmp_path: Path) -> Iterator[Move]:
    made = Move(*servers, namespace, tmp_path)
    yield made
    made.close()


def fail_over(old: "redis.Redis", new: Server) -> None:
    """Promote the new server, which was a replica of the old one until now, and make the old server its replica. No
    write is lost.
    """
    old.execute_command("FAILOVER", "TO", "127.0.0.1", str(new.port))  # type: ignore[no-untyped-call]  # not in its types


def check_that_all_ran_once(move: Move, accepted: set[str]) -> None:
    """Check that every accepted task started once and ended, and that the counters agree."""
    until(lambda: accepted <= {line.id for line in move.new.journal("end")}, "the end of every task")
    starts = [line.id for line in move.new.journal("start")]
    assert sorted(starts) == sorted(set(starts))
    until(lambda: not move.new.rota_json("audit")["live"], "no task is left")
    assert move.new.books_balance()


def test_a_fleet_can_be_moved_by_export_and_import_without_losing_tasks(move: Move, measured: Measure) -> None:
    move.old.start()
    with move.producer(move.old_server) as first:
        first.wait_for(100)
        scheduled = move.old.client.enqueue("note", queue="default", delay=LATER_SECONDS).id
        assert move.new.rota("import", "--prepare").returncode == 0
        # For a while, both servers are in use, because the producers are switched one after the other.
        with move.producer(move.new_server) as second:
            second.wait_for(50)
            first.wait_for(50)
    with move.producer(move.new_server) as third:
        third.wait_for(50)
        stopped_at = time.time()
        assert move.old.rota("stop").returncode == 0
        exported = move.old.rota("export", "--exact", "all.jsonl", "--json")
        assert exported.returncode == 0, exported.stderr
        imported = move.new.rota("import", str(move.old.folder / "all.jsonl"), "--json")
        assert imported.returncode == 0, imported.stderr
        assert json.loads(imported.stdout)["left_out"] == []
        pause = move.start_new() - stopped_at
        third.wait_for(50)
    measured("seconds without a start of a task, with the stop and the start of a fleet", pause)
    assert pause < MOST_SECONDS
    check_that_all_ran_once(move, {scheduled, *first.accepted, *second.accepted, *third.accepted})
    assert move.new.client.status(scheduled).state == "done"


def test_a_fleet_can_be_moved_by_promoting_a_replica_without_losing_tasks(move: Move, measured: Measure) -> None:
    old, new = (redis.Redis.from_url(server.url) for server in (move.old_server, move.new_server))
    with old, new:
        new.replicaof("127.0.0.1", move.old_server.port)
        until(lambda: new.info("replication")["master_link_status"] == "up", "a replica in sync")
        move.old.start()
        with move.producer(move.old_server) as first:
            first.wait_for(100)
            stopped_at = time.time()
            assert move.old.rota("stop").returncode == 0
            fail_over(old, move.new_server)
            until(lambda: new.info("replication")["role"] == "master", "the failover")
        with move.producer(move.new_server) as second:
            pause = move.start_new() - stopped_at
            second.wait_for(50)
    measured("seconds without a start of a task, with the stop and the start of a fleet", pause)
    assert pause < MOST_SECONDS
    check_that_all_ran_once(move, {*first.accepted, *second.accepted})
    assert first.doubtful == []
    with pytest.raises(rota.Unavailable):
        move.old.client.enqueue("note", queue="default")
