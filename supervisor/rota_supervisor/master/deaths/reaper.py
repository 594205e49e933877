"""Wait for children: all of them, known or not, without ever losing the number of one that is still needed.

`waitid` looks and leaves the zombie, which holds its number while its group is killed; only then `wait4` takes
it. Stopped and continued children are told by SIGCHLD too.
"""

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rota_supervisor.master.children.births import Births
from rota_supervisor.master.children.child import Child, State
from rota_supervisor.master.children.fleet import Fleet
from rota_supervisor.master.children.hands import Hands
from rota_supervisor.master.children.stacks import name_of
from rota_supervisor.master.deaths import strangers
from rota_supervisor.master.deaths.oom import OomKills
from rota_supervisor.master.deaths.reap import Ending

_LOOK: Final = os.WEXITED | os.WSTOPPED | os.WCONTINUED | os.WNOHANG | os.WNOWAIT
_REMEMBERED_SECONDS: Final = 2.0  # as long as the number of a dead session is surely not given out again
_STOPS: Final = (os.CLD_STOPPED, os.CLD_TRAPPED)


@dataclass(frozen=True, slots=True)
class _Dead:
    """A worker that is gone, for finding what it left behind."""

    traces: strangers.Traces
    at: float


class Reaper:
    """`births` takes in what children report; `died` is told each known one that ended, its slot still to be read."""

    def __init__(self, fleet: Fleet, hands: Hands, births: Births, died: Callable[[Child, Ending], None]) -> None:
        self._fleet = fleet
        self._hands = hands
        self._births = births
        self._died = died
        self._oom_kills = OomKills()
        self._graves: list[_Dead] = []

    def reap(self, now: float) -> None:
        """Take in everything that has happened to children."""
        self._graves = [dead for dead in self._graves if now - dead.at < _REMEMBERED_SECONDS]
        self._oom_kills.look(now)
        while True:
            try:
                seen = os.waitid(os.P_ALL, 0, _LOOK)
            except ChildProcessError:
                break
            if seen is None:
                break
            if seen.si_code in _STOPS or seen.si_code == os.CLD_CONTINUED:
                self._note_stop(seen.si_pid, now if seen.si_code in _STOPS else None)
            else:
                self._bury(seen.si_pid, now)
        if self._graves:
            self._kill_left_behind()

    def _note_stop(self, pid: int, stopped_at: float | None) -> None:
        kind = os.WCONTINUED if stopped_at is None else os.WSTOPPED
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, kind | os.WNOHANG)
        child = self._fleet.by_pid(pid)
        if child is not None:
            child.stopped_at = stopped_at

    def _bury(self, pid: int, now: float) -> None:
        # Its last words first, if it is a zygote, or the report of its birth: both were sent before this death.
        self._births.listen()
        child = self._fleet.by_pid(pid) or self._births.recognised(pid)
        if child is not None:
            self._births.look(child, now)  # one that was READY, if only since we last looked, did not die of its boot
            self._hands.lay_out(child)
        try:
            _, status, usage = os.wait4(pid, 0)
        except ChildProcessError:  # the thread that watches the embedded server was quicker
            return
        if child is None:
            return
        if child.owner:
            self._graves.append(_Dead(strangers.Traces(pid, child.owner, name_of(child)), now))
        oom_killed = child.why is None and status == signal.SIGKILL and self._oom_kills.claim(now)
        self._died(child, Ending(status, oom_killed, usage.ru_maxrss))

    def _kill_left_behind(self) -> None:
        known = {child.pid for child in self._fleet if child.state is not State.EXITED}
        strangers.kill_left_behind([dead.traces for dead in self._graves], known)
