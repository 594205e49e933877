"""The start of the master's children: the steps of the master, and the first steps of the child.

The master starts a child by `posix_spawn` of `python -P -m MODULE`. This module never forks, because a forked child
would share the wakeup descriptor and the epoll of the master's event loop. A spawned process shares only the
descriptors that it is given.

At first, a child has only its end of a channel and a descriptor that reports the master's death. It loads its modules
and then waits for its first message, which contains everything else that it needs. In this way, the first zygote can
load its modules while the master loads its own. All signals of a child are blocked from its first instruction until its
handlers are installed, because otherwise a signal to the whole service would end the child. Before the child runs its
first instruction, the master makes the kernel kill the child if the master dies: see `tie`.

A child writes the stacks of its threads to its stack file when it receives STACK_SIGNAL or ends with a fatal error. The
handlers of faulthandler do this in C, so the stacks are written even if C code holds the interpreter lock or an import
hangs. The file is a memfd that the master has created and reads (`rota_supervisor.master.effects.processes`).

`python -P -m rota_supervisor.child_start` runs the poller. After the first steps, which are the same for every child, a
poller only runs the loop of `rota.poller`, so it needs no start module of its own.
"""

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

from rota.child.child_process import EXIT_ORPHANED, EXIT_OTHER_VERSION, STACK_SIGNAL, ChildProcess
from rota.child.child_settings import poller_settings_from_json
from rota.child.slot_memory import enter_slot
from rota.child.slots import Slot
from rota.server.logins import SharedLogins, fleet_login
from rota_supervisor import messages
from rota_supervisor.exits import print_crash
from rota_supervisor.layout import CHANNEL_FD, DEATH_FD, EXIT_REASON_MARK, Role
from rota_supervisor.process import die_with_parent, nest_signals_safely, reopened, show_title, spawn_python, tie

_MAX_BYTES: Final = 300
_STDERR: Final = 2
_STACK_SECONDS: Final = 0.02  # how long writing the stacks may take; usually 1 ms, but longer on a loaded machine
# The signals that faulthandler handles. If they were blocked when a fault occurs, the process would end without any
# output.
HANDLED_SIGNALS: Final = frozenset(
    {STACK_SIGNAL, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}
)

_ABOVE_ALL_TARGETS: Final = max(CHANNEL_FD, DEATH_FD) + 1
MODULES: Final = {
    Role.EXPORTER: "rota_supervisor.exporter.service",
    Role.POLLER: "rota_supervisor.child_start",
    Role.ZYGOTE: "rota_supervisor.zygote",
}


@dataclass(frozen=True, slots=True)
class EnteredChild:
    """A child that has received its first message. Unless it is an exporter, it has closed the descriptor for the
    memory of the slots."""

    channel: socket.socket
    first: messages.First
    descriptors: messages.Descriptors  # the descriptors that arrived with the first message
    slot: Slot
    process_table: memoryview  # the process table of all slots, read-only


def enter(pid: int) -> EnteredChild:
    """Wait for the first message of the master, and enter the slot that it assigns to this process, whose pid is `pid`.
    Raises SystemExit if the master has died, runs another version of this package, or has assigned the slot to another
    process in the meantime."""
    sys.excepthook = print_crash
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
    block_signals_at_exit()
    # The threads of an exporter do not stop while the handler runs, so it is not safe to read their frames.
    leave_stacks_in(descriptors.stack, all_threads=first.role != Role.EXPORTER)
    mapped = enter_slot(descriptors.slots, first.slot, first.nonce, pid, for_forks=False)
    if mapped is None:
        sys.exit(EXIT_ORPHANED)
    if first.role != Role.EXPORTER:  # The exporter reads the slots of all processes.
        os.close(descriptors.slots)
    return EnteredChild(channel, first, descriptors, mapped.slot, mapped.process_table)


# Stack files


def leave_stacks_in(fd: int | None, *, all_threads: bool = True) -> None:
    """Install the handlers that write stacks to the file `fd` on request or after a fatal error, and unblock the
    signals that they handle. If `fd` is None, the stacks are written to stderr. Without a handler, STACK_SIGNAL would
    end the process.

    With `all_threads`, the handler also reads the frames of the other threads. This is dangerous, because the handler
    holds no lock. If a running thread frees a frame in the meantime, the process ends with SIGSEGV.
    """
    target = _STDERR if fd is None else fd
    faulthandler.enable(file=target)
    nest_signals_safely()
    faulthandler.register(STACK_SIGNAL, file=target, all_threads=all_threads)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED_SIGNALS)


def write_exit_reason(fd: int | None, reason: str) -> None:
    """Write one line to the stack file of this process, with the reason for its exit. Do nothing if it has no stack
    file."""
    if fd is None:
        return
    with contextlib.suppress(OSError):  # The application may have closed the file.
        os.write(fd, f"{EXIT_REASON_MARK}{' '.join(reason.split())}".encode(errors="replace")[:_MAX_BYTES] + b"\n")


def block_signals_at_exit() -> None:
    """Make this process block all signals when the interpreter shuts down.

    The shutdown removes the signal handlers. After that, STACK_SIGNAL or a second SIGTERM would end a process that is
    about to exit normally. Call this function before `leave_stacks_in`, because faulthandler restores the earlier
    handlers at the end.
    """
    signal.signal(STACK_SIGNAL, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGINT):
        # For the other threads, in which signals are not blocked.
        atexit.register(signal.signal, number, signal.SIG_IGN)
    atexit.register(signal.pthread_sigmask, signal.SIG_BLOCK, signal.valid_signals())
    atexit.register(_stop_writing_stacks)  # registered last, so it runs first


def _stop_writing_stacks() -> None:
    """Ignore STACK_SIGNAL, and give a thread that is handling it time to finish. The handler, in that other thread,
    also reads the stack of the calling thread. It would crash if the interpreter removed that stack in the meantime."""
    faulthandler.unregister(STACK_SIGNAL)
    if threading.active_count() > 1:
        time.sleep(_STACK_SECONDS)


def leave_no_stacks() -> None:
    """Undo a call of `leave_stacks_in` that was made before this process was forked. From now on, STACK_SIGNAL is
    blocked. If it arrives, it stays pending until this process unblocks it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {STACK_SIGNAL})
    faulthandler.unregister(STACK_SIGNAL)
    signal.signal(STACK_SIGNAL, signal.SIG_DFL)  # An ignored signal would not stay pending.
    faulthandler.disable()


# The master's side


class SpawnedChild(NamedTuple):
    """A child that was just started, and the master's end of its channel."""

    pid: int
    channel: socket.socket


class Spawner:
    """A launcher of the master's children. When the master dies, the death pipe makes the kernel kill these
    children."""

    def __init__(self) -> None:
        self._death_pipe: tuple[int, ...] = os.pipe2(os.O_CLOEXEC)
        self._prestarted: dict[Role, SpawnedChild] = {}

    def prestart(self, role: Role) -> None:
        """Start a child that will be needed soon, so that the child can load its modules in advance. Errors are
        ignored, because `start` tries again."""
        with contextlib.suppress(OSError):
            self._prestarted[role] = _start(role, self._death_pipe[0])

    def start(self, role: Role) -> SpawnedChild:
        """Start a child with this role, or return the child that was started in advance.

        Raises OSError if the kernel refuses to start a process (EAGAIN, ENOMEM). In that case, no process or descriptor
        is left behind.
        """
        return self._prestarted.pop(role, None) or _start(role, self._death_pipe[0])

    def close(self) -> None:
        """Make the kernel kill all remaining children, and reap the children that were started in advance but never
        used. This method can be called twice."""
        for fd in self._death_pipe:
            os.close(fd)
        self._death_pipe = ()
        for child in self._prestarted.values():
            child.channel.close()
            os.waitpid(child.pid, 0)
        self._prestarted.clear()


def greet(child: SpawnedChild, first: messages.First, descriptors: messages.Descriptors) -> None:
    """Send a child its first message. Raises OSError, for example if the child has died. In that case, the channel is
    closed, so that a child that is still alive exits."""
    try:
        messages.send_first(child.channel, first, descriptors)  # The socket keeps the message until the child reads it.
    except OSError:
        child.channel.close()
        raise
    child.channel.setblocking(False)


def _start(role: Role, death_fd: int) -> SpawnedChild:
    """Start a child in a separate session. `death_fd` is the read end of the death pipe."""
    ours, theirs = messages.pair()
    try:
        with reopened(death_fd) as line:  # Each child needs its own open file description: see `tie`.
            pid = _spawn(MODULES[role], {CHANNEL_FD: theirs.fileno(), DEATH_FD: line})
            tie(line, pid)
        return SpawnedChild(pid, ours)
    except BaseException:  # The channel must not leak after any error.
        ours.close()
        raise
    finally:
        theirs.close()


def _spawn(module: str, targets: Mapping[int, int]) -> int:
    """Run a module in a new process, and return its pid. `targets` maps descriptor numbers in the child to descriptors
    of this process."""
    with _moved_up(targets) as sources:
        stdin = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        handed_over = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in sources.items()]
        return spawn_python(["-m", module], [stdin, *handed_over], blocked=signal.valid_signals())


@contextlib.contextmanager
def _moved_up(targets: Mapping[int, int]) -> Iterator[dict[int, int]]:
    """Copy the descriptors to numbers above all targets, and yield a mapping from each target to its copy. Without
    this, the dup2 to one target could overwrite a descriptor that is still to be copied to another target."""
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
    """Run a poller until it receives a stop signal, and return its exit code."""
    from rota.poller.poller_loop import run_poller  # noqa: PLC0415 - the other children do not need it

    entered = enter(os.getpid())
    first = entered.first
    settings = poller_settings_from_json(json.dumps(first.settings))
    show_title("poller", settings.server.namespace)
    bell_fd = entered.descriptors.bell
    return run_poller(settings, ChildProcess(first.node, first.slot, entered.slot, first.nonce, "", DEATH_FD, bell_fd))


if __name__ == "__main__":
    sys.exit(main())
