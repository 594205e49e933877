"""Processes that fell to the master because their own parent died: what a task had started.

Only those are killed that a dead worker left behind: they are of its session, or their environment carries its owner's
name, or they are copies of it, forked and never become another program, which still have its stack file mapped.
Everything else is let live, and reaped when it ends.
"""

import contextlib
import os
import re
import signal
from collections.abc import Collection, Container, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rota_supervisor.layout import OWNER_MARK, STACK_FILE
from rota_supervisor.process import UNREACHABLE

_OWN_PROGRAM: Final = "/proc/self/exe"
_MAPPED: Final = re.compile(rf"/memfd:({STACK_FILE}-\d+-\d+) ".encode())


def children_of_this_process() -> Iterator[int]:
    """The pids of all living children and zombies of this process."""
    try:
        threads = list(Path("/proc/self/task").iterdir())
    except OSError:  # no descriptor is left
        return
    for thread in threads:
        try:
            yield from map(int, (thread / "children").read_text().split())
        except OSError:  # the thread ended, or the kernel keeps no such list
            continue


def session_of(pid: int) -> int:
    """The session of a process, 0 when it is gone or not ours to ask."""
    try:
        return os.getsid(pid)
    except UNREACHABLE:
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


def stack_file_of(pid: int) -> str:
    """The name of the stack file of the worker that the process is a copy of, "" when it is none."""
    try:
        if not Path(f"/proc/{pid}/exe").samefile(_OWN_PROGRAM):
            return ""
        found = _MAPPED.search(Path(f"/proc/{pid}/maps").read_bytes())
    except OSError:  # it is gone, or somebody else's
        return ""
    return "" if found is None else found[1].decode()


class Traces(NamedTuple):
    """What tells whose a process is."""

    session: int
    owner: str
    stack_file: str


def traces_of(pid: int) -> Traces:
    """Its traces, each read once."""
    return Traces(session_of(pid), owner_of(pid), stack_file_of(pid))


def is_left_behind(traces: Traces, dead: Traces) -> bool:
    """Whether a stranger was left behind by a dead worker; of that `session` is its own pid."""
    return (
        traces.session == dead.session
        or (dead.owner != "" and traces.owner == dead.owner)
        or traces.stack_file == dead.stack_file
    )


def kill_left_behind(dead: Collection[Traces], known: Container[int]) -> None:
    """Kill what dead workers have left behind; `known` are children that live. What a killed one has started falls to
    us as that dies, and is found the next time."""
    for pid in children_of_this_process():
        if pid in known:
            continue
        traces = traces_of(pid)
        if any(is_left_behind(traces, each) for each in dead):
            with contextlib.suppress(*UNREACHABLE):
                os.kill(pid, signal.SIGKILL)
