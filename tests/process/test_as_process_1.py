"""A fleet whose master is process 1 of a PID namespace, as in a container. The master itself must reap orphans, because
there is no init program. Nor does an init program forward signals to the master.
"""

import json
import os
import shutil
import signal
import subprocess

import psutil
import pytest

from support.fleet_process import ROTA
from support.masters import ON_ONE_SERVER, Mastered
from support.processes import descendants
from support.waiting import DEADLINE_SECONDS, until

pytestmark = ON_ONE_SERVER

# Each child of this task leaves its own child behind, in a separate session. Process 1 adopts the process that was left
# behind. That process soon ends.
ORPHANS = """
@rota.task
def daemons(text):
    script = "import os, time; os.fork() and os._exit(0); os.setsid(); time.sleep(0.2)"
    for _ in range(5):
        subprocess.run([sys.executable, "-c", script], check=True)
    record(f"left {text}")
"""

# Init programs that many images run as process 1. Both can forward signals to a whole process group: tini with `-g`,
# and dumb-init by default.
INITS = {
    "none": [],
    "tini": ["tini", "--"],
    "tini -g": ["tini", "-g", "--"],
    "dumb-init": ["dumb-init", "--"],
    "dumb-init without setsid": ["env", "DUMB_INIT_SETSID=0", "dumb-init", "--"],
}


def unshare() -> list[str]:
    """Return a command prefix that runs a program as process 1 of a new PID namespace, and kills the program when this
    process ends. Skips the test if this is not permitted.
    """
    words = ["unshare", "--pid", "--mount-proc", "--kill-child"]
    tried = shutil.which("unshare") and subprocess.run([*words, "true"], capture_output=True, check=False)
    if not tried or tried.returncode:
        pytest.skip("no PID namespace can be made here: that takes unshare, and root")
    return words


def require(*words: str) -> None:
    """Skip the test if one of these words of a command line is an init program that is not installed. In CI, fail the
    test instead.
    """
    programs = [word for word in words if word in ("tini", "dumb-init")]
    if missing := [program for program in programs if shutil.which(program) is None]:
        if os.environ.get("CI"):
            pytest.fail(f"{missing[0]} is not on the PATH: CI must run it")
        pytest.skip(f"{missing[0]} is not installed")


@pytest.fixture
def fleet(fleet: Mastered) -> Mastered:
    fleet.prefix = unshare()
    return fleet


def process_1(fleet: Mastered) -> psutil.Process:
    """Return the master's process, with the pid that it has outside of its PID namespace."""
    (master,) = psutil.Process(fleet.pid).children()
    return master


def test_adopted_orphans_are_reaped(fleet: Mastered) -> None:
    fleet.add_tasks(ORPHANS)
    fleet.start()
    master = process_1(fleet)
    fleet.until_workers(2)
    assert fleet.status()["pid"] == 1

    def only_its_children() -> bool:
        # The number of descendants includes zombies, but the count of children does not.
        return len(descendants(master.pid)) == len(fleet.children())

    fleet.push("daemons", "a")
    until(lambda: fleet.ran() == ["left a"], "the task has run")
    until(only_its_children, "every orphan has ended and is reaped")

    fleet.push("die", "b")
    until(lambda: "die b" in fleet.ran())
    fleet.until_workers(2)
    until(only_its_children, "no zombie stays")

    master.send_signal(signal.SIGTERM)
    assert fleet.exit_code() == 0
    assert fleet.log("fleet.stopped")


@pytest.mark.parametrize("init", INITS.values(), ids=INITS)
def test_sigterm_to_any_init_program_drains_the_fleet(fleet: Mastered, init: list[str]) -> None:
    require(*init)
    fleet.prefix += init
    fleet.start()
    fleet.push("hold", "a")
    until(lambda: fleet.starts("a"))

    process_1(fleet).send_signal(signal.SIGTERM)
    until(lambda: fleet.log("fleet.draining"))
    fleet.release()

    assert fleet.exit_code() == 0
    assert fleet.ran()[-1] == "end a"
    assert [line["reason"] for line in fleet.log("worker.exited")] == ["drained", "drained"]
    assert fleet.rota_json("audit")["live"] == 0


def test_sigterm_to_every_process_drains_the_fleet(fleet: Mastered) -> None:
    """systemd sends SIGTERM to all processes of a unit with `KillMode=control-group`. This test sends it to the
    children first.
    """
    fleet.start()
    fleet.push("hold", "a")
    until(lambda: fleet.starts("a"))
    fleet.until_workers(2)
    master = process_1(fleet)

    for child in master.children(recursive=True):
        child.send_signal(signal.SIGTERM)
    master.send_signal(signal.SIGTERM)
    until(lambda: fleet.log("fleet.draining"))
    fleet.release()

    assert fleet.exit_code() == 0
    assert fleet.ran()[-1] == "end a"
    assert fleet.rota_json("audit")["live"] == 0


def test_sigterm_during_imports_stops_cleanly(fleet: Mastered) -> None:
    (fleet.folder / "tasks.py").write_text("import time\nopen('importing', 'w').close()\ntime.sleep(600)\n")
    fleet.launch()
    until((fleet.folder / "importing").exists)

    process_1(fleet).send_signal(signal.SIGTERM)

    assert fleet.exit_code() == 0
    assert fleet.log("fleet.stopped")


def test_sigterm_before_the_loop_starts_is_not_lost(fleet: Mastered) -> None:
    """The signal arrives while the master reads its configuration. Process 1 would lose a signal that it neither
    handles nor blocks, because the kernel drops such a signal.
    """
    config = fleet.folder / "rota.toml"
    text = config.read_text()
    config.unlink()
    os.mkfifo(config)
    fleet.launch()
    with config.open("w") as pipe:  # the file is a pipe; opening it waits until the master begins to read
        process_1(fleet).send_signal(signal.SIGTERM)
        pipe.write(text)

    assert fleet.exit_code() == 0
    assert fleet.log("fleet.stopped")


def test_exit_code_of_a_failed_start_reaches_the_parent(fleet: Mastered) -> None:
    fleet.configure("workers = -1")

    assert fleet.launch().exit_code() == 78


def test_the_stop_command_in_another_container_waits_until_the_fleet_ended(fleet: Mastered) -> None:
    fleet.start()
    fleet.push("hold", "a")
    until(lambda: fleet.starts("a"))
    command = [*fleet.prefix, ROTA, "stop", "--json"]
    with subprocess.Popen(command, cwd=fleet.folder, stdout=subprocess.PIPE, text=True) as stop:
        until(lambda: fleet.log("fleet.draining"))
        fleet.release()
        said = stop.communicate(timeout=DEADLINE_SECONDS)[0]
        assert fleet.log("fleet.stopped")
    # This process is outside the master's PID namespace, so the socket reports 0 as its pid.
    assert (stop.returncode, json.loads(said)["pid"]) == (0, 0)
    assert fleet.exit_code() == 0
