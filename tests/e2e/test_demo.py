"""`rota demo`, run as a user runs it: the checks that the demo makes, and how it cleans up however it ends."""

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import rota
from rota_supervisor.exits import ExitCode
from support.terminals import in_terminal
from support.waiting import until

DEADLINE_SECONDS = 90.0
_ROTA = str(Path(sys.executable).parent / "rota")
_NOBODY = "redis://127.0.0.1:1/0"


class Demo:
    """A running `rota demo`. All descendants of the demo inherit an environment variable, by which the test finds
    them.
    """

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex
        folders = {name: str(folder) for name in ("TMPDIR", "HOME")}
        env = {**os.environ, **folders, "DEMO_TEST": self.mark, "ROTA_REDIS_URL": _NOBODY, "TERM": "xterm"}
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            self.process = subprocess.Popen(
                [_ROTA, "demo", *arguments], cwd=folder, env=env, stdin=subprocess.DEVNULL,
                stdout=out, stderr=err,
            )  # fmt: skip

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text()

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text()

    def wait_for(self, pattern: str, *, stream: str = "out") -> re.Match[str]:
        """Wait until the output matches the pattern."""

        def seen() -> re.Match[str] | None:
            return re.search(pattern, (self.folder / stream).read_text())

        until(
            lambda: seen() or self.process.poll() is not None,
            lambda: f"{pattern}: {self.out}{self.err}",
            DEADLINE_SECONDS,
        )
        found = seen()
        assert found is not None, f"{pattern}: {self.out}{self.err}"
        return found

    def wait(self) -> int:
        """Wait until the demo has ended, and return its exit code."""
        return self.process.wait(DEADLINE_SECONDS)

    def left(self) -> list[psutil.Process]:
        """Return all processes of the demo that are still alive."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get("DEMO_TEST") == self.mark and process.status() != psutil.STATUS_ZOMBIE
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False

    def is_gone(self) -> bool:
        """Whether the demo has left neither a process nor a folder behind."""
        return not self.left() and not list(self.folder.glob("rota-demo-*"))


Start = Callable[..., Demo]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a demo. After the test, the demo and all its remaining processes are killed."""
    started: list[Demo] = []

    def run(*arguments: str) -> Demo:
        started.append(Demo(tmp_path, *arguments))
        return started[-1]

    yield run
    for demo in started:
        for process in demo.left():
            process.kill()
        demo.process.wait()


def test_the_demo_loses_nothing_when_a_worker_is_killed(start: Start) -> None:
    demo = start("--seconds", "6", "--json")

    assert demo.wait() == 0, demo.err
    summary = json.loads(demo.out)
    seen = {check["name"]: check["seen"] for check in summary["checks"]}
    assert summary["ok"] is True
    assert summary["accepted"] > 300
    assert seen["every task ran"] == f"{summary['accepted']:,} accepted, all done, none lost"
    assert seen["none ran twice"].startswith("1 of the killed worker ran again")
    assert seen["kill noticed"] == "1 worker killed, 1 restarted for it, 1 task recovered"
    assert seen["audit"] == "0 missing in Redis, 0 counted as early"
    assert "started again" in seen["killed in mid-task"]
    assert {"resized 4 -> 6", "resized 6 -> 3"} <= seen.keys()
    assert "exit code 0, nothing left running" in seen["the fleet left"]
    assert summary["lag_seconds"]["sold-email"]["p99"] > 0
    assert "kill -9" in demo.err
    assert demo.is_gone()


def test_the_demo_with_keep_runs_until_ctrl_c(start: Start) -> None:
    demo = start("--seconds", "5", "--keep")
    metrics = demo.wait_for(r"metrics +(http://\S+)").group(1)
    redis_url, namespace = demo.wait_for(r"Redis +(\S+), namespace (\w+)").groups()
    demo.wait_for(r"rota status -c \S+\n")

    with urllib.request.urlopen(metrics, timeout=10) as answer:
        assert b"rota_task_lag_seconds" in answer.read()
    with rota.Client(redis_url, namespace) as client:
        handle = client.enqueue("send_password_reset", args=[1, "token"], queue="password-reset")
        until(lambda: handle.status().state != "ready", "the fleet works on", DEADLINE_SECONDS)
    demo.process.send_signal(signal.SIGINT)
    assert demo.wait() == 0, demo.err
    assert "nothing was lost" in demo.out
    assert "\x1b" not in demo.out
    assert demo.is_gone()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_stops_everything_and_leaves_nothing(start: Start, number: int) -> None:
    demo = start("--seconds", "60")
    demo.wait_for(r"mails about sold and expired listings at once")
    demo.process.send_signal(number)

    assert demo.wait() == 130
    assert "Traceback" not in demo.err
    assert demo.is_gone()


def test_the_demo_can_be_interrupted_before_the_fleet_is_ready(start: Start) -> None:
    demo = start("--seconds", "60")
    demo.wait_for(r"starting a Valkey")
    demo.process.send_signal(signal.SIGINT)

    assert demo.wait() == 130
    assert demo.is_gone()


@pytest.mark.parametrize("number", [None, signal.SIGTERM], ids=["ctrl-c", "TERM"])
def test_in_a_terminal_the_demo_shows_rota_top(tmp_path: Path, number: int | None) -> None:
    mark = {"TMPDIR": str(tmp_path), "HOME": str(tmp_path), "ROTA_REDIS_URL": _NOBODY}
    with in_terminal([_ROTA, "demo", "--seconds", "60"], tmp_path, {**os.environ, **mark}) as terminal:
        terminal.wait_for("sold-email")
        terminal.wait_for("of 4 busy")
        if number is None:
            terminal.type(b"\x03")
        else:
            terminal.signal(number)
        assert terminal.exit_code() == 130
        assert terminal.is_as_before()
        assert b"workers, " in terminal.drawn.rpartition(b"\x1b[?1049l")[2]
        assert not list(tmp_path.glob("rota-demo-*"))


def test_no_process_survives_a_killed_demo(start: Start) -> None:
    demo = start("--seconds", "60")
    demo.wait_for(r"ready; status page")
    assert len(demo.left()) > 5
    demo.process.kill()

    demo.wait()
    until(lambda: not demo.left(), "processes survive", DEADLINE_SECONDS)


def test_a_dead_fleet_is_reported_and_the_journals_stay(start: Start) -> None:
    demo = start("--seconds", "60")
    demo.wait_for(r"mails about sold and expired listings at once")
    [master] = [process for process in demo.left() if process.cmdline()[0] == "rota: master (demo)"]
    master.kill()

    assert demo.wait() == ExitCode.NO
    assert "the fleet ended unexpectedly with exit code -9" in demo.err
    assert len(list(demo.folder.glob("rota-demo-*/accepted.jsonl"))) == 1
    until(lambda: not demo.left(), "processes survive", DEADLINE_SECONDS)


def test_the_demo_fails_if_some_tasks_never_ran(start: Start) -> None:
    demo = start("--seconds", "5")
    demo.wait_for(r"ready; status page")
    config = next(demo.folder.glob("rota-demo-*/rota.toml"))
    redis_url = tomllib.loads(config.read_text())["redis_url"]
    with rota.Client(redis_url, "demo") as client:
        client.pause("default")
    demo.wait_for(r"producing ended")
    purge = [_ROTA, "queue", "purge", "default", "--yes", "-c", str(config)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
    while demo.process.poll() is None and "FAILED" not in demo.out:
        subprocess.run(purge, env=env, capture_output=True, timeout=DEADLINE_SECONDS, check=False)

    assert demo.wait() == ExitCode.NO
    assert re.search(r"error: every task ran: \d+ of \d+ never done: ask_for_feedback", demo.err)
    assert "nothing was lost" not in demo.out
    assert not demo.left()


def test_without_an_embedded_server_the_demo_names_the_package_to_install() -> None:
    program = "import rota_supervisor.embedded as embedded; embedded.DISTRIBUTION = 'a-wheel-that-nobody-has';"
    program += "import sys; sys.argv = ['rota', 'demo']; from rota_supervisor.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == ExitCode.CONFIG
    assert "pip install 'rota[embedded]'" in done.stderr


READ_ONLY_TEMPORARY = "; ".join(
    f"mount --bind {folder} {folder} && mount -o remount,ro,bind {folder}" for folder in ("/tmp", "/var/tmp")
)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts, which root alone may do")
@pytest.mark.parametrize(
    ("limit", "code", "message"),
    [
        ("ulimit -n 63", ExitCode.CONFIG, "the limit on open files is 63 descriptors, but a fleet needs 64: raise"),
        (
            "mount -t tmpfs -o size=1m small /mnt; TMPDIR=/mnt",
            ExitCode.CONFIG,
            "/mnt has 1 MB free, and the demo needs 23: set TMPDIR",
        ),
        (READ_ONLY_TEMPORARY, ExitCode.TAKEN, "the demo needs a folder to write to: No usable temporary directory"),
    ],
)
def test_demo_under_a_too_small_limit_names_the_required_value(limit: str, code: ExitCode, message: str) -> None:
    command = f'set -e; export TMPDIR= TEMP= TMP=; cd /proc; mount --make-rprivate /; {limit}; exec "$@"'
    words = ["unshare", "-m", "sh", "-c", command, "sh", _ROTA, "demo"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
