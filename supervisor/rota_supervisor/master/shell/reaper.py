"""Wait for children: all of them, known or not, without ever losing the number of one that is still needed.

`waitid` looks and leaves the zombie, which holds its number while its group is killed; only then `wait4` takes
it. SIGCHLD reports stopped and continued children too.

*Strangers* are processes that fell to the master because their own parent died: what a task had started. Only those are
killed that a dead worker left behind: they are of its session, or their environment carries its owner's name, or they
are copies of it, forked and never become another program, which still have its stack file mapped. Everything else is
let live, and reaped when it ends.
"""

import contextlib
import math
import os
import re
import signal
import time
from collections.abc import Callable, Collection, Container, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rota.child.slot_memory import SlotMemory
from rota.protocol.outcome import settlements_in
from rota.telemetry import log
from rota_supervisor import messages
from rota_supervisor.layout import OWNER_MARK, STACK_FILE, Role
from rota_supervisor.master.core.children import Child, ChildState
from rota_supervisor.master.core.master_events import Died, Event, ProcessEnd, StopSeen, ZygoteSaid
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.effects.processes import Stacks, kill_group, name_of
from rota_supervisor.process import UNREACHABLE, cpu_seconds_of

_LOOK: Final = os.WEXITED | os.WSTOPPED | os.WCONTINUED | os.WNOHANG | os.WNOWAIT
_REMEMBERED_SECONDS: Final = 2.0  # as long as the number of a dead session is surely not given out again
_STOPS: Final = (os.CLD_STOPPED, os.CLD_TRAPPED)
_OWN_PROGRAM: Final = "/proc/self/exe"
_MAPPED: Final = re.compile(rf"/memfd:({STACK_FILE}-\d+-\d+) ".encode())
_MOUNTED: Final = Path("/sys/fs/cgroup")
_ENDS_ALL: Final = (
    "when a task takes too much memory, the kernel kills the master and all its children with it. "
    "Set OOMPolicy=continue in a unit of systemd, singleProcessOOMKill in the configuration of a kubelet"
)
_LOOK_SECONDS: Final = 1.0
_KILL_REMEMBERED_SECONDS: Final = 10.0


class Traces(NamedTuple):
    """By what a process that was left behind is known: its session, its owner, its stack file's name."""

    session: int
    owner: str
    stack_file: str


class Reaper:
    """Tells `happened` what became of children."""

    def __init__(
        self, state: MasterState, memory: SlotMemory, stacks: Stacks, happened: Callable[[Event], None]
    ) -> None:
        self._state = state
        self._memory = memory
        self._stacks = stacks
        self._happened = happened
        self._oom_kills = OomKills()
        self._dead: list[tuple[float, Traces]] = []

    def reap(self, now: float, listen: Callable[[Child | None], None]) -> None:
        """Take in everything that has happened to children. `listen` takes in what zygotes said before that, and looks
        at the slot of one child."""
        self._dead = [(at, traces) for at, traces in self._dead if now - at < _REMEMBERED_SECONDS]
        self._oom_kills.look(now)
        while True:
            try:
                seen = os.waitid(os.P_ALL, 0, _LOOK)
            except ChildProcessError:
                break
            if seen is None:
                break
            if seen.si_code in _STOPS or seen.si_code == os.CLD_CONTINUED:
                self._note_stop(seen.si_pid, stopped=seen.si_code in _STOPS)
            else:
                self._bury(seen.si_pid, now, listen)
        if self._dead:
            known = {child.pid for child in self._state.children if child.state is not ChildState.EXITED}
            kill_left_behind([traces for _, traces in self._dead], known)

    def _note_stop(self, pid: int, *, stopped: bool) -> None:
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, (os.WSTOPPED if stopped else os.WCONTINUED) | os.WNOHANG)
        child = self._state.children.by_pid(pid)
        if child is not None:
            self._happened(StopSeen(child.slot, child.nonce, stopped))

    def _bury(self, pid: int, now: float, listen: Callable[[Child | None], None]) -> None:
        # Its last words first, if it is a zygote, or the report of its birth: both were sent before this death.
        listen(None)
        child = self._known(pid)
        if child is not None:
            listen(child)  # one that was READY, if only since we last looked, did not die of its boot
            kill_group(pid)
            slot = self._memory.slot(child.slot)
            slot.vacate()
            if slot.is_intact and (lines := slot.held_lines.left_behind()):
                log.logger().write(lines)
        cpu_seconds = cpu_seconds_of(pid)  # as the exporter saw it, while it lived
        try:
            _, status, usage = os.wait4(pid, 0)
        except ChildProcessError:  # the thread that watches the embedded server was quicker
            return
        if child is not None:
            if child.owner:
                self._dead.append((now, Traces(child.pid, child.owner, name_of(child.ref))))
            oom_killed = child.why is None and status == signal.SIGKILL and self._oom_kills.claim(now)
            self._happened(self._death_of(child, ProcessEnd(status, oom_killed, usage.ru_maxrss, cpu_seconds)))

    def _known(self, pid: int) -> Child | None:
        """The child that is this process. A worker may have come into its slot, and whoever was to report that died."""
        child = self._state.children.by_pid(pid)
        if child is not None:
            return child
        for child in self._state.children.of(Role.WORKER):
            slot = self._memory.slot(child.slot)
            if not child.pid and slot.pid == pid and slot.nonce == child.nonce:
                self._happened(ZygoteSaid(child.generation, messages.Spawned(child.slot, child.nonce, pid)))
                return child
        return None

    def _death_of(self, child: Child, ending: ProcessEnd) -> Died:
        slot = self._memory.slot(child.slot)
        return Died(
            child.slot,
            child.nonce,
            ending,
            tuple(slot.running()),
            settlements_in(*slot.outcomes()),
            slot.has_worked,
            self._stacks.text(child.ref),
            time.time(),
            slot.is_intact,
        )


# What a dead worker has left behind


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


def traces_of(pid: int) -> Traces:
    """What is to be read of it; its session is 0 when it is gone or not ours to ask."""
    try:
        session = os.getsid(pid)
    except UNREACHABLE:
        session = 0
    return Traces(session, owner_of(pid), stack_file_of(pid))


def is_left_behind(traces: Traces, dead: Traces) -> bool:
    """Whether a stranger was left behind by a dead worker, whose `session` is its own pid."""
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


# The kernel's evidence of out-of-memory kills: the counter of our cgroup, of version 2 or 1, and whom it kills


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


def warnings_of_oom(counter: Path | None = None) -> list[str]:
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
        known = [at for at in self._unclaimed if now - at < _KILL_REMEMBERED_SECONDS]
        self._unclaimed = [*known, *([now] * new)]

    def _count(self) -> int:
        if self._path is None:
            return 0
        try:
            lines = self._path.read_text().splitlines()
        except OSError:
            return 0
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
