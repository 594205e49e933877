"""The processes of this machine, as the kernel reports them."""

from pathlib import Path

import psutil


def is_alive(pid: int) -> bool:
    """Whether a process is running. A zombie does not count."""
    fields = _stat_of(pid)
    return fields is not None and fields[0] != "Z"


def _stat_of(pid: int) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def descendants(pid: int) -> set[int]:
    """Return the pids of all descendants of a process, including zombies."""
    below: dict[int, list[int]] = {}
    for other in psutil.pids():
        fields = _stat_of(other)
        if fields is not None:
            below.setdefault(int(fields[1]), []).append(other)
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        children = below.get(waiting.pop(), [])
        found.update(children)
        waiting += children
    return found


def processes_in(folder: Path) -> list[psutil.Process]:
    """Return all processes whose working directory is the folder."""
    return [process for process in psutil.process_iter() if _works_in(process, folder)]


def _works_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return process.cwd() == str(folder)
    except (psutil.Error, OSError):  # the process has ended, is a zombie, or belongs to another user
        return False


def stop(process: psutil.Process) -> bool:
    """Send SIGSTOP, and return whether the process was still running."""
    try:
        running = process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
        if running:
            process.suspend()
    except psutil.NoSuchProcess:
        return False
    return running
