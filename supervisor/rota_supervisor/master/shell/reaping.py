"""Wait for children: all of them, known or not, without ever losing the number of one that is still needed.

`waitid` looks and leaves the zombie, which holds its number while its group is killed; only then `wait4` takes
it. Stopped and continued children are told by SIGCHLD too.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rota.child.slot_memory import SlotMemory
from rota.protocol.outcome import settlements_in
from rota_supervisor import messages
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import Child, ChildState
from rota_supervisor.master.core.events import Died, Event, ProcessEnd, StopSeen, ZygoteSaid
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.effects.processes import kill_group
from rota_supervisor.master.effects.stacks import Stacks, name_of
from rota_supervisor.master.shell import strangers
from rota_supervisor.master.shell.oom import OomKills

_LOOK: Final = os.WEXITED | os.WSTOPPED | os.WCONTINUED | os.WNOHANG | os.WNOWAIT
_REMEMBERED_SECONDS: Final = 2.0  # as long as the number of a dead session is surely not given out again
_STOPS: Final = (os.CLD_STOPPED, os.CLD_TRAPPED)


@dataclass(frozen=True, slots=True)
class _Remembered:
    """A worker that is gone, for finding what it left behind."""

    traces: strangers.Traces
    at: float


class Reaper:
    """Tells `happened` what became of children."""

    def __init__(
        self,
        state: MasterState,
        memory: SlotMemory,
        stacks: Stacks,
        happened: Callable[[Event], None],
    ) -> None:
        self._state = state
        self._memory = memory
        self._stacks = stacks
        self._happened = happened
        self._oom_kills = OomKills()
        self._dead: list[_Remembered] = []

    def reap(self, now: float, listen: Callable[[Child | None], None]) -> None:
        """Take in everything that has happened to children. `listen` takes in what zygotes said before that, and looks
        at the slot of one child."""
        self._dead = [dead for dead in self._dead if now - dead.at < _REMEMBERED_SECONDS]
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
            self._kill_left_behind()

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
            self._memory.slot(child.slot).vacate()
        try:
            _, status, usage = os.wait4(pid, 0)
        except ChildProcessError:  # the thread that watches the embedded server was quicker
            return
        if child is not None:
            self._remember(child, now)
            oom_killed = child.why is None and status == signal.SIGKILL and self._oom_kills.claim(now)
            self._happened(self._death_of(child, ProcessEnd(status, oom_killed, usage.ru_maxrss)))

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
            slot.current_task(),
            settlements_in(*slot.outcomes()),
            slot.tasks_ended > 0,
            self._stacks.text(child.ref),
            time.time(),
            slot.is_intact,
        )

    # What a dead worker has left behind

    def _remember(self, child: Child, now: float) -> None:
        if child.owner:
            traces = strangers.Traces(child.pid, child.owner, name_of(child.ref))
            self._dead.append(_Remembered(traces, now))

    def _kill_left_behind(self) -> None:
        known = {child.pid for child in self._state.children if child.state is not ChildState.EXITED}
        strangers.kill_left_behind([dead.traces for dead in self._dead], known)
