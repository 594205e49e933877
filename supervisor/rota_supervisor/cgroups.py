"""The limits of a process's control group (version 1 or 2), read from the files below /sys/fs/cgroup."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

MOUNTED: Final = Path("/sys/fs/cgroup")
_MICROSECONDS: Final = 1_000_000
_NANOSECONDS: Final = 1_000_000_000
_NO_LIMIT_V1: Final = 1 << 62  # version 1 represents "no limit" by a number at least this large


@dataclass(frozen=True, slots=True)
class CgroupReading:
    """The limits of a control group. Each limit is the lowest one that is set for the group or any group above. None
    means no limit.
    """

    version: int = 0  # 1 or 2, or 0 if the kernel has no control groups or the version could not be read
    path: str = ""
    memory_limit: int | None = None
    memory_used: int | None = None  # in the group that has `memory_limit`, without the droppable page cache
    kills_together: bool = False  # whether the kernel kills all processes of the group if memory runs out
    cpu_limit: float | None = None  # the limit of processor time, in processors
    cpu_seconds: float | None = None  # the processor time that the group with `cpu_limit` has used so far
    processes_limit: int | None = None
    processes_used: int | None = None  # the number of processes in the group with `processes_limit`


class _Limit(NamedTuple):
    value: float
    folder: Path  # the folder of the group that has the limit


def read_cgroup(groups: str, mounted: Path = MOUNTED) -> CgroupReading:
    """Return the limits of the control group of a process. `groups` is the text of its `/proc/PID/cgroup`."""
    own = dict(_own_groups(groups))
    if not own:
        return CgroupReading()
    if "memory" in own or "pids" in own or "cpu" in own:
        return _version_1(own, mounted)
    return _version_2(own.get("", "/"), mounted if (mounted / "cgroup.controllers").exists() else mounted / "unified")


def _own_groups(groups: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each controller, for example `memory`, and the path of the control group to which the process
    belongs for this controller. Under version 2, one group is for all controllers, and the name is ""."""
    for line in groups.splitlines():
        _, names, path = line.split(":", 2)
        yield from ((name, path) for name in names.split(","))


def _levels(mounted: Path, path: str) -> list[Path]:
    """Return the folder of the control group at `path`, and the folders of the groups above it.

    In a container, the path may be valid only on the host. In that case, the container's group is at the mount point
    itself.
    """
    folder = mounted / path.lstrip("/")
    if ".." in folder.parts or not folder.is_dir():
        return [mounted]
    return [folder, *(each for each in folder.parents if each.is_relative_to(mounted))]


def _lowest(levels: list[Path], limit_in: Callable[[Path], float | None]) -> _Limit | None:
    found = [_Limit(value, folder) for folder in levels if (value := limit_in(folder)) is not None]
    return min(found, default=None)


def _version_2(path: str, mounted: Path) -> CgroupReading:
    levels = _levels(mounted, path)
    memory = _lowest(levels, lambda folder: _number(folder / "memory.max"))
    processes = _lowest(levels, lambda folder: _number(folder / "pids.max"))
    cpu = _lowest(levels, _cpu_of_version_2)
    return CgroupReading(
        version=2,
        path=path,
        memory_limit=_whole(memory),
        memory_used=_used(memory, "memory.current", "inactive_file"),
        kills_together=_number(levels[0] / "memory.oom.group") == 1,
        cpu_limit=None if cpu is None else cpu.value,
        cpu_seconds=None if cpu is None else _scaled(_field(cpu.folder / "cpu.stat", "usage_usec"), _MICROSECONDS),
        processes_limit=_whole(processes),
        processes_used=None if processes is None else _number(processes.folder / "pids.current"),
    )


def _version_1(own: dict[str, str], mounted: Path) -> CgroupReading:
    def lowest(controller: str, limit_in: Callable[[Path], float | None]) -> _Limit | None:
        return _lowest(_levels(mounted / controller, own[controller]), limit_in) if controller in own else None

    memory = lowest("memory", _memory_of_version_1)
    processes = lowest("pids", lambda folder: _number(folder / "pids.max"))
    cpu = lowest("cpu", _cpu_of_version_1)
    return CgroupReading(
        version=1,
        path=own.get("memory", "/"),
        memory_limit=_whole(memory),
        memory_used=_used(memory, "memory.usage_in_bytes", "total_inactive_file"),
        cpu_limit=None if cpu is None else cpu.value,
        cpu_seconds=None if cpu is None else _scaled(_number(cpu.folder / "cpuacct.usage"), _NANOSECONDS),
        processes_limit=_whole(processes),
        processes_used=None if processes is None else _number(processes.folder / "pids.current"),
    )


def _memory_of_version_1(folder: Path) -> int | None:
    limit = _number(folder / "memory.limit_in_bytes")
    return None if limit is None or limit >= _NO_LIMIT_V1 else limit


def _cpu_of_version_1(folder: Path) -> float | None:
    quota, period = (_number(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    return quota / period if quota is not None and quota > 0 and period else None


def _cpu_of_version_2(folder: Path) -> float | None:
    quota, _, period = _text(folder / "cpu.max").partition(" ")
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else None


def _whole(limit: _Limit | None) -> int | None:
    return None if limit is None else int(limit.value)


def _used(limit: _Limit | None, file: str, droppable: str) -> int | None:
    """Return the memory used by the group that has the limit. The inactive page cache does not count, because the
    kernel can drop it.
    """
    used = None if limit is None else _number(limit.folder / file)
    if limit is None or used is None:
        return None
    return max(0, used - (_field(limit.folder / "memory.stat", droppable) or 0))


def _field(file: Path, name: str) -> int | None:
    """Return a number from a file with lines such as `inactive_file 4096`, or None if no line begins with the name."""
    lines = (line.split() for line in _text(file).splitlines())
    return next((int(fields[1]) for fields in lines if fields and fields[0] == name), None)


def _scaled(number: int | None, units: int) -> float | None:
    return None if number is None else number / units


def _number(file: Path) -> int | None:
    """Return the number in a file, or None if the file contains no number. A limit file contains `max` if there is no
    limit."""
    text = _text(file)
    return int(text) if text.lstrip("-").isdecimal() else None


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:  # Not every group has every file.
        return ""
