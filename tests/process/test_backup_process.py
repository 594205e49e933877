"""`rota export` and `rota import` as separate processes. They are killed at any time, or write to a terminal or a
pipe.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Final

import pytest
import redis

from support.backups import content_of
from support.command_line import write_configuration
from support.faulty_link import FaultyLink
from support.fleet_process import DEADLINE_SECONDS, ROTA, environment, rota
from support.protocol import Fleet
from support.servers import Server
from support.terminals import in_terminal

TASKS: Final = 3_000
BATCH: Final = 500
POINTS: Final = (
    *(("begin_import", False), ("begin_import", True), ("import_tasks", False), ("import_tasks", True)),
    *(("import_keys", True), ("heal_members", False), ("heal_members", True)),
)


@pytest.fixture
def old(server: Server, namespace: str, tmp_path: Path) -> Iterator[Fleet]:
    """Yield a fleet with many tasks. Commands that run in the folder `old` use the fleet's namespace."""
    folder = tmp_path / "old"
    folder.mkdir()
    write_configuration(folder, server, namespace)
    with closing(Fleet(server, namespace)) as fleet:
        fleet.run(fleet.store.open())
        for first in range(0, TASKS, BATCH):
            due = "+3600000000" if first % 1000 else ""
            fleet.push(*(f"t{number}" for number in range(first, first + BATCH)), queue=f"q{first % 3}", due=due)
        fleet.redis.delete(*fleet.redis.scan_iter(match=fleet.keys.sent("*")))
        yield fleet


@pytest.mark.usefixtures("old")
def test_a_repeatedly_killed_import_can_be_completed(
    server: Server, namespace: str, link: FaultyLink, tmp_path: Path
) -> None:
    """The import is killed while a call or the reply to it is in transit. A call in transit still arrives after the
    process has died.
    """
    new = f"{namespace}-new"
    (tmp_path / "rota.toml").write_text(f'redis_url = "{link.url}"\nnamespace = "{new}"\n')
    assert rota(tmp_path / "old", "export", "../all.jsonl", "--exact").returncode == 0
    # This import makes the server load all scripts, so that the next imports do not send the scripts as text.
    assert rota(tmp_path, "import", "all.jsonl", ROTA_NAMESPACE=f"{new}-first").returncode == 0
    assert rota(tmp_path, "import", "--prepare").returncode == 0
    for call, is_reply in POINTS:
        kill_import(link, tmp_path, call, is_reply=is_reply)
        check_that_no_fleet_starts(tmp_path)
    kill_import(link, tmp_path, "end_import", is_reply=True)

    with redis.Redis.from_url(server.url) as client:
        assert content_of(client, new) == content_of(client, namespace)
    assert rota(tmp_path, "audit").returncode == 0
    again = rota(tmp_path, "import", "all.jsonl")
    assert (again.returncode, "is not empty" in again.stderr) == (1, True)


def kill_import(link: FaultyLink, folder: Path, at: str, *, is_reply: bool) -> None:
    """Start an import. Kill it when its first call of this script is in transit or, if `is_reply` is set, when the
    reply to this call is.
    """
    is_there = Event()

    def gate(name: str, is_of_reply: bool, _: int) -> bool:
        if (name, is_of_reply) != (at, is_reply):
            return True
        is_there.set()
        return False

    link.gate = gate
    command = [ROTA, "import", "all.jsonl"]
    with subprocess.Popen(command, cwd=folder, env=environment(folder), stderr=subprocess.DEVNULL) as process:
        assert is_there.wait(DEADLINE_SECONDS)
        process.kill()
    link.gate = None
    link.heal()


def check_that_no_fleet_starts(folder: Path) -> None:
    """Check that a master refuses to start in this folder."""
    refused = rota(folder, "check", "--no-imports")
    assert (refused.returncode, "is being imported" in refused.stderr) == (78, True), refused.stderr


@pytest.mark.usefixtures("old")
def test_an_export_shows_its_progress_in_a_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "old"
    with in_terminal([ROTA, "export", "all.jsonl"], folder, environment(folder)) as terminal:
        assert terminal.exit_code() == 0
    assert b"exporting  [####" in terminal.drawn
    assert b"100%" in terminal.drawn
    assert f"exported {TASKS} tasks".encode() in terminal.drawn


@pytest.mark.usefixtures("old")
def test_an_export_can_be_piped_and_reports_a_full_disk(tmp_path: Path) -> None:
    folder = tmp_path / "old"
    done = rota(folder, "export", "-")
    lines = done.stdout.splitlines()
    assert (done.returncode, len(lines)) == (0, json.loads(lines[-1])["lines"] + 1)
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-P", "-m", "rota_supervisor", "export", "-"]
        failed = subprocess.run(
            command, cwd=folder, env=environment(folder), stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert (failed.returncode, b"No space left on device" in failed.stderr) == (74, True), failed.stderr
