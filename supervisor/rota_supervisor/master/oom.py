"""The kernel's evidence of out-of-memory kills: the counter of our cgroup."""

from pathlib import Path


def _memory_events() -> Path | None:
    """The events file of this process's cgroup (v2), or None where there is none."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    own = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    return None if own is None else Path(f"/sys/fs/cgroup{own}/memory.events")


class OomKills:
    """Tells how many kills were counted since it was last asked."""

    def __init__(self) -> None:
        self._path = _memory_events()
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
