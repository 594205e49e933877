"""The start of a fleet on a machine. Only one fleet at a time can run with a given configuration, and the titles of its
processes name the fleet. A fleet can start in any state that it inherits from its parent process, for example with
closed descriptors.
"""

import contextlib
import os
import pty
import re
import signal
import subprocess

import psutil
import pytest

from support.fleet_process import ROTA
from support.masters import ON_ONE_SERVER, Mastered
from support.waiting import DEADLINE_SECONDS, until

pytestmark = ON_ONE_SERVER
STARTS = 4


@pytest.fixture
def fleet(fleet: Mastered) -> Mastered:
    fleet.configure("workers = 1")
    return fleet


def another_start(fleet: Mastered, *arguments: str) -> "subprocess.Popen[str]":
    """Start a second `rota run` in the folder of this fleet, with the same configuration."""
    return subprocess.Popen(
        [ROTA, "run", *arguments], cwd=fleet.folder, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def test_of_many_simultaneous_starts_exactly_one_runs(fleet: Mastered) -> None:
    pid_file = fleet.folder / "rota.pid"
    starts = [another_start(fleet, "--pid-file", "rota.pid") for _ in range(STARTS)]
    try:
        until(lambda: sum(start.poll() is not None for start in starts) == STARTS - 1, "all but one have left")
        (winner,) = [start for start in starts if start.poll() is None]
        for loser in starts:
            if loser is not winner:
                said = loser.communicate(timeout=DEADLINE_SECONDS)[1]
                assert (loser.returncode, f"another master, pid {winner.pid}, has the pid file" in said) == (73, True)
        assert pid_file.read_text() == f"{winner.pid}\n"

        winner.kill()
        winner.wait(DEADLINE_SECONDS)
        assert pid_file.exists()
        fleet.start("--pid-file", "rota.pid")
        assert pid_file.read_text() == f"{fleet.pid}\n"
        # This start has no pid file, so only the control socket shows that the fleet is already running.
        without = another_start(fleet)
        assert f"another master, pid {fleet.pid}, has the control socket" in without.communicate(timeout=30)[1]
        assert without.returncode == 73

        fleet.signal(signal.SIGTERM)
        assert fleet.exit_code() == 0
        assert not pid_file.exists()
    finally:
        for start in starts:
            start.kill()
            start.communicate()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("rota.toml", "is not a pid file"),
        ("no/such/folder/pid", "cannot be written: No such file or directory: set --pid-file or"),
    ],
)
def test_unusable_pid_file_is_refused_and_left_unchanged(fleet: Mastered, path: str, why: str) -> None:
    before = (fleet.folder / "rota.toml").read_text()

    refused = another_start(fleet, "--pid-file", path)

    said = refused.communicate(timeout=DEADLINE_SECONDS)[1]
    assert (refused.returncode, why in said, "control.pid_file" in said) == (73, True, True), said
    assert (fleet.folder / "rota.toml").read_text() == before


def test_processes_have_titles_and_their_environment_stays_readable(fleet: Mastered) -> None:
    fleet.environment = {"SEEN": "yes"}
    fleet.start()
    until(lambda: len(fleet.children(state="ready")) == len(fleet.children()) == 4, "all its children are ready")
    (worker,) = fleet.children("worker")
    everybody = [psutil.Process(fleet.pid), *psutil.Process(fleet.pid).children()]

    titles = sorted(" ".join(process.cmdline()).strip() for process in everybody)

    assert titles == [
        f"rota: {what} ({fleet.namespace})"
        for what in ("exporter", "master", "poller", f"worker default {worker['slot']}", "zygote generation 1")
    ]
    assert all(process.environ().get("SEEN") == "yes" for process in everybody)


ODD = {"no standard descriptors": "exec <&- >&- 2>&-; ", "no home and a strange umask": "unset HOME; umask 777; "}


@pytest.mark.parametrize("setup", ODD.values(), ids=ODD)
def test_start_works_without_standard_descriptors_or_home(fleet: Mastered, setup: str) -> None:
    fleet.prefix = ["sh", "-c", f'{setup}exec "$@"', "sh"]
    fleet.launch("--pid-file", "rota.pid")
    until(lambda: (fleet.folder / "rota.pid").exists() or fleet.has_ended(), "the fleet has begun")
    until(lambda: fleet.is_up() or fleet.has_ended(), "the fleet responds")
    assert not fleet.has_ended(), fleet.log_text()
    fleet.push("note", "a")
    assert until(fleet.ran) == ["a"]
    # The pid file contains only the pid, and no log line.
    assert (fleet.folder / "rota.pid").read_text() == f"{fleet.pid}\n"
    fleet.signal(signal.SIGTERM)
    assert fleet.exit_code() == 0


@pytest.mark.parametrize(("flag", "variable", "colored"), [("", "", True), ("--no-color", "", False), ("", "1", False)])
def test_colors_of_the_log_and_of_commands_can_be_turned_off(
    fleet: Mastered, flag: str, variable: str, colored: bool
) -> None:
    """If colors are turned off, neither the log of the master and its children nor the tables and errors of commands
    contain escape sequences.
    """
    ours, theirs = pty.openpty()
    flags = [flag] if flag else []
    env = os.environ | {"NO_COLOR": variable, "TERM": "xterm"}
    with subprocess.Popen([ROTA, *flags, "run"], cwd=fleet.folder, env=env, stdout=theirs, stderr=theirs) as master:
        log = read_until(ours, "worker.started", "fleet.ready")
        subprocess.run([ROTA, *flags, "status"], cwd=fleet.folder, env=env, stdout=theirs, check=True)
        table = read_until(ours, "worker default")
        subprocess.run([ROTA, *flags, "dance"], cwd=fleet.folder, env=env, stderr=theirs, check=False)
        error = read_until(ours, "dance")
        master.terminate()
        assert master.wait(DEADLINE_SECONDS) == 0
    os.close(theirs)
    os.close(ours)
    assert ["\x1b[" in said for said in (log, table, error)] == [colored] * 3


def read_until(fd: int, *words: str) -> str:
    """Read the output from a terminal until it contains all of these words, and return the output."""
    said = ""
    while not all(word in said for word in words):
        said += os.read(fd, 4096).decode()
    return said


def test_missing_current_folder_is_reported(fleet: Mastered) -> None:
    command = [ROTA, "run", "-c", str(fleet.folder / "rota.toml")]
    gone = fleet.folder / "gone"
    gone.mkdir()
    script = f'cd "{gone}" && rmdir "{gone}" && exec "$@"'

    done = subprocess.run(["sh", "-c", script, "sh", *command], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 78
    assert re.search(r"^rota: error: the current folder cannot be used", done.stderr, re.MULTILINE), done.stderr


def test_refused_start_leaves_no_process(fleet: Mastered) -> None:
    fleet.environment = {"ROTA_REDIS_URL": "redis://127.0.0.1:1", "STARTED_BY": fleet.namespace}
    fleet.launch()
    assert fleet.exit_code() == 69
    assert started_by(fleet.namespace) == []


def started_by(mark: str) -> list[int]:
    """Return the pids of the processes that have this mark in their environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("STARTED_BY") == mark:
                found.append(process.pid)
    return found
