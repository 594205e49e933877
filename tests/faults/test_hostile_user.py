"""A user of the machine without special rights attacks the fleet of another user. The attacker locks and reads every
file that the permissions allow, and creates the fleet's files before the fleet does.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rota_supervisor.cli.control_client import master_of
from rota_supervisor.config.model import Config, Control
from rota_supervisor.exits import Failure
from support.fleets import Fleets, RunningFleet
from support.masters import ON_ONE_SERVER
from support.waiting import DEADLINE_SECONDS, until

pytestmark = [ON_ONE_SERVER, pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")]

NO_POOLS = 65534
SOMEBODY_ELSE = 65533
# All modules must be imported before the process changes its user, because the other user may not read the files of
# this interpreter.
BECOMES = f"""
import fcntl, os, pathlib, signal, socket, sys
os.setgroups([])
os.setgid({NO_POOLS})
os.setuid({NO_POOLS})
"""
HOLDS_WHAT_IT_CAN = """
def tries(what, *arguments):
    try:
        what(*arguments)
    except OSError:
        return
    print(what.__name__, *arguments, flush=True)

def lock(path, flags):
    fcntl.flock(os.open(path, flags | os.O_NONBLOCK), fcntl.LOCK_EX | fcntl.LOCK_NB)

for path in map(str, pathlib.Path(sys.argv[1]).iterdir()):
    tries(lock, path, os.O_RDONLY)
    tries(lock, path, os.O_WRONLY)
    tries(os.truncate, path, 0)
    tries(os.unlink, path)
    tries(socket.socket(socket.AF_UNIX).connect, path)
print("done", flush=True)
signal.pause()
"""


@contextmanager
def as_nobody(code: str, *arguments: str) -> Iterator[list[str]]:
    """Run this code as another user during the block. Yields the lines that the code printed before "done"."""
    command = [sys.executable, "-c", BECOMES + code, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        said: list[str] = []
        while (line := running.stdout.readline().strip()) != "done":
            assert line, "the program has ended"
            said.append(line)
        try:
            yield said
        finally:
            running.kill()
            running.wait(DEADLINE_SECONDS)


@pytest.fixture
def square() -> Iterator[Path]:
    """Return a folder with the permissions of /tmp: every user may create files in it, but may not remove the files of
    other users.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder)


@pytest.fixture
def fleet(fleets: Fleets, square: Path) -> RunningFleet:
    """Return a fleet whose control socket and pid file are in the folder that all users share."""
    return fleets.make(control={"socket": str(square / "control"), "pid_file": str(square / "pid")}, workers=1)


def start(fleet: RunningFleet, times: int = 1) -> None:
    fleet.launch()
    until(lambda: fleet.has_ended() or len(fleet.log("fleet.ready")) == times, "the fleet is ready")
    assert not fleet.has_ended(), fleet.log_text()


def test_another_user_cannot_open_the_fleets_files_or_block_its_start(fleet: RunningFleet, square: Path) -> None:
    start(fleet)
    fleet.kill_all()
    left = {"control", "control.lock", "pid"}
    assert {entry.name for entry in square.iterdir()} == left
    with as_nobody(HOLDS_WHAT_IT_CAN, str(square)) as done_to_a_dead_one:
        assert done_to_a_dead_one == []
        start(fleet, times=2)
        with as_nobody(HOLDS_WHAT_IT_CAN, str(square)) as done_to_a_living_one:
            assert done_to_a_living_one == []
    assert {(square / name).stat().st_mode & 0o777 for name in left} == {0o600}
    fleet.term()
    assert fleet.exit_code() == 0
    assert list(square.iterdir()) == []  # the lock files have been removed as well


def test_world_readable_files_of_earlier_versions_become_private(fleet: RunningFleet, square: Path) -> None:
    for name in ("pid", "control.lock"):
        (square / name).write_text("4194305\n")
        (square / name).chmod(0o644)
    start(fleet)
    with as_nobody(HOLDS_WHAT_IT_CAN, str(square)) as done:
        assert done == []


SITS_IN = {
    "a socket": "socket.socket(socket.AF_UNIX).bind(sys.argv[1] + '/control')",
    "an empty lock": "os.close(os.open(sys.argv[1] + '/control.lock', os.O_CREAT, 0o666))",
    "an empty pid file": "os.close(os.open(sys.argv[1] + '/pid', os.O_CREAT, 0o666))",
}


@pytest.mark.parametrize("way", SITS_IN.values(), ids=SITS_IN)
def test_a_fleet_of_root_takes_over_usable_files_of_another_user(fleet: RunningFleet, square: Path, way: str) -> None:
    with as_nobody(f"os.umask(0); {way}\nprint('done', flush=True)\nsignal.pause()", str(square)):
        start(fleet)
        with as_nobody(HOLDS_WHAT_IT_CAN, str(square)) as done:
            assert done == []


HOLDS = "fd = os.open(sys.argv[1] + '/{name}', os.O_CREAT | os.O_RDWR, 0o666); fcntl.flock(fd, fcntl.LOCK_EX)"
REFUSED = {
    "a link for a lock": ("os.symlink('/etc/passwd', sys.argv[1] + '/control.lock')", "control.socket"),
    "a link for a pid file": ("os.symlink('/etc/passwd', sys.argv[1] + '/pid')", "control.pid_file"),
    "a pipe for a pid file": ("os.mkfifo(sys.argv[1] + '/pid')", "control.pid_file"),
    "a folder for a socket": ("os.mkdir(sys.argv[1] + '/control')", "control.socket"),
    "a file for a socket": ("open(sys.argv[1] + '/control', 'w')", "control.socket"),
    "a held lock": (HOLDS.format(name="control.lock"), f"of user {NO_POOLS}, has the control socket"),
    "a held pid file": (HOLDS.format(name="pid"), f"of user {NO_POOLS}, has the pid file"),
}


@pytest.mark.parametrize(("way", "said"), REFUSED.values(), ids=REFUSED)
def test_a_start_leaves_an_unusable_file_unchanged_and_exits_with_73(
    fleet: RunningFleet, square: Path, way: str, said: str
) -> None:
    before = Path("/etc/passwd").read_bytes()
    with as_nobody(f"os.umask(0); {way}\nprint('done', flush=True)\nsignal.pause()", str(square)):
        fleet.launch()
        assert fleet.exit_code() == 73
    assert said in fleet.log_text()
    assert "Traceback" not in fleet.log_text()
    assert Path("/etc/passwd").read_bytes() == before


def test_commands_do_not_use_the_control_socket_of_another_user(fleet: RunningFleet, square: Path) -> None:
    listens = "at = socket.socket(socket.AF_UNIX); at.bind(sys.argv[1] + '/control'); at.listen()"
    way = f"os.umask(0); {listens}\nprint('done', flush=True)\nsignal.pause()"
    asked = Config(control=Control(socket=fleet.settings["control"]["socket"]))
    with as_nobody(way, str(square)):
        os.seteuid(SOMEBODY_ELSE)
        try:
            with pytest.raises(Failure, match="no master is listening"), master_of(asked):
                pass
        finally:
            os.seteuid(0)
