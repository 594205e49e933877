"""Linux functions for the parent, the signals and the title of a process, and facts about processes from `/proc`.

`python -P -m rota_supervisor.process PARENT_PID BINARY [ARGUMENT...]` makes its process die together with the parent,
and then executes the command. The embedded server and the fleets of tests are started in this way.
"""

import contextlib
import ctypes
import fcntl
import functools
import gc
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

# Positions in /proc/PID/stat, counted after the name of the command, which may contain spaces and brackets: see
# proc_pid_stat(5).
_PARENT = 1
_USER_TICKS = 11
_SYSTEM_TICKS = 12
_STARTED_TICKS = 19
_RESIDENT_PAGES = 21
_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_GONE: Final = (FileNotFoundError, ProcessLookupError)
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
# The library is loaded once, so that workers share the zygote's copy. Otherwise each worker would need 0.2 MB for its
# own copy.
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.prctl.argtypes = (ctypes.c_int, *(ctypes.c_ulong,) * 4)
_LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
_LIBC.mmap.restype = ctypes.c_void_p
_PROT_NONE: Final = 0
_STDERR: Final = 2
_MAP_FAILED: Final = ctypes.c_void_p(-1).value
CATCHABLE: Final = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
_SIGNALS: Final = 64
_RECORD_BYTES: Final = 128  # the size of the kernel's record of a signal, which begins with the signal's number
_NUMBER_BYTES: Final = 4
# Handlers of different signals can nest, each at most once. For each handler, the kernel saves the registers (3.4 kB
# with AVX-512 and 11 kB with AMX), and the handler itself takes less than 1 kB. Unused pages take no memory.
_SIGNAL_STACK_BYTES: Final = _SIGNALS * 16 * 1024
_KEEP_ENVIRONMENT: Final = "SPT_NOENV"  # setproctitle reads this variable when it determines the available space
# The errors that occur if a signal is sent to a process that has ended, or that now belongs to another user, for
# example because of sudo.
UNREACHABLE: Final = (ProcessLookupError, PermissionError)


@dataclass(frozen=True, slots=True)
class Usage:
    """The resource usage of a process."""

    resident_bytes: int
    cpu_seconds: float  # the CPU time since the start of the process
    open_fds: int | None  # None if the kernel does not permit reading this number


def usage_of(pid: int) -> Usage | None:
    """Return the resource usage of the process `pid`, or None if it has ended."""
    try:
        numbers = _stat(pid)
        return Usage(numbers[_RESIDENT_PAGES] * _PAGE_BYTES, _cpu_seconds(numbers), _open_fds(pid))
    except _GONE:
        return None


def parent_of(pid: int) -> int | None:
    """Return the pid of the process's parent, or None if the process has ended."""
    try:
        return _stat(pid)[_PARENT]
    except _GONE:
        return None


def started_at(pid: int) -> float:
    """Return the Unix time at which the process started, based on the current wall clock, with a resolution of 10 ms.
    Raises OSError if the process has ended."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + _stat(pid)[_STARTED_TICKS] / _TICKS_A_SECOND


def cpu_seconds_of(pid: int) -> float:
    """Return the user and system time of the process, in seconds, or 0 if the process no longer exists. The process may
    be a zombie."""
    try:
        numbers = _stat(pid)
    except _GONE:
        return 0.0
    return _cpu_seconds(numbers)


def _cpu_seconds(numbers: list[int]) -> float:
    return (numbers[_USER_TICKS] + numbers[_SYSTEM_TICKS]) / _TICKS_A_SECOND


def _stat(pid: int) -> list[int]:
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return [0, *map(int, fields[1:])]  # The first field is the state, which is a letter.


def _open_fds(pid: int) -> int | None:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - takes a third of the time, once per process and scrape
    except PermissionError:
        return None


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}, {value}): {os.strerror(code)}")


def spawn_python(arguments: Sequence[str], actions: Sequence[tuple[Any, ...]], blocked: Iterable[int] = ()) -> int:
    """Start Python with these arguments by `posix_spawn`, in a separate session, and return the pid. `actions` are
    passed as `file_actions`. The signals in `blocked` are blocked in the new process, and all other signals have their
    default handlers. Raises OSError.

    The option `-P` is set, because otherwise a `selectors.py` in the current directory would replace the module of the
    standard library.
    """
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", *arguments],
        os.environ,
        file_actions=actions,
        setsid=True,
        setsigmask=blocked,
        setsigdef=CATCHABLE,
    )


def become_subreaper() -> None:
    """Make this process the parent of its descendants whose own parent has died. Raises OSError."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> bool:
    """Make the kernel send SIGKILL to this process when its parent dies. Returns False if `parent` has already died."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


def keep_descriptors_private() -> None:
    """Prevent children from inheriting descriptors that the parent of this process left open."""
    for entry in list(Path("/proc/self/fd").iterdir()):
        if int(entry.name) > _STDERR:
            with contextlib.suppress(OSError):  # The descriptor with which the folder was listed is closed by now.
                os.set_inheritable(int(entry.name), False)


@contextlib.contextmanager
def reopened(fd: int) -> Iterator[int]:
    """Open the read end of a pipe a second time for the duration of the block, and yield the new descriptor. `tie`
    changes settings of the read end. A descriptor that is opened again has its own settings, whereas a copy would share
    them."""
    opened = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield opened
    finally:
        os.close(opened)


def tie(line: int, group: int) -> None:
    """Make the kernel send SIGKILL to the process group `group` when the last write end of a pipe is closed. `line` is
    a descriptor of the pipe's read end.

    This works as long as any process has `line` or a copy of it open. Unlike PDEATHSIG, the signal can be requested by
    another process, even for a child that was stopped before its first instruction.
    """
    fcntl.fcntl(line, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(line, fcntl.F_SETOWN, -group)
    fcntl.fcntl(line, fcntl.F_SETFL, fcntl.fcntl(line, fcntl.F_GETFL) | os.O_ASYNC)


def outlive_parent(line: int) -> None:
    """Let this process live on when its parent dies. This undoes `die_with_parent`, and makes the signal that `tie` has
    requested a SIGCONT instead of a SIGKILL. If this process is stopped when its parent dies, the SIGCONT continues it,
    so that it notices the death."""
    _prctl(_PR_SET_PDEATHSIG, 0)
    fcntl.fcntl(line, fcntl.F_SETSIG, signal.SIGCONT)


def wake_with_parent() -> None:
    """Make the kernel send SIGCONT to this process when its parent dies, so that it notices the death even if it was
    stopped."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def keep_mapped(fd: int) -> None:
    """Map a page of a file permanently, without access to the page. All forked copies of this process inherit the
    mapping, and lose it only when they execute another program. The mapping therefore shows from which process they
    were forked, even if they close all files. It takes no memory and no descriptor."""
    _LIBC.mmap(None, mmap.PAGESIZE, _PROT_NONE, mmap.MAP_SHARED, fd, 0)


def give_memory_back() -> None:
    """Return memory to the kernel that was needed only for the imports and the checks at the start of this process, and
    is unused now (0.2 MB)."""
    gc.collect()
    trim = getattr(_LIBC, "malloc_trim", None)  # only glibc has this function
    if trim is not None:
        trim(0)


class _SignalStack(ctypes.Structure):
    """The kernel's `stack_t`."""

    _fields_ = (("at", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


def nest_signals_safely() -> None:
    """Give this thread a signal stack that is large enough for the handlers of all signals at once.

    Call this function after each `faulthandler.enable`, which installs a stack of 12 kB. Python's own handlers also run
    on that stack, and each of them blocks only its own signal. On such a small stack, a process that was stopped would
    crash if it continued with four kinds of signals pending.
    """
    if _LIBC.sigaltstack(ctypes.byref(_signal_stack()), None) != 0:
        raise OSError(ctypes.get_errno(), "sigaltstack")


@functools.cache
def _signal_stack() -> _SignalStack:
    # The stack is created once and never freed. A forked process has a copy at the same address.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_STACK
    at = _LIBC.mmap(None, _SIGNAL_STACK_BYTES, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if at == _MAP_FAILED:
        raise OSError(ctypes.get_errno(), "mmap")
    return _SignalStack(at, 0, _SIGNAL_STACK_BYTES)


def open_inbox(numbers: Iterable[int]) -> int:
    """Return a descriptor from which these signals can be read as data. The signals must be blocked. Then no handler
    runs, and no signal is lost, regardless of how many signals arrive and in which order."""
    wanted = ctypes.create_string_buffer(_RECORD_BYTES)  # as large as the `sigset_t` of any C library
    _LIBC.sigemptyset(wanted)
    for number in numbers:
        _LIBC.sigaddset(wanted, number)
    inbox: int = _LIBC.signalfd(-1, wanted, os.O_NONBLOCK | os.O_CLOEXEC)
    if inbox < 0:
        raise OSError(ctypes.get_errno(), "signalfd")
    return inbox


def take_from(inbox: int) -> list[int]:
    """Return the signals that have arrived, without duplicates, the lowest number first. Raises BlockingIOError if
    there are none."""
    records = os.read(inbox, _SIGNALS * _RECORD_BYTES)
    starts = range(0, len(records), _RECORD_BYTES)
    return [int.from_bytes(records[at : at + _NUMBER_BYTES], sys.byteorder) for at in starts]


# Titles


def show_title(what: str, namespace: str) -> None:
    """Set the title that `ps` and `top` show, for example `rota: worker default 12 (shop)` for the worker in slot 12.

    A title overwrites the command line in memory, and is cut to the length of the command line. The environment, which
    follows in memory, therefore stays readable in `/proc/PID/environ`. The first call must come before any change of
    the environment, because the available length is determined from the environment. A title contains no secrets,
    because all users of the machine can read it. A title does not contain the name of the running task either, because
    setting it for each task would take longer than the rest of an attempt.
    """
    _setter()(f"rota: {what} ({namespace})")


@functools.cache
def _setter() -> Callable[[str], None]:
    import setproctitle  # noqa: PLC0415 - only processes with a title load it, and `logging` with it

    chosen = os.environ.get(_KEEP_ENVIRONMENT)
    os.environ[_KEEP_ENVIRONMENT] = "1"
    setproctitle.getproctitle()
    if chosen is None:
        del os.environ[_KEEP_ENVIRONMENT]
    return setproctitle.setproctitle


def _main() -> None:
    parent, *command = sys.argv[1:]
    if not die_with_parent(int(parent)):
        sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 - no shell: it is the command itself


if __name__ == "__main__":
    _main()
