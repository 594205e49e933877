"""What every spawned child does first: read its first packet, tie its life to the master's, leave stacks when asked.

A child writes its stack file when it is asked by STACK_SIGNAL or ends by a fatal error: where its threads are. That is
done by faulthandler's handlers in C, so also while C code holds the interpreter or an import hangs. The file is the
master's memfd, and read there (`rota_supervisor.master.effects.processes`).
"""

import atexit
import contextlib
import faulthandler
import os
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass
from typing import Final

from rota.child.child_life import EXIT_ORPHANED, EXIT_OTHER_VERSION, STACK_SIGNAL
from rota.child.slot_memory import move_in
from rota.child.slots import Slot
from rota_supervisor import messages
from rota_supervisor.exits import say_crash
from rota_supervisor.layout import CHANNEL_FD, LAST_WORDS, Role
from rota_supervisor.process import die_with_parent, nest_signals_safely

_MOST_BYTES: Final = 300
_STDERR: Final = 2
_ANSWER_SECONDS: Final = 0.02  # it takes 1 ms, more on a loaded machine
# What faulthandler answers. A fault whose signal is blocked ends the process without a word.
ANSWERED: Final = frozenset({STACK_SIGNAL, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT})


@dataclass(frozen=True, slots=True)
class Entrance:
    """A child that has come in: its channel, its first message and what came along, its slot, and the roster of all for
    reading. The memory of all slots is closed but for an exporter."""

    channel: socket.socket
    first: messages.First
    descriptors: messages.Descriptors
    slot: Slot
    roster: memoryview


def enter(pid: int) -> Entrance:
    """Come in as the process `pid`. Leaves by SystemExit when the master is gone, of another version, or
    has given the slot away."""
    sys.excepthook = say_crash
    channel = socket.socket(fileno=CHANNEL_FD)
    channel.set_inheritable(False)
    try:
        first, descriptors = messages.receive_first(channel)
    except EOFError:
        sys.exit(EXIT_ORPHANED)
    except messages.WrongAbi as error:
        sys.stderr.write(f"rota: error: {error}\n")
        sys.exit(EXIT_OTHER_VERSION)
    if not die_with_parent(first.master_pid):
        sys.exit(EXIT_ORPHANED)
    hear_nothing_at_the_end()
    leave_stacks_in(descriptors.stack, all_threads=first.role != Role.EXPORTER)  # its other threads never rest
    place = move_in(descriptors.slots, first.slot, first.nonce, pid, for_forks=False)
    if place is None:
        sys.exit(EXIT_ORPHANED)
    if first.role != Role.EXPORTER:  # which looks at the others
        os.close(descriptors.slots)
    return Entrance(channel, first, descriptors, place.slot, place.roster)


# Stack files


def leave_stacks_in(fd: int | None, *, all_threads: bool = True) -> None:
    """From now on, and let the signals in; on stderr when there is no file, as STACK_SIGNAL would end the process.

    With `all_threads` the handler also reads the frames of the other threads. It holds no lock, so a thread that is
    running may free a frame meanwhile, and the process ends by SIGSEGV.
    """
    target = _STDERR if fd is None else fd
    faulthandler.enable(file=target)
    nest_signals_safely()
    faulthandler.register(STACK_SIGNAL, file=target, all_threads=all_threads)
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
    atexit.register(_answer_no_more)  # first of all


def _answer_no_more() -> None:
    """Ignore STACK_SIGNAL, and let a thread finish that is answering it: its handler walks the stack of this one, and
    would crash when that is taken down meanwhile."""
    faulthandler.unregister(STACK_SIGNAL)
    if threading.active_count() > 1:
        time.sleep(_ANSWER_SECONDS)


def leave_no_stacks() -> None:
    """Undo `leave_stacks_in`, which may be that of the process this one was forked from. What is asked then waits."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {STACK_SIGNAL})
    faulthandler.unregister(STACK_SIGNAL)
    signal.signal(STACK_SIGNAL, signal.SIG_DFL)  # as one that is ignored would not wait
    faulthandler.disable()
