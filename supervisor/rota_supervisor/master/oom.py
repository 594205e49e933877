"""The kernel's evidence of out-of-memory kills: the counter of our cgroup, of version 2 or 1."""

from pathlib import Path
from typing import Final

_MOUNTED: Final = Path("/sys/fs/cgroup")


def counter_of(groups: str, mounted: Path = _MOUNTED) -> Path | None:
    """The file with the line `oom_kill` of a process whose `/proc/PID/cgroup` says `groups`; None for none.

    In a container of version 1 the path told is the host's, and the group is found where it is mounted.
    """
    files = []
    for line in groups.splitlines():
        _, names, own = line.split(":", 2)
        if not names:
            files.append(mounted / own.lstrip("/") / "memory.events")
        elif "memory" in names.split(","):
            folder = mounted / "memory"
            files += [folder / own.lstrip("/") / "memory.oom_control", folder / "memory.oom_control"]
    return next((file for file in files if file.exists()), None)


def _own_counter() -> Path | None:
    try:
        return counter_of(Path("/proc/self/cgroup").read_text())
    except OSError:
        return None


class OomKills:
    """Tells how many kills were counted since it was last asked."""

    def __init__(self) -> None:
        self._path = _own_counter()
        self._seen = self._count()

    def new(self) -> int:
        """Kills in this cgroup since the last call."""
        count = self._count()
        new, self._seen = count - self._seen, count
        return new

    def _count(self) -> int:
        if self._path is None:
            return 0
        try:
            lines = self._path.read_text().splitlines()
        except OSError:
            return 0
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
