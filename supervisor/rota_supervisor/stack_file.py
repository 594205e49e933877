"""A child's side of its stack file: where its threads are, when it is asked by STACK_SIGNAL or ends by a fatal error.

It is written by faulthandler's handlers in C, so also while C code holds the interpreter or an import hangs. The
file is the master's memfd; what stands in it is read there (`rota_supervisor.master.children.stacks`).
"""

import atexit
import contextlib
import faulthandler
import os
import signal
from typing import Final

from rota.child.signals import STACK_SIGNAL

LAST_WORDS: Final = "Last words: "
_MOST_BYTES: Final = 300
_STDERR: Final = 2
# What faulthandler answers. A fault whose signal is blocked ends the process without a word.
ANSWERED: Final = frozenset({STACK_SIGNAL, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT})


def leave_stacks_in(fd: int | None) -> None:
    """From now on, and let the signals in; on stderr when there is no file, as STACK_SIGNAL would end the process."""
    target = _STDERR if fd is None else fd
    faulthandler.enable(file=target)
    faulthandler.register(STACK_SIGNAL, file=target, all_threads=True)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ANSWERED)


def leave_last_words(fd: int | None, words: str) -> None:
    """Say in a line why this process leaves."""
    if fd is None:
        return
    with contextlib.suppress(OSError):  # the application may have closed it
        os.write(fd, f"{LAST_WORDS}{' '.join(words.split())}".encode(errors="replace")[:_MOST_BYTES] + b"\n")


def leave_none_at_the_end() -> None:
    """Have this process block STACK_SIGNAL when the interpreter shuts down: faulthandler's handler goes with that, and
    the signal would end a process that was about to leave by itself."""
    atexit.register(signal.pthread_sigmask, signal.SIG_BLOCK, {STACK_SIGNAL})


def leave_no_stacks() -> None:
    """Undo `leave_stacks_in`, which may be that of the process this one was forked from. What is asked then waits."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {STACK_SIGNAL})
    faulthandler.unregister(STACK_SIGNAL)
    faulthandler.disable()
