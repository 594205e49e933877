"""The findings about the machine, the limits of the fleet's processes, and the unit of the service manager."""

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

from rota.durations import in_words
from rota_supervisor.doctor.findings import Finding
from rota_supervisor.doctor.readings import Examination
from rota_supervisor.master.core.targets import LEAVE_SECONDS
from rota_supervisor.master.effects.processes import SPARE_DESCRIPTORS
from rota_supervisor.master.shell.run import faults_of_limits

MEGABYTE: Final = 1 << 20
# The memory of a fleet, measured after 8 workers have run 400 tasks (docs/performance.md). FLEET_BYTES is the total for
# the master, the zygote, one poller and the exporter. WORKER_BYTES is for each worker. Neither includes memory for the
# application's code.
FLEET_BYTES: Final = 60 * MEGABYTE
WORKER_BYTES: Final = 6 * MEGABYTE
OTHER_CHILDREN: Final = 5  # two zygotes, two pollers and the exporter
MASTER_FILES: Final = 26  # the number of files that a master has open, not counting stack files
LOW_MEMORY_SHARE: Final = 0.9
LEAST_SPARE_PROCESSES: Final = 64
MANY_WORKERS: Final = 4  # per processor
SMALL_SHARED_BYTES: Final = 64 * MEGABYTE  # the default size of /dev/shm in containers
FULL_SHARED_SHARE: Final = 0.9
CLOCK_SECONDS: Final = 1.0  # the status page and the clock alert use the same limit
STRICT_OVERCOMMIT: Final = 2
# docs/service.md recommends a timeout of the service manager that is this much longer than the drain.
GRACE_SECONDS: Final = 15.0
LEAST_WATCHDOG_SECONDS: Final = 5.0
_SHARED: Final = "/dev/shm"  # noqa: S108 - it is named, not used
_NOTIFIES: Final = ("notify", "notify-reload")


def _whose(found: Examination) -> str:
    return f"the master, pid {found.process.pid}" if found.process.is_master else "this command"


def limits(found: Examination) -> Iterator[Finding]:
    """Report limits that are too low for a master."""
    for fault in faults_of_limits(found.process.limits):
        yield Finding("limit-too-low", f"of {_whose(found)}: {fault}")


def open_files(found: Examination) -> Iterator[Finding]:
    """Report a limit on open files that is too low to give each child a stack file."""
    limit = found.process.open_files
    needed = MASTER_FILES + found.workers + OTHER_CHILDREN + SPARE_DESCRIPTORS
    if limit is not None and limit < needed:
        seen = (
            f"{limit} open files are allowed for {_whose(found)}; a fleet of {found.workers} workers needs up to "
            f"{needed}"
        )
        yield Finding("open-files-low", seen)


class _Room(NamedTuple):
    """A limit on processes, and how many more processes can be started under this limit."""

    left: int
    limit: int
    what: str


def processes(found: Examination) -> Iterator[Finding]:
    """Report a limit on processes that leaves too little room for the workers."""
    room = min(_rooms(found), default=None)
    if room is None:
        return
    needed = 1 if found.process.is_master else found.workers + OTHER_CHILDREN
    spare = max(LEAST_SPARE_PROCESSES, found.workers)
    seen = f"{room.what} is {room.limit}, and {room.left} are left for a fleet of {found.workers} workers"
    if room.left < needed:
        yield Finding("processes-exhausted", seen)
    elif room.left < needed + spare:
        yield Finding("processes-low", seen)


def _rooms(found: Examination) -> Iterator[_Room]:
    process = found.process
    machine = found.machine
    limits_by_name = (
        ("the limit on processes of the control group", process.cgroup.processes_limit, process.cgroup.processes_used),
        # The kernel does not apply this limit to root.
        ("the limit on processes of the user", process.processes if process.user_id else None, process.user_threads),
        ("the limit on threads of the machine", machine.threads_limit, machine.threads_used),
    )
    for what, limit, used in limits_by_name:
        if limit is not None and used is not None:
            yield _Room(limit - used, limit, what)


def memory(found: Examination) -> Iterator[Finding]:
    """Report memory that is too small for the workers or nearly used up, and workers that may together use more memory
    than there is."""
    limit = found.process.cgroup.memory_limit
    growth = found.config.limits.max_rss_mb * MEGABYTE
    size = min(limit or math.inf, found.machine.memory)
    floor = FLEET_BYTES + found.workers * WORKER_BYTES
    has = f"{_megabytes(size)} of memory {'in the control group' if limit == size else 'on this machine'}"
    if size < floor:
        yield Finding("memory-too-small", f"{has}, and {found.workers} workers need about {_megabytes(floor)}")
        return
    if (used := _used_memory(found)) and used > LOW_MEMORY_SHARE * size:
        yield Finding("memory-low", f"{_megabytes(used)} of {has} are in use")
    if growth and floor + found.workers * growth > size:
        most = _megabytes(floor + found.workers * growth)
        yield Finding("memory-workers-may-exceed", f"{found.workers} workers may take {most}, but there are {has}")
    if limit is not None and not growth:
        yield Finding("memory-unbounded", f"{has}, and limits.max_rss_mb is 0")


def _used_memory(found: Examination) -> int | None:
    """Return how much memory is in use: in the control group or on the whole machine, whichever has the lower limit."""
    cgroup = found.process.cgroup
    machine = found.machine
    if cgroup.memory_limit is not None and cgroup.memory_limit < machine.memory:
        return cgroup.memory_used
    return machine.memory - machine.memory_available


def kills(found: Examination) -> Iterator[Finding]:
    """Report a control group whose processes the kernel kills all together when memory runs out."""
    if found.process.cgroup.kills_together:
        yield Finding("memory-kills-together", f"memory.oom.group is 1 for {found.process.cgroup.path}")


def processors(found: Examination) -> Iterator[Finding]:
    """Report if there are too many workers for the processors that the fleet may use."""
    process = found.process
    machine = found.machine
    usable = min(process.processors or machine.processors, process.cgroup.cpu_limit or math.inf)
    seen = f"{found.workers} workers, and {usable:g} of {machine.processors} processors"
    if not found.are_workers_set and found.workers > math.ceil(usable):
        yield Finding("cpu-workers-by-machine", seen)
    elif found.workers > MANY_WORKERS * usable:
        yield Finding("cpu-workers-many", seen)


def shared_memory(found: Examination) -> Iterator[Finding]:
    """Report problems with /dev/shm that can prevent tasks from using it."""
    shared = found.machine.shared_memory
    if shared is None or not shared.is_writable:
        yield Finding("shm-unusable", f"{_SHARED} does not exist" if shared is None else f"{_SHARED} is not writable")
    elif shared.size and shared.size - shared.free > FULL_SHARED_SHARE * shared.size:
        yield Finding("shm-full", f"{_megabytes(shared.free)} of {_megabytes(shared.size)} are free in {_SHARED}")
    elif shared.size and shared.size <= SMALL_SHARED_BYTES:
        yield Finding("shm-small", f"{_SHARED} has {_megabytes(shared.size)}")


def kernel(found: Examination) -> Iterator[Finding]:
    """Report kernel settings that cost memory or make forks fail."""
    if found.machine.huge_pages == "always":
        yield Finding("thp-always", "/sys/kernel/mm/transparent_hugepage/enabled is always")
    if found.machine.overcommit == STRICT_OVERCOMMIT:
        yield Finding("overcommit-strict", f"vm.overcommit_memory is {STRICT_OVERCOMMIT}")


def clock(found: Examination) -> Iterator[Finding]:
    """Report if the clocks of this machine and of the server differ by more than CLOCK_SECONDS, after the possible
    error of the measurement has been subtracted."""
    offset = found.server.clock_offset_seconds if found.server else None
    if found.server and offset is not None and abs(offset) - found.server.clock_error_seconds > CLOCK_SECONDS:
        which = "behind" if offset > 0 else "ahead of"
        yield Finding("clock-offset", f"the clock of this machine is {in_words(abs(offset))} {which} that of Redis")


def _megabytes(size: float) -> str:
    return f"{size / MEGABYTE:,.0f} MB"


# The service manager


def grace(found: Examination) -> Iterator[Finding]:
    """Report a service manager that does not wait until a drain has ended.

    If the master sends notifications, it asks for more time while the fleet drains, so that a short timeout does not
    interrupt the drain.
    """
    unit = found.unit
    drain = found.config.limits.drain_seconds
    is_extended = found.grace_seconds is None and unit is not None and unit.type in _NOTIFIES
    of_unit = None if unit is None else unit.stop_seconds
    seconds = of_unit if found.grace_seconds is None else found.grace_seconds
    if seconds is None:
        return
    whose = "the manager" if found.grace_seconds is not None or unit is None else unit.name
    seen = f"{whose} waits {seconds:g} s for a stop, but limits.drain_seconds is {drain:g}"
    if seconds < drain + 2 * LEAVE_SECONDS and not is_extended:
        yield Finding("grace-too-short", seen)
    elif seconds < drain + GRACE_SECONDS:
        yield Finding("grace-tight", seen)


def unit_settings(found: Examination) -> Iterator[Finding]:
    """Report settings of the systemd unit that make systemd kill workers or the whole fleet."""
    unit = found.unit
    if unit is None:
        return
    if unit.kill_mode not in ("", "mixed", "process"):
        yield Finding("unit-kill-mode", f"{unit.name} has KillMode={unit.kill_mode}")
    if unit.oom_policy not in ("", "continue"):
        yield Finding("unit-oom-policy", f"{unit.name} has OOMPolicy={unit.oom_policy}")
    if 0 < unit.watchdog_seconds < LEAST_WATCHDOG_SECONDS:
        yield Finding("unit-watchdog", f"{unit.name} has WatchdogSec={unit.watchdog_seconds:g}")


RULES: Final = (
    limits,
    open_files,
    processes,
    memory,
    kills,
    processors,
    shared_memory,
    kernel,
    clock,
    grace,
    unit_settings,
)
