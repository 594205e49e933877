"""A child's side of its stack file: where its threads are, when it is asked by STACK_SIGNAL or ends by a fatal error.

It is written by faulthandler's handlers in C, so also while C code holds the interpreter or an import hangs. The
file is the master's memfd; what stands in it is read there (`rota_supervisor.master.effects.stacks`).
"""

import atexit
import contextlib
import faulthandler
import os
import signal
from typing import Final

from rota.child.signals import STACK_SIGNAL
from rota_supervisor.process import nest_signals_safely

LAST_WORDS: Final = "Last words: "
_MOST_BYTES: Final = 300
_STDERR: Final = 2
# What faulthandler answers. A fault whose signal is blocked ends the process without a word.
ANSWERED: Final = frozenset({STACK_SIGNAL, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT})


def leave_stacks_in(fd: int | None) -> None:
    """From now on, and let the signals in; on stderr when there is no file, as STACK_SIGNAL would end the process."""
    target = _STDERR if fd is None else fd
    faulthandler.enable(file=target)
    nest_signals_safely()
    faulthandler.register(STACK_SIGNAL, file=target, all_threads=True)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ANSWERED)


def leave_last_words(fd: int | None, words: str) -> None:
    """Say in a line why this process leaves."""
    if fd is None:
        return
    with contextlib.suppress(OSError):  # the application may have closed it
        os.write(fd, f"{LAST_WORDS}{' '.join(words.split())}".encode(errors="replace")[:_MOST_BYTES] + b"\n")


def hear_nothing_at_the_end() -> None:
    """Have this process block all signals when the interpreter shuts down: their handlers go with that, and one that
    asks where it is, or asks it to leave once more, would end a process that was about to leave by itself. To be called
    before `leave_stacks_in`, as faulthandler puts back at the end what it found."""
    signal.signal(STACK_SIGNAL, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGINT):
        atexit.register(signal.signal, number, signal.SIG_IGN)  # for the threads that are left, which block none
    atexit.register(signal.pthread_sigmask, signal.SIG_BLOCK, signal.valid_signals())


def leave_no_stacks() -> None:
    """Undo `leave_stacks_in`, which may be that of the process this one was forked from. What is asked then waits."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {STACK_SIGNAL})
    faulthandler.unregister(STACK_SIGNAL)
    signal.signal(STACK_SIGNAL, signal.SIG_DFL)  # as one that is ignored would not wait
    faulthandler.disable()
