"""Start the master's own children: `posix_spawn` of `python -P -m rota_supervisor.CHILD`. Nothing here forks.

A fork of the live event loop would share its wakeup descriptor and its epoll with the child; a spawned
process shares nothing but what is handed over. `-P`, because a `selectors.py` in the current directory
would otherwise stand in for the library's.

From its first instruction on a child's signals are blocked, until it has its handlers: what is sent to a whole service
would end it. And from before it can do anything, the kernel is to kill it with the master, see `tie`.
"""

import contextlib
import fcntl
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from rota_supervisor import messages
from rota_supervisor.layout import BELL_FD, CHANNEL_FD, DEATH_FD, LISTEN_FD, SLOTS_FD, STACK_FD
from rota_supervisor.process import opened_anew, tie

_ABOVE_ALL_TARGETS: Final = STACK_FD + 1
_CATCHABLE: Final = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}


class InheritedFds(NamedTuple):
    """The descriptors of the master that every child inherits: slots, read end of the death pipe, bell."""

    slots_fd: int
    death_fd: int
    bell_fd: int


class SpawnedChild(NamedTuple):
    """A child just started and the master's end of its channel, not blocking."""

    pid: int
    channel: socket.socket


def spawn(
    first: messages.First, lines: InheritedFds, listen_fd: int | None = None, stack_fd: int | None = None
) -> SpawnedChild:
    """Start the child of `first.role` in a session of its own and send it `first`, which says if there is a `stack_fd`.

    Raises OSError when the kernel refuses (EAGAIN, ENOMEM), with nothing left behind.
    """
    ours, theirs = messages.pair()
    targets = {
        CHANNEL_FD: theirs.fileno(),
        SLOTS_FD: lines.slots_fd,
        BELL_FD: lines.bell_fd,
        LISTEN_FD: listen_fd,
        STACK_FD: stack_fd,
    }
    try:
        messages.send(ours, first)  # it waits in the socket until the child reads it
        ours.setblocking(False)
        with opened_anew(lines.death_fd) as line:  # one of its own, as the kernel kills one group for each
            pid = _spawn(f"rota_supervisor.{first.role}", {**targets, DEATH_FD: line})
            tie(line, pid)
        return SpawnedChild(pid, ours)
    except BaseException:  # whatever it was, the channel must not leak
        ours.close()
        raise
    finally:
        theirs.close()


def _spawn(module: str, targets: Mapping[int, int | None]) -> int:
    """`targets`: by the number that it is to have, a descriptor of ours, None for none."""
    with _moved_up(targets) as sources:
        stdin = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        handed_over = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in sources.items()]
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-P", "-m", module],
            os.environ,
            file_actions=[stdin, *handed_over],
            setsid=True,
            setsigmask=signal.valid_signals(),
            setsigdef=_CATCHABLE,
        )


@contextlib.contextmanager
def _moved_up(targets: Mapping[int, int | None]) -> Iterator[dict[int, int]]:
    """Copies above every target, so that no dup2 overwrites a source that is still to come."""
    copies: dict[int, int] = {}
    try:
        for target, source in targets.items():
            if source is not None:
                copies[target] = fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, _ABOVE_ALL_TARGETS)
        yield copies
    finally:
        for copy in copies.values():
            os.close(copy)
