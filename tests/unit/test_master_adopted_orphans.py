"""Adopted orphans: processes that dead workers have left behind. The master kills them, and continues whatever happens
to them.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from rota_supervisor.master.shell.reaper import Traces, kill_left_behind

CAP_KILL: Final = 5
PR_CAPBSET_DROP: Final = 24
# For example, a process that a worker started with sudo. It is in the session of the dead worker but runs as another
# user, so the master is not permitted to kill it.
OTHER_USER = f"""
import ctypes, os, subprocess, sys
if sys.argv[1:] != ["bounded"]:
    ctypes.CDLL(None).prctl({PR_CAPBSET_DROP}, {CAP_KILL})
    os.execv(sys.executable, [sys.executable, __file__, "bounded"])
from rota_supervisor.master.shell.reaper import Traces, kill_left_behind
left = subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True, user=65534)
kill_left_behind([Traces(left.pid, "", "rota-stack-8-1")], ())
left.stdin.close()
print("ended by itself:", left.wait(30) == 0)
"""


@pytest.fixture
def left() -> "Iterator[subprocess.Popen[bytes]]":
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as started:
        yield started
        started.kill()


def test_processes_in_the_session_of_a_dead_worker_are_killed(left: "subprocess.Popen[bytes]") -> None:
    dead = [Traces(left.pid, "", "rota-stack-8-1")]
    kill_left_behind([Traces(left.pid + 1, "", "rota-stack-8-1")], ())
    kill_left_behind(dead, {left.pid})
    assert left.poll() is None
    kill_left_behind(dead, ())
    assert left.wait(30) == -signal.SIGKILL


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a process of another user")
def test_a_process_of_another_user_is_not_killed(tmp_path: Path) -> None:
    script = tmp_path / "looks.py"
    script.write_text(OTHER_USER)
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout == "ended by itself: True\n", ran.stderr
