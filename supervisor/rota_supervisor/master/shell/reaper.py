"""Reap all children of this process, and kill the processes that they leave behind.

A pid must not be free for reuse while it is still needed. Therefore `waitid` with WNOWAIT reports a dead child but
leaves the zombie, so that the pid stays reserved until the child's process group has been killed. Only then does
`wait4` reap the child. If `wait4` came first, the kill could hit a new process with the same pid. SIGCHLD reports
stopped and continued children too.

*Adopted orphans* are processes that were reparented to the master because their own parent died, for example processes
that a task had started. The master kills an adopted orphan only if a dead worker left it behind. The master recognizes
such an orphan in three ways: it is in the worker's session, its environment contains the worker's owner name, or it is
a forked copy of the worker that still maps the worker's stack file because it has not executed another program. All
other orphans continue to run, and are reaped when they end.
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
from rota_supervisor.master.core.master_events import Died, Event, ProcessEnd, StopSeen, ZygoteReported
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.effects.processes import Stacks, kill_group, name_of
from rota_supervisor.process import UNREACHABLE, cpu_seconds_of

_WAIT_OPTIONS: Final = os.WEXITED | os.WSTOPPED | os.WCONTINUED | os.WNOHANG | os.WNOWAIT
_REMEMBERED_SECONDS: Final = 2.0  # a session id is not reused this soon after the death of its leader
_STOPS: Final = (os.CLD_STOPPED, os.CLD_TRAPPED)
_OWN_PROGRAM: Final = "/proc/self/exe"
_MAPPED: Final = re.compile(rf"/memfd:({STACK_FILE}-\d+-\d+) ".encode())
_MOUNTED: Final = Path("/sys/fs/cgroup")
_ENDS_ALL: Final = (
    "when a task takes too much memory, the kernel kills the master and all its children with it. "
    "Set OOMPolicy=continue in the systemd unit, or singleProcessOOMKill in the configuration of the kubelet"
)
_POLL_SECONDS: Final = 1.0
_KILL_REMEMBERED_SECONDS: Final = 10.0


class Traces(NamedTuple):
    """The properties by which the master recognizes that a worker has left a process behind."""

    session: int
    owner: str
    stack_file: str  # the name of the worker's stack file, or ""


class Reaper:
    """The reaper of the master's children. `happened` is called with the resulting events."""

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
        """Handle all deaths, stops and continuations of children since the last call.

        `listen` is called at each death. It handles the messages that have arrived from zygotes, and then reads the
        slot of the child that it is given, unless it is given None.
        """
        self._dead = [(at, traces) for at, traces in self._dead if now - at < _REMEMBERED_SECONDS]
        self._oom_kills.poll(now)
        while True:
            try:
                seen = os.waitid(os.P_ALL, 0, _WAIT_OPTIONS)
            except ChildProcessError:
                break
            if seen is None:
                break
            if seen.si_code in _STOPS or seen.si_code == os.CLD_CONTINUED:
                self._note_stop(seen.si_pid, stopped=seen.si_code in _STOPS)
            else:
                self._reap_child(seen.si_pid, now, listen)
        if self._dead:
            known = {child.pid for child in self._state.children if child.state is not ChildState.EXITED}
            kill_left_behind([traces for _, traces in self._dead], known)

    def _note_stop(self, pid: int, *, stopped: bool) -> None:
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, (os.WSTOPPED if stopped else os.WCONTINUED) | os.WNOHANG)
        child = self._state.children.by_pid(pid)
        if child is not None:
            self._happened(StopSeen(child.slot, child.nonce, stopped))

    def _reap_child(self, pid: int, now: float, listen: Callable[[Child | None], None]) -> None:
        # First handle the messages of zygotes, such as reports of new workers, because they were sent before this
        # death.
        listen(None)
        child = self._known(pid)
        if child is not None:
            listen(child)  # The child may have become READY since the last reading.
            kill_group(pid)
            slot = self._memory.slot(child.slot)
            slot.vacate()
            if slot.is_intact and (lines := slot.held_lines.left_behind()):
                log.logger().write(lines)
        cpu_seconds = cpu_seconds_of(pid)  # read from the same file as the exporter's values for living processes
        try:
            _, status, usage = os.wait4(pid, 0)
        except ChildProcessError:  # The thread that watches the embedded server has already reaped this process.
            return
        if child is not None:
            if child.owner:
                self._dead.append((now, Traces(child.pid, child.owner, name_of(child.ref))))
            oom_killed = child.why is None and status == signal.SIGKILL and self._oom_kills.claim(now)
            self._happened(self._death_of(child, ProcessEnd(status, oom_killed, usage.ru_maxrss, cpu_seconds)))

    def _known(self, pid: int) -> Child | None:
        """Return the child with this pid, or None for an adopted orphan.

        A worker is forked by a short-lived process of its zygote, which then reports the worker's pid. If that process
        died before the report, the master finds the pid in the worker's slot.
        """
        child = self._state.children.by_pid(pid)
        if child is not None:
            return child
        for child in self._state.children.of(Role.WORKER):
            slot = self._memory.slot(child.slot)
            if not child.pid and slot.pid == pid and slot.nonce == child.nonce:
                self._happened(ZygoteReported(child.generation, messages.Spawned(child.slot, child.nonce, pid)))
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


# The processes that a dead worker has left behind


def children_of_this_process() -> Iterator[int]:
    """Yield the pids of all children of this process, including zombies."""
    try:
        threads = list(Path("/proc/self/task").iterdir())
    except OSError:  # No file descriptor is left.
        return
    for thread in threads:
        try:
            yield from map(int, (thread / "children").read_text().split())
        except OSError:  # The thread has ended, or the kernel does not provide this list.
            continue


def owner_of(pid: int) -> str:
    """Return the owner whose task started the process, according to the environment of the process. Returns "" if the
    environment names no owner or cannot be read."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return ""
    mark = f"{OWNER_MARK}=".encode()
    found = next((entry for entry in environment.split(b"\0") if entry.startswith(mark)), b"")
    return found.removeprefix(mark).decode(errors="replace")


def stack_file_of(pid: int) -> str:
    """If the process is a forked copy of a worker, return the name of the worker's stack file. Otherwise return ""."""
    try:
        if not Path(f"/proc/{pid}/exe").samefile(_OWN_PROGRAM):
            return ""
        found = _MAPPED.search(Path(f"/proc/{pid}/maps").read_bytes())
    except OSError:  # The process has ended, or it belongs to another user.
        return ""
    return "" if found is None else found[1].decode()


def traces_of(pid: int) -> Traces:
    """Return the traces of a living process. If the process has ended in the meantime or cannot be accessed, the
    session in the traces is 0, which matches no worker."""
    try:
        session = os.getsid(pid)
    except UNREACHABLE:
        session = 0
    return Traces(session, owner_of(pid), stack_file_of(pid))


def is_left_behind(traces: Traces, dead: Traces) -> bool:
    """Whether a dead worker left this adopted orphan behind. `dead`: the traces of the worker, whose session is its own
    pid."""
    return (
        traces.session == dead.session
        or (dead.owner != "" and traces.owner == dead.owner)
        or traces.stack_file == dead.stack_file
    )


def kill_left_behind(dead: Collection[Traces], known: Container[int]) -> None:
    """Send SIGKILL to the processes that dead workers have left behind. `known`: the pids of living children.

    The children of a killed process are then reparented to the master, and the next call finds them.
    """
    for pid in children_of_this_process():
        if pid in known:
            continue
        traces = traces_of(pid)
        if any(is_left_behind(traces, each) for each in dead):
            with contextlib.suppress(*UNREACHABLE):
                os.kill(pid, signal.SIGKILL)


# The kernel's evidence of out-of-memory kills: the counter of the master's cgroup (version 1 or 2), and whether the
# kernel kills all processes of the cgroup together.


def counter_of(groups: str, mounted: Path = _MOUNTED) -> Path | None:
    """Return the file in which the kernel counts out-of-memory kills, in the line `oom_kill`. Return None if there is
    no such file. `groups`: the text of `/proc/PID/cgroup`.

    In a container with cgroup version 1, the path in this text is valid only on the host. The group itself is then
    mounted at `mounted`/memory.
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
    """Return a list with a warning if the kernel would kill the whole fleet when one task takes too much memory.
    Otherwise return an empty list."""
    counter = counter or _own_counter()
    if counter is None:
        return []
    group = counter.with_name("memory.oom.group")
    try:
        return [f"{group} is 1: {_ENDS_ALL}"] if int(group.read_text()) == 1 else []
    except (OSError, ValueError):  # In cgroup version 1 and in older kernels, the file does not exist.
        return []


class OomKills:
    """The counted out-of-memory kills that have not been matched with a death yet.

    The counter includes kills of processes that tasks have started. It is read once a second, and at each death. A
    killed process may take a while to release gigabytes of memory and die, so a kill is remembered for
    _KILL_REMEMBERED_SECONDS. It is forgotten after that, so that it is not taken as the reason for an unrelated SIGKILL
    an hour later.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or _own_counter()
        self._seen = self._count()
        self._polled_at = -math.inf
        self._unclaimed: list[float] = []

    def poll(self, now: float) -> None:
        """Count new kills by the OOM killer, at most once a second."""
        if now - self._polled_at >= _POLL_SECONDS:
            self._note(now)

    def claim(self, now: float) -> bool:
        """Match a process that has just been found dead with one of the counted kills. Returns whether there was one to
        match."""
        self._note(now)
        if not self._unclaimed:
            return False
        del self._unclaimed[0]
        return True

    def _note(self, now: float) -> None:
        self._polled_at = now
        count = self._count()
        new = max(0, count - self._seen)
        self._seen = count
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
