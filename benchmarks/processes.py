"""The process tree of a running contender, which can be stopped, measured and killed."""

import ctypes
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

END_SECONDS = 10.0
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make this process the new parent of all orphans among its descendants, so that no orphan outlives the
    benchmark."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def give_a_processor_to(pid: int) -> None:
    """Reserve a processor for a process. The calling process, and all processes that it starts later, run on the other
    processors. If there is only one processor, for example under `taskset -c 0`, all processes share this processor.
    """
    *others, last = sorted(os.sched_getaffinity(0))
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {last})
    os.sched_setaffinity(0, others or {last})


def tree(roots: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return the roots and their living descendants, parents first."""
    found: list[psutil.Process] = []
    for root in roots:
        with suppress(psutil.NoSuchProcess):
            found += [root, *root.children(recursive=True)]
    return [process for process in found if _lives(process)]


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def send(processes: Iterable[psutil.Process], number: int) -> None:
    """Send a signal to each process that is still alive."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def kill_tree(roots: list[psutil.Process], spared: set[int]) -> None:
    """Kill the roots, their descendants, and the orphans that this process has adopted. Processes in `spared` are not
    killed.
    """
    while True:
        orphans = [child for child in psutil.Process().children() if child.pid not in spared]
        living = tree([*roots, *orphans])
        if not living:
            break
        send(living, signal.SIGSTOP)  # so that they start no new processes
        send(living, signal.SIGKILL)
        psutil.wait_procs(living, timeout=END_SECONDS)


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a set of processes, in bytes: the sum of their proportional set sizes, and the unique set size of
    each process by pid.
    """

    pss: int
    uss: dict[int, int]


def memory_of(processes: Iterable[psutil.Process]) -> Memory:
    """Return the current memory of the processes."""
    pss = 0
    uss = {}
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            found = process.memory_full_info()
            pss += found.pss
            uss[process.pid] = found.uss
    return Memory(pss, uss)


def cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    """Return the processor time of all threads of the processes, with nanosecond precision if the kernel reports it."""
    return sum(_cpu_seconds(process) for process in processes)


def _cpu_seconds(process: psutil.Process) -> float:
    try:
        return sum(_on_cpu_ns(thread / "schedstat") for thread in Path(f"/proc/{process.pid}/task").iterdir()) / 1e9
    except FileNotFoundError:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            return float(times.user + times.system)
        return 0.0


def _on_cpu_ns(path: Path) -> int:
    return int(path.read_text().split()[0])
