"""Start the master's own children: `posix_spawn` of `python -P -m rota_supervisor.CHILD`. Nothing here forks.

A fork of the live event loop would share its wakeup descriptor and its epoll with the child; a spawned
process shares nothing but what is handed over. `-P`, because a `selectors.py` in the current directory
would otherwise stand in for the library's.

A child is *begun* with the end of its channel and a line to the master's death, and waits for its First, with which all
else comes. Meanwhile it loads its modules: so the first zygote does beside the master.

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
from rota_supervisor.layout import CHANNEL_FD, DEATH_FD, Role
from rota_supervisor.process import opened_anew, tie

_ABOVE_ALL_TARGETS: Final = max(CHANNEL_FD, DEATH_FD) + 1
_CATCHABLE: Final = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}


class SpawnedChild(NamedTuple):
    """A child just started, and the master's end of its channel."""

    pid: int
    channel: socket.socket


class Spawner:
    """Begins the children of a master. The kernel kills them when this process is gone, by its death pipe."""

    def __init__(self) -> None:
        self._death_pipe: tuple[int, ...] = os.pipe2(os.O_CLOEXEC)
        self._ahead: dict[Role, SpawnedChild] = {}

    def begin_ahead(self, role: Role) -> None:
        """Begin a child that will be asked for, so that it loads its modules meanwhile. A refusal is found out then."""
        with contextlib.suppress(OSError):
            self._ahead[role] = _begin(role, self._death_pipe[0])

    def begin(self, role: Role) -> SpawnedChild:
        """Start a child of this role, or return the one that was begun ahead.

        Raises OSError when the kernel refuses (EAGAIN, ENOMEM), with nothing left behind.
        """
        return self._ahead.pop(role, None) or _begin(role, self._death_pipe[0])

    def close(self) -> None:
        """Have the kernel kill whoever is left, and see the end of those that nobody asked for. May be repeated."""
        for fd in self._death_pipe:
            os.close(fd)
        self._death_pipe = ()
        for child in self._ahead.values():
            child.channel.close()
            os.waitpid(child.pid, 0)
        self._ahead.clear()


def greet(child: SpawnedChild, first: messages.First, descriptors: messages.Descriptors) -> None:
    """Send a child that was begun what it waits for. Raises OSError when it is gone; without its channel it leaves."""
    try:
        messages.send_first(child.channel, first, descriptors)  # it waits in the socket until the child reads it
    except OSError:
        child.channel.close()
        raise
    child.channel.setblocking(False)


def _begin(role: Role, death_fd: int) -> SpawnedChild:
    """Start a child in a session of its own. `death_fd`: read end of the death pipe."""
    ours, theirs = messages.pair()
    try:
        with opened_anew(death_fd) as line:  # one of its own, as the kernel kills one group for each
            pid = _spawn(f"rota_supervisor.{role.value}", {CHANNEL_FD: theirs.fileno(), DEATH_FD: line})
            tie(line, pid)
        return SpawnedChild(pid, ours)
    except BaseException:  # whatever it was, the channel must not leak
        ours.close()
        raise
    finally:
        theirs.close()


def _spawn(module: str, targets: Mapping[int, int]) -> int:
    """`targets`: by the number that it is to have, a descriptor of ours."""
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
def _moved_up(targets: Mapping[int, int]) -> Iterator[dict[int, int]]:
    """Copies above every target, so that no dup2 overwrites a source that is still to come."""
    copies: dict[int, int] = {}
    try:
        for target, source in targets.items():
            copies[target] = fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, _ABOVE_ALL_TARGETS)
        yield copies
    finally:
        for copy in copies.values():
            os.close(copy)
