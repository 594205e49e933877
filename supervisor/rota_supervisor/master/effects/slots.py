"""What the slots of the children show: for the core, where it is something else than before; for people; and for the
watch over claims."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from rota.child.life import NANOSECONDS
from rota.child.slot_memory import SlotMemory
from rota.child.slots import Slot, boottime_ns
from rota.protocol.progress import read_progress
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import AT_WORK, UNSEEN, Child, ChildState
from rota_supervisor.master.core.events import ClaimHeldUp, Event, Look
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.core.status import Glance, SeenTask
from rota_supervisor.master.effects.background import Background

RECALL_AFTER_NS: Final = 25_000_000
LOOK_SECONDS: Final = 0.01
_QUIET_LOOKS: Final = 100  # a second in which nothing waits behind a task ends the watch
_LAST_LOOKS: Final = 5  # and then a few more, as a worker may have claimed just before it could see that


def now_seconds() -> float:
    """The master's clock: CLOCK_BOOTTIME, as the slots have it."""
    return boottime_ns() / NANOSECONDS


def glance_at(state: MasterState, memory: SlotMemory) -> Glance:
    """Read from the slots what people are shown."""
    at_work = [child for child in state.children if child.state in AT_WORK]
    tasks = {child.slot: _seen_in(memory.slot(child.slot)) for child in at_work}
    beats_ns = {child.slot: memory.slot(child.slot).beat_ns for child in state.children}
    return Glance(now_seconds(), time.time(), tasks, beats_ns)


def _seen_in(slot: Slot) -> list[SeenTask]:
    tasks = slot.running()
    return [SeenTask(task, read_progress(slot.record(task.place).progress_of(task.entry))) for task in tasks]


class SlotReader:
    """Looks at slots, and remembers by slot what they showed, and in which state the child was then."""

    def __init__(self, memory: SlotMemory) -> None:
        self._memory = memory
        self._seen: dict[int, tuple[ChildState, Look]] = {}

    def look(self, children: Iterable[Child]) -> tuple[Look, ...]:
        """Of these children those that show something new."""
        return tuple(look for child in children if (look := self._look_at(child)) is not None)

    def _look_at(self, child: Child) -> Look | None:
        number, state = child.slot, child.state
        slot = self._memory.slot(number)
        if state in UNSEEN or slot.nonce != child.nonce or not slot.is_intact:
            return None
        look = Look(
            number,
            child.nonce,
            slot.phase,
            slot.running_times(),
            slot.beat_ns,
            slot.recycle_reason,
            slot.shortest_soft_ns,
            slot.shortest_soft_met_ns,
            slot.has_worked,
            slot.has_outcomes,
            slot.stepping,
        )
        # A child in another state is to be judged by the same look anew.
        if self._seen.get(number) == (state, look):
            return None
        self._seen[number] = state, look
        return look


@dataclass(slots=True, eq=False, repr=False)
class ClaimWatch:
    """The watch over claims: when one task of a claim takes long, those behind it are given back.

    1. A worker that claims several tasks, or one ahead, asks for the watch and rings; while any does, the slots are
       looked at every 10 ms.
    2. A claim that is older than 25 ms with entries unstarted or outcomes not yet sent is recalled: the outcomes are
       taken from the slot, as from that of a dead worker, and everything behind the entry that runs goes back to its
       lane. The worker sends the same outcomes at its next turn, which finds them settled.
    3. The worker starts nothing of a claim without asking once 5 ms are over, and marks what it starts before it looks
       at the clock (`rota.worker.claims`). So an entry that started is seen here, 20 ms later, as started; and what is
       recalled has another text from then on, by which the worker's own late call finds nothing.

    It runs beside the loop, and only while there is something to watch.
    """

    _state: MasterState
    _memory: SlotMemory
    _background: Background
    _happened: Callable[[Event], None]
    _watching: bool = False
    _quiet_looks: int = 0

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
        """Report claims that are held up. Returns whether there are any, or may be in a moment."""
        recalled = self._state.recalled
        held_up = [
            (child, slot)
            for child, slot in self._workers()
            if (number := slot.held_up_by) and recalled.get(child.slot) != (child.nonce, number)
        ]
        for child, slot in held_up:
            claim = slot.held_up()
            if claim is not None and boottime_ns() - claim.task.claimed_ns >= RECALL_AFTER_NS:
                self._happened(ClaimHeldUp(child.slot, child.nonce, claim))
        return bool(held_up)

    def _workers(self) -> list[tuple[Child, Slot]]:
        slot = self._memory.slot
        workers = ((child, slot(child.slot)) for child in self._state.children.of(Role.WORKER) if child.owner)
        return [(child, slot) for child, slot in workers if slot.nonce == child.nonce]
