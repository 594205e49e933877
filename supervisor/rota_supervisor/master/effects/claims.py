"""The watch over claims: when one task of a claim takes long, those behind it are given back.

1. A worker that claims several tasks asks for the watch and rings; while any does, the slots are looked at every 10 ms.
2. A claim that is older than 25 ms with entries unstarted or outcomes untold is recalled: the outcomes are taken from
   the slot, as from that of a dead worker, and everything behind the entry that runs goes back to its lane. The worker
   tells the same outcomes at its next turn, which finds them settled.
3. The worker starts nothing of a claim without asking once 5 ms are over, and says what it starts before it looks at
   the clock (`rota.worker.claims`). So an entry that started is seen here, 20 ms later, as started; and what is
   recalled has another text from then on, by which the worker's own late call finds nothing.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from rota.child.slot_memory import SlotMemory
from rota.child.slots import Slot, boottime_ns
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import Child
from rota_supervisor.master.core.events import ClaimHeldUp, Event
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.effects.background import Background

RECALL_AFTER_NS: Final = 25_000_000
LOOK_SECONDS: Final = 0.01
_QUIET_LOOKS: Final = 100  # a second without a claim of several ends the watch
_LAST_LOOKS: Final = 5  # and then a few more, as a worker may have claimed just before it could see that


class ClaimWatch:
    """It runs beside the loop, and only while there is something to watch."""

    def __init__(
        self, state: MasterState, memory: SlotMemory, background: Background, happened: Callable[[Event], None]
    ) -> None:
        self._state = state
        self._memory = memory
        self._background = background
        self._happened = happened
        self._watching = False
        self._quiet_looks = 0

    def rung(self) -> None:
        """Somebody rang: begin the watch if a worker asks for it."""
        granted = [slot.grant_watch() for _, slot in self._workers()]
        if not any(granted):
            return
        self._quiet_looks = 0
        if not self._watching:
            self._watching = True
            self._background.start(self._watch())

    async def _watch(self) -> None:
        try:
            while self._quiet_looks < _QUIET_LOOKS + _LAST_LOOKS:
                await asyncio.sleep(LOOK_SECONDS)
                self._quiet_looks = 0 if self._look() else self._quiet_looks + 1
                if self._quiet_looks == _QUIET_LOOKS:
                    self._end_watches()
        finally:  # whatever ended it: workers ask again
            self._watching = False
            self._end_watches()

    def _end_watches(self) -> None:
        for _, slot in self._workers():
            slot.end_watch()

    def _look(self) -> bool:
        """Tell of claims that are held up; whether there are any, or may be in a moment."""
        recalled = self._state.recalled
        held_up = [
            (child, slot)
            for child, slot in self._workers()
            if (number := slot.held_up_by) and recalled.get(child.slot) != (child.nonce, number)
        ]
        for child, slot in held_up:
            self._tell(child, slot)
        return bool(held_up)

    def _tell(self, child: Child, slot: Slot) -> None:
        held_up = slot.held_up()
        if held_up is not None and boottime_ns() - held_up.task.claimed_ns >= RECALL_AFTER_NS:
            self._happened(ClaimHeldUp(child.slot, child.nonce, held_up))

    def _workers(self) -> list[tuple[Child, Slot]]:
        slot = self._memory.slot
        workers = ((child, slot(child.slot)) for child in self._state.children.of(Role.WORKER) if child.owner)
        return [(child, slot) for child, slot in workers if slot.nonce == child.nonce]
