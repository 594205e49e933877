"""Processes that fell to the master because their own parent died: what a task had started.

Only those are killed that a dead worker left behind: they are of its session, or their environment carries
its owner's name. Everything else is let live, and reaped when it ends.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from rota_supervisor.layout import OWNER_MARK


def children_of_this_process() -> Iterator[int]:
    """The pids of all living children and zombies of this process."""
    for thread in Path("/proc/self/task").iterdir():
        try:
            yield from map(int, (thread / "children").read_text().split())
        except OSError:  # the thread ended, or the kernel keeps no such list
            continue


def session_of(pid: int) -> int:
    """The session of a process, 0 when it is gone."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def owner_of(pid: int) -> str:
    """The owner whose task started the process, "" when its environment names none or is not readable."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return ""
    mark = f"{OWNER_MARK}=".encode()
    found = next((entry for entry in environment.split(b"\0") if entry.startswith(mark)), b"")
    return found.removeprefix(mark).decode(errors="replace")


def is_left_behind(pid: int, dead_session: int, dead_owner: str) -> bool:
    """Whether a stranger was left behind by the dead worker of that session and owner."""
    return session_of(pid) == dead_session or (dead_owner != "" and owner_of(pid) == dead_owner)
