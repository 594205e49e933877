"""What Linux offers a process for its place in the family, its signals and its title, and what `/proc` says of one.

`python -P -m rota_supervisor.process PARENT_PID BINARY [ARGUMENT...]` ties its life to its parent's, then becomes the
command: so is a server or a fleet of our own started.
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

# Places in /proc/PID/stat behind the command, whose name may hold blanks and brackets: see proc_pid_stat(5).
_PARENT, _USER_TICKS, _SYSTEM_TICKS, _STARTED_TICKS, _RESIDENT_PAGES = 1, 11, 12, 19, 21
_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_GONE: Final = (FileNotFoundError, ProcessLookupError)
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
# Found once, so that the workers share what the zygote found: looked up by each it takes 0.2 MB of its own.
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.prctl.argtypes = (ctypes.c_int, *(ctypes.c_ulong,) * 4)
_LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
_LIBC.mmap.restype = ctypes.c_void_p
_PROT_NONE: Final = 0
_STDERR: Final = 2
_MAP_FAILED: Final = ctypes.c_void_p(-1).value
CATCHABLE: Final = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
_SIGNALS: Final = 64
_RECORD_BYTES: Final = 128  # what the kernel says of a signal; its number comes first
_NUMBER_BYTES: Final = 4
# Handlers of different signals nest, each at most once. For each the kernel saves the registers, 3.4 kB with AVX-512
# and 11 kB with AMX, and the handler takes less than 1 kB. Only the pages that are used take memory.
_SIGNAL_STACK_BYTES: Final = _SIGNALS * 16 * 1024
_KEEP_ENVIRONMENT: Final = "SPT_NOENV"  # read by setproctitle once, when it looks for its room
# What signalling a process raises that is gone, or another user's by now, as what sudo runs, and not ours to end.
UNREACHABLE: Final = (ProcessLookupError, PermissionError)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process uses. `cpu_seconds` since it began; `open_fds` None where the kernel does not tell."""

    resident_bytes: int
    cpu_seconds: float
    open_fds: int | None


def usage_of(pid: int) -> Usage | None:
    """Return what the process uses; None when it has just gone."""
    try:
        numbers = _stat(pid)
        return Usage(numbers[_RESIDENT_PAGES] * _PAGE_BYTES, _cpu_seconds(numbers), _open_fds(pid))
    except _GONE:
        return None


def parent_of(pid: int) -> int | None:
    """Return the parent of the process; None when it has gone."""
    try:
        return _stat(pid)[_PARENT]
    except _GONE:
        return None


def started_at(pid: int) -> float:
    """Return the Unix time of the process's start, to 10 ms, as the wall clock has it now. Raises OSError when it has
    gone."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + _stat(pid)[_STARTED_TICKS] / _TICKS_A_SECOND


def cpu_seconds_of(pid: int) -> float:
    """Return the user and system time of the process itself, of a zombie too; 0 when it has gone."""
    try:
        numbers = _stat(pid)
    except _GONE:
        return 0.0
    return _cpu_seconds(numbers)


def _cpu_seconds(numbers: list[int]) -> float:
    return (numbers[_USER_TICKS] + numbers[_SYSTEM_TICKS]) / _TICKS_A_SECOND


def _stat(pid: int) -> list[int]:
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return [0, *map(int, fields[1:])]  # the first is the state, a letter


def _open_fds(pid: int) -> int | None:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - a third of the time, once for each process a scrape
    except PermissionError:
        return None


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}, {value}): {os.strerror(code)}")


def spawn_python(arguments: Sequence[str], actions: Sequence[tuple[Any, ...]], blocked: Iterable[int] = ()) -> int:
    """Start Python with these arguments by `posix_spawn`, in a session of its own, and return its pid. `actions`: its
    `file_actions`; `blocked`: the signals that are blocked in it, all others have their defaults. Raises OSError.

    `-P`, because a `selectors.py` in the current directory would otherwise stand in for the library's.
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
    """Become the parent of descendants whose own parent is gone. Raises OSError."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> bool:
    """Have SIGKILL sent to this process when its parent dies; False when `parent` is no more the parent."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


def keep_to_ourselves() -> None:
    """Mark every descriptor that our parent left open, so that no child inherits it."""
    for entry in list(Path("/proc/self/fd").iterdir()):
        if int(entry.name) > _STDERR:
            with contextlib.suppress(OSError):  # the descriptor of the listing itself
                os.set_inheritable(int(entry.name), False)


@contextlib.contextmanager
def opened_anew(fd: int) -> Iterator[int]:
    """Another opening of a pipe's read end: a copy would share what `tie` says of it."""
    opened = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield opened
    finally:
        os.close(opened)


def tie(line: int, group: int) -> None:
    """Have the kernel send SIGKILL to a process group when nobody has the write end of this pipe any more.

    It does so while anybody has this opening of the read end. Unlike PDEATHSIG another process can ask for it: for a
    child that was stopped before its first instruction as well.
    """
    fcntl.fcntl(line, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(line, fcntl.F_SETOWN, -group)
    fcntl.fcntl(line, fcntl.F_SETFL, fcntl.fcntl(line, fcntl.F_GETFL) | os.O_ASYNC)


def outlive_parent(line: int) -> None:
    """Undo `die_with_parent`, and have a `tie` continue the group instead: who is stopped goes on, and finds out."""
    _prctl(_PR_SET_PDEATHSIG, 0)
    fcntl.fcntl(line, fcntl.F_SETSIG, signal.SIGCONT)


def wake_with_parent() -> None:
    """Have this process continued when its parent dies, should it be stopped then: so that it can find out."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def keep_mapped(fd: int) -> None:
    """Map a page of a file for good, without access to it: a trace that all copies of this process have as well,
    whatever they close, until they start another program. It takes no memory, and not even a descriptor."""
    _LIBC.mmap(None, mmap.PAGESIZE, _PROT_NONE, mmap.MAP_SHARED, fd, 0)


def give_memory_back() -> None:
    """Return to the kernel what the imports and checks of a start have left unused: 0.2 MB."""
    gc.collect()
    trim = getattr(_LIBC, "malloc_trim", None)  # glibc's own
    if trim is not None:
        trim(0)


class _SignalStack(ctypes.Structure):
    """The kernel's `stack_t`."""

    _fields_ = (("at", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


def nest_signals_safely() -> None:
    """Give this thread a stack on which the handlers of all signals there are can stand at once.

    To be called after each `faulthandler.enable`, which gives it one of 12 kB. Python's own handlers run there as well,
    and block no signal but their own: the fourth kind that comes while a process is stopped would crash it.
    """
    if _LIBC.sigaltstack(ctypes.byref(_signal_stack()), None) != 0:
        raise OSError(ctypes.get_errno(), "sigaltstack")


@functools.cache
def _signal_stack() -> _SignalStack:
    # Made once, for good: what is forked from this process has a copy at the same place.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_STACK
    at = _LIBC.mmap(None, _SIGNAL_STACK_BYTES, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if at == _MAP_FAILED:
        raise OSError(ctypes.get_errno(), "mmap")
    return _SignalStack(at, 0, _SIGNAL_STACK_BYTES)


def open_inbox(numbers: Iterable[int]) -> int:
    """A descriptor to read these signals from as data. They have to be blocked: then no handler runs, however many come
    in whatever order, and none is lost."""
    wanted = ctypes.create_string_buffer(_RECORD_BYTES)  # as large as the `sigset_t` of any C library
    _LIBC.sigemptyset(wanted)
    for number in numbers:
        _LIBC.sigaddset(wanted, number)
    inbox: int = _LIBC.signalfd(-1, wanted, os.O_NONBLOCK | os.O_CLOEXEC)
    if inbox < 0:
        raise OSError(ctypes.get_errno(), "signalfd")
    return inbox


def take_from(inbox: int) -> list[int]:
    """The signals that have come since, each once, the lowest number first. Raises BlockingIOError for none."""
    records = os.read(inbox, _SIGNALS * _RECORD_BYTES)
    starts = range(0, len(records), _RECORD_BYTES)
    return [int.from_bytes(records[at : at + _NUMBER_BYTES], sys.byteorder) for at in starts]


# Titles


def show_title(what: str, namespace: str) -> None:
    """Have `ps` and `top` show this process as in `rota: worker default 12 (shop)`, 12 being its slot.

    A title takes the place of the command line, and is cut at its length; the environment behind it stays readable in
    `/proc/PID/environ`. The first call comes before anything is changed in the environment, by which room is found.
    Nothing secret is in a title: anybody on the machine can read it. The task that runs is not in it, since to say so
    would cost more than the rest of an attempt.
    """
    _setter()(f"rota: {what} ({namespace})")


@functools.cache
def _setter() -> Callable[[str], None]:
    import setproctitle  # noqa: PLC0415 - only processes that have a title load it, and `logging` with it

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
