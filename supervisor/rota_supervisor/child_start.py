"""How a child of the master starts: what the master does, and what the child does first.

The master starts a child by `posix_spawn` of `python -P -m MODULE`; nothing here forks. A fork of the live event loop
would share its wakeup descriptor and its epoll with the child; a spawned process shares nothing but what is handed
over.

A child is *begun* with the end of its channel and a line to the master's death, and waits for its First, with which all
else comes. Meanwhile it loads its modules: so the first zygote does beside the master. From its first instruction on a
child's signals are blocked, until it has its handlers: what is sent to a whole service would end it. And from before it
can do anything, the kernel is to kill it with the master, see `tie`.

A child writes its stack file when it is asked by STACK_SIGNAL or ends by a fatal error: where its threads are. That is
done by faulthandler's handlers in C, so also while C code holds the interpreter or an import hangs. The file is the
master's memfd, and read there (`rota_supervisor.master.effects.processes`).

`python -P -m rota_supervisor.child_start` is the poller, which needs nothing of its own beside the loop of
`rota.poller`."""

import atexit
import contextlib
import faulthandler
import fcntl
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from rota.child.child_life import EXIT_ORPHANED, EXIT_OTHER_VERSION, STACK_SIGNAL, Life
from rota.child.child_settings import poller_settings_from_json
from rota.child.slot_memory import move_in
from rota.child.slots import Slot
from rota.server.logins import SharedLogins, fleet_login
from rota_supervisor import messages
from rota_supervisor.exits import say_crash
from rota_supervisor.layout import CHANNEL_FD, DEATH_FD, LAST_WORDS, Role
from rota_supervisor.process import die_with_parent, nest_signals_safely, opened_anew, show_title, spawn_python, tie

_MOST_BYTES: Final = 300
_STDERR: Final = 2
_ANSWER_SECONDS: Final = 0.02  # it takes 1 ms, more on a loaded machine
# What faulthandler answers. A fault whose signal is blocked ends the process without a word.
ANSWERED: Final = frozenset({STACK_SIGNAL, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT})

_ABOVE_ALL_TARGETS: Final = max(CHANNEL_FD, DEATH_FD) + 1
_MODULES: Final = {
    Role.EXPORTER: "rota_supervisor.exporter.service",
    Role.POLLER: "rota_supervisor.child_start",
    Role.ZYGOTE: "rota_supervisor.zygote",
}


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
    if descriptors.login is not None and descriptors.refused is not None:
        fleet_login.shared = SharedLogins(descriptors.login, descriptors.refused)
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


# The master's side


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
            pid = _spawn(_MODULES[role], {CHANNEL_FD: theirs.fileno(), DEATH_FD: line})
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
        return spawn_python(["-m", module], [stdin, *handed_over], blocked=signal.valid_signals())


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


# The poller


def main() -> int:
    """Run a poller until it is told to leave; return its exit code."""
    from rota.poller.poller_loop import run_poller  # noqa: PLC0415 - the other children do without

    entrance = enter(os.getpid())
    first = entrance.first
    settings = poller_settings_from_json(json.dumps(first.settings))
    show_title("poller", settings.server.namespace)
    bell_fd = entrance.descriptors.bell
    return run_poller(settings, Life(first.node, first.slot, entrance.slot, first.nonce, "", DEATH_FD, bell_fd))


if __name__ == "__main__":
    sys.exit(main())
