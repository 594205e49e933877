"""What the slots of the children show: for the core, where it is something else than before, and for people."""

import time
from collections.abc import Iterable

from rota.child.slot_memory import SlotMemory
from rota.child.slots import boottime_ns
from rota_supervisor.master.core.children import AT_WORK, UNSEEN, Child, ChildState
from rota_supervisor.master.core.events import Look
from rota_supervisor.master.core.looking import NANOSECONDS
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.core.status import Glance


def now_seconds() -> float:
    """The master's clock: CLOCK_BOOTTIME, as the slots have it."""
    return boottime_ns() / NANOSECONDS


def glance_at(state: MasterState, memory: SlotMemory) -> Glance:
    """Read from the slots what people are shown."""
    at_work = [child for child in state.children if child.state in AT_WORK]
    tasks = {child.slot: memory.slot(child.slot).current_task() for child in at_work}
    beats_ns = {child.slot: memory.slot(child.slot).beat_ns for child in state.children}
    running = {slot: task for slot, task in tasks.items() if task is not None}
    return Glance(now_seconds(), time.time(), running, beats_ns)


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
            slot.task_times(),
            slot.beat_ns,
            slot.recycle_reason,
            slot.shortest_soft_ns,
            slot.shortest_soft_met_ns,
            slot.tasks_ended > 0,
            slot.has_outcomes,
        )
        # A child in another state is to be judged by the same look anew.
        if self._seen.get(number) == (state, look):
            return None
        self._seen[number] = state, look
        return look
