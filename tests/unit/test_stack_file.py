"""A child's side of its stack file."""

import subprocess
import sys

LEAVES = """
import atexit, os, signal
from rota.child.signals import STACK_SIGNAL
from rota_supervisor.stack_file import hear_nothing_at_the_end, leave_stacks_in

heard = {STACK_SIGNAL, signal.SIGTERM, signal.SIGHUP}
atexit.register(lambda: print(not heard - signal.pthread_sigmask(signal.SIG_BLOCK, ())))  # the last one called
leave_stacks_in(None)
hear_nothing_at_the_end()
os.kill(os.getpid(), STACK_SIGNAL)
"""


def test_a_child_that_leaves_is_ended_neither_by_the_question_where_it_is_nor_by_another_term() -> None:
    done = subprocess.run([sys.executable, "-c", LEAVES], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n")
    assert "most recent call first" in done.stderr
