"""A child's side of its stack file."""

import subprocess
import sys

LEAVES = """
import atexit, os, signal
from rota.child.signals import STACK_SIGNAL
from rota_supervisor.stack_file import leave_none_at_the_end, leave_stacks_in

atexit.register(lambda: print(STACK_SIGNAL in signal.pthread_sigmask(signal.SIG_BLOCK, ())))  # the last one called
leave_stacks_in(None)
leave_none_at_the_end()
os.kill(os.getpid(), STACK_SIGNAL)
"""


def test_a_child_that_leaves_is_not_ended_by_the_question_where_it_is() -> None:
    done = subprocess.run([sys.executable, "-c", LEAVES], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n")
    assert "most recent call first" in done.stderr
