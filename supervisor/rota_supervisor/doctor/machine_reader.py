"""The facts about this machine and about one of its processes, from /proc, /sys, /dev/shm and psutil."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psutil

from rota_supervisor.cgroups import MOUNTED, read_cgroup
from rota_supervisor.doctor.readings import MachineReading, ProcessReading, SharedMemoryReading, Unread

_LIMIT: Final = re.compile(r"^Max (.+?) {2,}(\S+) +(\S+)", re.MULTILINE)
_UNLIMITED: Final = "unlimited"
_CHOSEN: Final = re.compile(r"\[(\w+)\]")
_PROC: Final = Path("/proc")
_HUGE_PAGES: Final = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_SHARED: Final = Path("/dev/shm")  # noqa: S108 - it is examined, and nothing is put there
_MARKS_OF_CONTAINERS: Final = (Path("/.dockerenv"), Path("/run/.containerenv"))
_IN_KUBERNETES: Final = "KUBERNETES_SERVICE_HOST"


def read_process(pid: int, *, is_master: bool, unread: list[Unread]) -> ProcessReading:
    """Return the limits of a process. Facts that could not be read are added to `unread`."""
    folder = _PROC / str(pid)
    try:
        limits = parse_limits((folder / "limits").read_text())
        groups = (folder / "cgroup").read_text()
        user = folder.stat().st_uid
    except OSError as error:
        unread.append(Unread(f"limits and control group of process {pid}", error.strerror or str(error)))
        return ProcessReading(pid, is_master, os.geteuid())
    return ProcessReading(
        pid,
        is_master,
        user,
        open_files=limits.get("open files"),
        processes=limits.get("processes"),
        address_space=limits.get("address space"),
        file_size=limits.get("file size"),
        processors=_processors_of(pid),
        user_threads=_threads_of(user),
        cgroup=read_cgroup(groups, MOUNTED),
    )


def parse_limits(text: str) -> dict[str, int | None]:
    """Return the soft limits from the text of `/proc/PID/limits`, by their names in that file. None means no limit."""
    return {name: None if soft == _UNLIMITED else int(soft) for name, soft, _ in _LIMIT.findall(text)}


def _processors_of(pid: int) -> int | None:
    try:
        return len(os.sched_getaffinity(pid))
    except OSError:  # The process has ended.
        return None


def _threads_of(user: int) -> int:
    """Return how many processes and threads of a user are visible to this process."""
    processes = psutil.process_iter(["uids", "num_threads"])
    rows = (each.info for each in processes)
    return sum(row["num_threads"] or 1 for row in rows if row["uids"] and row["uids"].real == user)


def read_machine(environment: Mapping[str, str], unread: list[Unread]) -> MachineReading:
    """Return the facts about this machine. Facts that could not be read are added to `unread`."""
    memory = psutil.virtual_memory()
    limits = [_number(name, unread) for name in ("kernel/threads-max", "kernel/pid_max")]
    return MachineReading(
        processors=os.cpu_count() or 1,
        memory=memory.total,
        memory_available=memory.available,
        threads_limit=min((limit for limit in limits if limit is not None), default=None),
        threads_used=_threads_of_machine(),
        huge_pages=_huge_pages(unread),
        overcommit=_number("vm/overcommit_memory", unread),
        shared_memory=_shared_memory(),
        container=_container(environment),
    )


def _number(name: str, unread: list[Unread]) -> int | None:
    try:
        return int((_PROC / "sys" / name).read_text())
    except (OSError, ValueError) as error:
        unread.append(Unread(name.replace("/", "."), _reason(error)))
        return None


def _threads_of_machine() -> int | None:
    """Return the number of all threads on this machine. The kernel shows it in /proc/loadavg, after the slash in
    `running/all`."""
    try:
        return int((_PROC / "loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return None


def _huge_pages(unread: list[Unread]) -> str:
    try:
        found = _CHOSEN.search(_HUGE_PAGES.read_text())
    except OSError as error:
        unread.append(Unread("transparent huge pages", _reason(error)))
        return ""
    return found[1] if found else ""


def _shared_memory() -> SharedMemoryReading | None:
    try:
        found = os.statvfs(_SHARED)
    except OSError:
        return None
    size, free = (blocks * found.f_frsize for blocks in (found.f_blocks, found.f_bavail))
    return SharedMemoryReading(size, free, os.access(_SHARED, os.W_OK | os.X_OK))


def _container(environment: Mapping[str, str]) -> str:
    if environment.get(_IN_KUBERNETES):
        return "kubernetes"
    return "container" if any(mark.exists() for mark in _MARKS_OF_CONTAINERS) else ""


def may_have_huge_pages(pid: int, names: tuple[str, ...]) -> bool | None:
    """Return whether a process can have transparent huge pages, or None if this is not known.

    It is also not known if the name of the process begins with none of `names`, because the pid may then belong to
    another process.
    """
    try:
        text = (_PROC / str(pid) / "status").read_text()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    if not fields.get("Name", "").strip().startswith(names) or "THP_enabled" not in fields:
        return None
    return fields["THP_enabled"].strip() == "1"


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
