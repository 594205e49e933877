"""The processor time and the memory that this node has left for more workers, read from /proc and the control group."""

import os
import re
from collections import deque
from pathlib import Path
from typing import Final, NamedTuple

from rota.child.child_process import boottime_seconds
from rota_supervisor.cgroups import MOUNTED, CgroupReading, read_cgroup

KEPT_FREE: Final = 0.1  # the share of the memory that is kept free
_WINDOW_SECONDS: Final = 2.0
_PROC: Final = Path("/proc")
_KILOBYTE: Final = 1024
_PRIVATE: Final = re.compile(r"^Private_\w+: +(\d+) kB", re.MULTILINE)
_MEMORY: Final = re.compile(r"^(MemTotal|MemAvailable): +(\d+) kB", re.MULTILINE)
_PROCESSOR: Final = re.compile(r"^cpu(\d+) (.*)", re.MULTILINE)
_IDLE: Final = slice(3, 5)  # the idle fields of a line in /proc/stat: idle time, and time waiting for a disk
_TIMES: Final = 8  # number of fields to add up; the later fields are already included in earlier ones


class CpuTimes(NamedTuple):
    """The processor time that this node has used up to the time `at`. Only the difference between two readings is
    meaningful."""

    at: float
    busy_ticks: int  # the busy time of the processors that this process may use
    ticks: int  # the total time of these processors
    group_seconds: float | None  # the processor time used by the control group that has a limit
    group_limit: float | None  # the limit of that group, in processors


class NodeResources(NamedTuple):
    """The processors and the memory that this node has left for more workers."""

    is_cpu_busy: bool = False  # whether the processors of the node or its control group were busier than permitted
    free_bytes: int | None = None  # memory available for more workers; None if it could not be read


class ResourceReader:
    """A reader of the node's resources, which reads at most once every two seconds."""

    def __init__(self) -> None:
        self._times: deque[CpuTimes] = deque(maxlen=2)
        self._last = NodeResources()

    def read(self, max_cpu: float) -> NodeResources:
        """Return the current resources. `max_cpu` is the busy share from which on the processors count as busy. With a
        `max_cpu` of 1, they never count as busy. If the machine lacks one of the files that are read, the resource
        described in that file counts as unlimited."""
        now = boottime_seconds()
        if self._times and now - self._times[-1].at < _WINDOW_SECONDS:
            return self._last
        group = read_cgroup(_text("self/cgroup"), MOUNTED)
        busy, ticks = ticks_in(_text("stat"), os.sched_getaffinity(0))
        self._times.append(CpuTimes(now, busy, ticks, group.cpu_seconds, group.cpu_limit))
        is_cpu_busy = max_cpu < 1 and busy_share(self._times[0], self._times[-1]) >= max_cpu
        self._last = NodeResources(is_cpu_busy, free_bytes(_text("meminfo"), group))
        return self._last


def ticks_in(stat: str, processors: set[int]) -> tuple[int, int]:
    """Return the busy and the total time of these processors in clock ticks, from the text of /proc/stat."""
    rows = [
        list(map(int, times.split()[:_TIMES])) for name, times in _PROCESSOR.findall(stat) if int(name) in processors
    ]
    total = sum(map(sum, rows))
    return total - sum(sum(row[_IDLE]) for row in rows), total


def busy_share(before: CpuTimes, after: CpuTimes) -> float:
    """Return how busy the processors were between two readings, as a share from 0 to 1. If the control group has a
    limit of processor time, the result is at least the share of this limit that the group used."""
    ticks, seconds = after.ticks - before.ticks, after.at - before.at
    node = (after.busy_ticks - before.busy_ticks) / ticks if ticks > 0 else 0.0
    if seconds <= 0 or not after.group_limit or after.group_seconds is None or before.group_seconds is None:
        return node
    return max(node, (after.group_seconds - before.group_seconds) / (seconds * after.group_limit))


def free_bytes(meminfo: str, group: CgroupReading) -> int | None:
    """Return the memory that more workers may use, in bytes. This is the free memory of the machine or of the control
    group, whichever is less."""
    sizes = {name: int(size) * _KILOBYTE for name, size in _MEMORY.findall(meminfo)}
    found = []
    if len(sizes) == len(("MemTotal", "MemAvailable")):
        found.append(sizes["MemAvailable"] - round(KEPT_FREE * sizes["MemTotal"]))
    if group.memory_limit is not None and group.memory_used is not None:
        found.append(round((1 - KEPT_FREE) * group.memory_limit) - group.memory_used)
    return max(0, min(found)) if found else None


def private_bytes(pid: int) -> int:
    """Return how many bytes would become free if a process ended. Return 0 if the process has already ended or its
    memory cannot be read."""
    return sum(int(size) * _KILOBYTE for size in _PRIVATE.findall(_text(f"{pid}/smaps_rollup")))


def _text(name: str) -> str:
    try:
        return (_PROC / name).read_text(errors="replace")
    except OSError:
        return ""
