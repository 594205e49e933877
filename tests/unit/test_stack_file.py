"""The stack file, as a child uses it."""

import os
import subprocess
import sys

from rota.child.child_process import STACK_SIGNAL

LEAVES = """
import atexit, os, signal
from rota.child.child_process import STACK_SIGNAL
from rota_supervisor.child_start import block_signals_at_exit, leave_stacks_in

heard = {STACK_SIGNAL, signal.SIGTERM, signal.SIGHUP}
atexit.register(lambda: print(not heard - signal.pthread_sigmask(signal.SIG_BLOCK, ())))  # the last one called
block_signals_at_exit()
leave_stacks_in(None)
os.kill(os.getpid(), STACK_SIGNAL)
"""

LEAVES_A_THREAD = """
import atexit, threading, time
from rota_supervisor.child_start import block_signals_at_exit, leave_stacks_in

atexit.register(print, "leaving", flush=True)  # the last one called
block_signals_at_exit()
leave_stacks_in(None)
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()  # it takes what the main thread blocks
"""


def test_an_exiting_child_survives_a_stack_request_and_another_term() -> None:
    done = subprocess.run([sys.executable, "-c", LEAVES], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n")
    assert "most recent call first" in done.stderr


def test_an_exiting_child_with_a_thread_survives_stack_requests() -> None:
    for _ in range(10):
        with subprocess.Popen(
            [sys.executable, "-c", LEAVES_A_THREAD], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"leaving\n"
            while child.poll() is None:
                os.kill(child.pid, STACK_SIGNAL)
            assert child.returncode == 0
