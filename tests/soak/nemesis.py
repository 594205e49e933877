"""The nemesis, which carries out a plan of faults. It records each fault before the fault begins and after it has
ended, and restarts nodes that have ended.
"""

import time
from dataclasses import dataclass
from typing import Final

from soak.act import Act
from soak.evidence import NEMESIS_FILE, Edge, Journal, Strike, now
from soak.faults import KINDS, FaultScope
from soak.keeper import Keeper
from soak.plan import Planned
from soak.testbed import Testbed

_TICK_SECONDS: Final = 0.01
_AGAIN_SECONDS: Final = 0.1
OVER_SECONDS: Final = 60.0  # the effects of all faults must have ended within this time after the last fault


@dataclass(slots=True)
class _Going:
    planned: Planned
    act: Act
    ends_at: float
    again_at: float
    is_undone: bool = False


class Nemesis:
    """The part of the soak that carries out a plan of faults. Call `run` once. Always call `heal`, which undoes the
    faults that are still in effect.
    """

    def __init__(self, testbed: Testbed, seed: int) -> None:
        self._testbed = testbed
        self._seed = seed
        self._journal = Journal(testbed.folder / NEMESIS_FILE)
        self._keepers = [Keeper(node, testbed.oddities) for node in testbed.nodes.values()]
        self._going: list[_Going] = []
        self._skipped = 0
        self._began = time.monotonic()

    def run(self, plan: tuple[Planned, ...], seconds: float) -> None:
        """Carry out the whole plan, and wait until all faults have ended."""
        self._began = time.monotonic()
        waiting = list(plan)
        while (passed := self._passed()) < seconds or (waiting and passed < seconds + OVER_SECONDS):
            while waiting and waiting[0].at_seconds <= passed and not self._has_to_wait(waiting[0]):
                self._begin(waiting.pop(0))
            self._go_on(self._passed())
            time.sleep(_TICK_SECONDS)
        self._testbed.oddities.extend(f"never begun: {planned}" for planned in waiting)
        self.heal()
        self._wait_until_over()

    def keep_nodes(self) -> None:
        """Restart nodes that have ended."""
        for keeper in self._keepers:
            keeper.check()

    def heal(self) -> None:
        """Undo all faults that are still in effect."""
        for going in self._going:
            self._undo(going)

    def _has_to_wait(self, planned: Planned) -> bool:
        """Whether the fault must wait because it changes a node's version while another node still changes its
        version.
        """
        changing = [going for going in self._going if KINDS[going.planned.fault].scope is FaultScope.VERSION]
        return bool(changing) and KINDS[planned.fault].scope is FaultScope.VERSION

    def _passed(self) -> float:
        return time.monotonic() - self._began

    def _begin(self, planned: Planned) -> None:
        act = self._testbed.act_for(planned, self._seed)
        if act is None:
            self._skipped += 1
            return
        self._write(Edge.BEGIN, planned, act)
        act.do()
        passed = self._passed()  # `do` may have taken a while, so the duration of the fault is counted from now
        self._going.append(_Going(planned, act, passed + planned.seconds, passed + _AGAIN_SECONDS))

    def _go_on(self, passed: float) -> None:
        self.keep_nodes()
        for going in list(self._going):
            if passed >= going.ends_at:
                self._undo(going)
            elif passed >= going.again_at:
                going.act.again()
                going.again_at = passed + _AGAIN_SECONDS
            if going.is_undone and going.act.is_over():
                self._write(Edge.END, going.planned, going.act)
                self._going.remove(going)

    def _undo(self, going: _Going) -> None:
        if going.is_undone:
            return
        words = going.act.odd()
        if words:
            self._testbed.oddities.append(f"{going.planned}: {words}")
        going.act.undo()
        going.is_undone = True

    def _wait_until_over(self) -> None:
        deadline = time.monotonic() + OVER_SECONDS
        while self._going and time.monotonic() < deadline:
            self._go_on(float("inf"))
            time.sleep(_TICK_SECONDS)
        for going in self._going:
            self._testbed.oddities.append(f"not over {OVER_SECONDS:g} s after its end: {going.planned}")

    def _write(self, what: Edge, planned: Planned, act: Act) -> None:
        detail = f"#{planned.number} {act.detail}".rstrip()
        strike = Strike(what, planned.number, planned.fault, planned.target, *now(), pids=act.pids, detail=detail)
        self._journal.write(strike)
