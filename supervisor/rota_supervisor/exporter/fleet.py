"""The fleet at one instant, as its slots and `/proc` show it.

`/proc` is read by hand: psutil would cost this process 0.6 MB, and a look takes twice as long with it (130 us against
58).
"""

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rota.child.slot_memory import SlotMemory
from rota.child.slot_task import TaskInSlot
from rota.child.slots import Phase, Slot, boottime_ns
from rota_supervisor.layout import Role, role_of

NANOSECONDS: Final = 1_000_000_000
_SET_BY_ITS_PROCESS: Final = frozenset({Phase.IDLE, Phase.BUSY, Phase.DRAINING, Phase.QUIET})
# Places in /proc/PID/stat behind the command, whose name may hold blanks and brackets: see proc_pid_stat(5).
_PARENT, _USER_TICKS, _SYSTEM_TICKS, _STARTED_TICKS, _RESIDENT_PAGES = 1, 11, 12, 19, 21
_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_GONE: Final = (FileNotFoundError, ProcessLookupError)


# By the slots


@dataclass(frozen=True, slots=True)
class Member:
    """A living process of the fleet. `task_age_seconds` and `task_left_seconds` are 0 when nothing runs;
    the latter is infinite for a task without a deadline."""

    slot: int
    role: Role
    pid: int
    phase: Phase
    beat_age_seconds: float
    task: TaskInSlot | None = None
    task_age_seconds: float = 0.0
    task_left_seconds: float = 0.0

    @property
    def has_begun(self) -> bool:
        """Whether the gauges in its slot are its own, not its predecessor's."""
        return self.role is Role.MASTER or self.phase in _SET_BY_ITS_PROCESS


def members(memory: SlotMemory, touched: Iterable[int], master_pid: int) -> tuple[Member, ...]:
    """Return the living processes among the slots that were ever written to, by slot."""
    now_ns = boottime_ns()
    found = (_member(number, memory.slot(number), now_ns) for number in touched)
    return tuple(member for member in found if _is_ours(member.pid, master_pid))


def _is_ours(pid: int, master_pid: int) -> bool:
    """Whether that process lives and is the master or its child, not a stranger who got the number later."""
    if pid in (0, master_pid):
        return pid == master_pid
    return parent_of(pid) == master_pid


def _member(number: int, slot: Slot, now_ns: int) -> Member:
    task, pid, phase = slot.current_task(), slot.pid, slot.phase
    beat_age = max(0, now_ns - slot.beat_ns) / NANOSECONDS
    if task is None:
        return Member(number, role_of(number), pid, phase, beat_age)
    age = max(0, now_ns - task.started_ns) / NANOSECONDS
    left = (task.deadline_ns - now_ns) / NANOSECONDS if task.deadline_ns else math.inf
    return Member(number, role_of(number), pid, phase, beat_age, task, age, left)


# By the kernel


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
        ticks = numbers[_USER_TICKS] + numbers[_SYSTEM_TICKS]
        return Usage(numbers[_RESIDENT_PAGES] * _PAGE_BYTES, ticks / _TICKS_A_SECOND, _open_fds(pid))
    except _GONE:
        return None


def parent_of(pid: int) -> int | None:
    """Return the parent of the process; None when it has gone."""
    try:
        return _stat(pid)[_PARENT]
    except _GONE:
        return None


def started_at(pid: int) -> float:
    """Return the Unix time of the process's start. Raises OSError when it has gone."""
    booted = next(line for line in Path("/proc/stat").read_bytes().splitlines() if line.startswith(b"btime "))
    return int(booted.split()[1]) + _stat(pid)[_STARTED_TICKS] / _TICKS_A_SECOND


def _stat(pid: int) -> list[int]:
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return [0, *map(int, fields[1:])]  # the first is the state, a letter


def _open_fds(pid: int) -> int | None:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - a third of the time, once for each process a scrape
    except PermissionError:
        return None
