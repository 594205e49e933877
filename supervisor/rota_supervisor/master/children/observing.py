"""What the slots say of the children, written into their records before the next plan."""

import math
from typing import Final

from rota.child.slot_task import TaskTimes
from rota.child.slots import Phase, RecycleWish, Slot
from rota_supervisor.layout import Role
from rota_supervisor.master.children.child import Child, Reason, State

NANOSECONDS: Final = 1_000_000_000
URGENT_SECONDS: Final = 65.0  # a worker rings again for a soft limit that it has not met for 60 s
_SERVING: Final = frozenset({Phase.IDLE, Phase.BUSY, Phase.QUIET})
_SHOWS_NOTHING: Final = frozenset({State.REGISTERING, State.KILLED, State.EXITED})
_WISHES: Final = {
    RecycleWish.NONE: None,
    RecycleWish.MAX_TASKS: Reason.MAX_TASKS,
    RecycleWish.MAX_RSS: Reason.MAX_RSS,
}


def observe(child: Child, slot: Slot, now: float, awake_since: float) -> bool:
    """Update a child from its slot; True when the child is READY for the first time.

    `awake_since`: when the master last came back from being stopped. Silence from before that is not held
    against anybody: the whole machine may have slept.
    """
    if slot.nonce != child.nonce or child.state in _SHOWS_NOTHING:
        return False
    child.awake_since = awake_since
    phase, task = slot.phase, slot.task_times()
    _note_task(child, task)
    # Silence begins when a task ends, however long ago the last beat before it was.
    spoke_at = now if child.busy else slot.beat_ns / NANOSECONDS
    child.beat_at = max(child.beat_at, spoke_at, awake_since)
    child.is_quiet = phase is Phase.QUIET
    if child.role is Role.WORKER:
        _note_needs(child, slot, now)
    if child.state is State.DRAINING:
        _note_whether_it_heard(child, phase, task, now)
    if child.state is State.BOOTING and phase in _SERVING:
        child.move(State.READY)
        child.ready_at = now
        return True
    return False


def _note_task(child: Child, task: TaskTimes | None) -> None:
    child.busy = task is not None
    child.task_until = child.soft_until = math.inf
    if task is None:
        return
    if task.deadline_ns:
        child.task_until = task.deadline_ns / NANOSECONDS
    if task.soft_deadline_ns:
        child.soft_until = task.soft_deadline_ns / NANOSECONDS


def _note_needs(child: Child, slot: Slot, now: float) -> None:
    """What a worker would have of its master."""
    child.wish = _WISHES[slot.recycle_wish]
    shortest_ns = slot.shortest_soft_ns
    # A task that beats has its soft limit anew, however long ago it began.
    is_urgent = child.soft_until < math.inf or now - slot.shortest_soft_met_ns / NANOSECONDS < URGENT_SECONDS
    child.shortest_soft_seconds = shortest_ns / NANOSECONDS if shortest_ns and is_urgent else math.inf


def _note_whether_it_heard(child: Child, phase: Phase, task: TaskTimes | None, now: float) -> None:
    """That it is to leave. It cannot have, inside a task that it began before it was told."""
    if phase is Phase.DRAINING:
        child.deaf_since = math.inf
    elif task is not None and task.started_ns / NANOSECONDS <= child.deaf_since:
        child.deaf_since = now
