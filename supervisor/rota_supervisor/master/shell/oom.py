"""The kernel's evidence of out-of-memory kills: the counter of our cgroup, of version 2 or 1, and whom it kills."""

import math
from pathlib import Path
from typing import Final

_MOUNTED: Final = Path("/sys/fs/cgroup")
_ENDS_ALL: Final = (
    "when a task takes too much memory, the kernel kills the master and all its children with it. "
    "Set OOMPolicy=continue in a unit of systemd, singleProcessOOMKill in the configuration of a kubelet"
)
_LOOK_SECONDS: Final = 1.0
_REMEMBERED_SECONDS: Final = 10.0


def counter_of(groups: str, mounted: Path = _MOUNTED) -> Path | None:
    """The file with the line `oom_kill` of a process whose `/proc/PID/cgroup` says `groups`; None for none.

    In a container of version 1 that path is the host's, and the group is found where it is mounted.
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


def warnings(counter: Path | None = None) -> list[str]:
    """Return a warning if the kernel would kill the whole fleet when one task takes too much memory, else nothing."""
    counter = counter or _own_counter()
    if counter is None:
        return []
    group = counter.with_name("memory.oom.group")
    try:
        return [f"{group} is 1: {_ENDS_ALL}"] if int(group.read_text()) == 1 else []
    except (OSError, ValueError):  # no such file: of version 1, or an older kernel's
        return []


class OomKills:
    """The kills that were counted, until a death is explained by each: the counter has those of what tasks started too.

    It is read once a second, and at a death. A process that the kernel has killed takes its time to let go of
    gigabytes, so a kill is remembered for a while; not for ever, or it would explain what somebody else did an hour
    later.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or _own_counter()
        self._seen = self._count()
        self._looked_at = -math.inf
        self._unclaimed: list[float] = []

    def look(self, now: float) -> None:
        """Take note of new kills, once a second at most."""
        if now - self._looked_at >= _LOOK_SECONDS:
            self._note(now)

    def claim(self, now: float) -> bool:
        """Whether there was a kill that may be that of a process found dead now; it explains no other."""
        self._note(now)
        if not self._unclaimed:
            return False
        del self._unclaimed[0]
        return True

    def _note(self, now: float) -> None:
        self._looked_at = now
        count = self._count()
        new, self._seen = max(0, count - self._seen), count
        known = [at for at in self._unclaimed if now - at < _REMEMBERED_SECONDS]
        self._unclaimed = [*known, *([now] * new)]

    def _count(self) -> int:
        if self._path is None:
            return 0
        try:
            lines = self._path.read_text().splitlines()
        except OSError:
            return 0
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
