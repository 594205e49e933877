"""What the slots show of the children, written into their records."""

import math
from typing import Final

from rota.child.slots import Phase, RecycleReason
from rota_supervisor.layout import TICK_SECONDS, Role
from rota_supervisor.master.core import reloading
from rota_supervisor.master.core.children import UNSEEN, Child, ChildState
from rota_supervisor.master.core.effects import Effect
from rota_supervisor.master.core.events import Look, Looked
from rota_supervisor.master.core.reasons import Reason
from rota_supervisor.master.core.state import MasterState

NANOSECONDS: Final = 1_000_000_000
_SERVING: Final = frozenset({Phase.IDLE, Phase.BUSY, Phase.QUIET})
_REASONS_TO_RECYCLE: Final = {
    RecycleReason.NONE: None,
    RecycleReason.MAX_TASKS: Reason.MAX_TASKS,
    RecycleReason.MAX_RSS: Reason.MAX_RSS,
}


def looked(state: MasterState, event: Looked, now: float) -> list[Effect]:
    """The slots of some children show something new."""
    return [effect for look in event.looks for effect in _looked_at(state, look, now)]


def _looked_at(state: MasterState, look: Look, now: float) -> list[Effect]:
    child = state.children.get(look.slot, look.nonce)
    if child is None or child.state in UNSEEN:
        return []
    note(child, look, now, state.ticked_at)
    if child.state is not ChildState.BOOTING or look.phase not in _SERVING:
        return []
    return _ready(state, child, now)


def _ready(state: MasterState, child: Child, now: float) -> list[Effect]:
    """A child is READY, for the first time: that ends the back-off of its pool."""
    child.move(ChildState.READY)
    child.ready_at = now
    state.backoffs[child.key] = state.backoff_of(child.key).after_ready(now)
    return reloading.zygote_ready(state, child, now) if child.role is Role.ZYGOTE else []


def note(child: Child, look: Look, now: float, looked_before: float) -> None:
    """Write into a child's record what its slot shows. `looked_before`: when the slots were last looked at."""
    beat_at = look.beat_ns / NANOSECONDS
    # The silence of a child begins when a task ends, however long ago its last beat before the task was.
    spoke_at = looked_before if child.busy else 0.0
    # What lies further ahead is no time at which it can have beaten.
    child.beat_at = max(child.beat_at, spoke_at, beat_at if beat_at <= now + TICK_SECONDS else 0.0)
    _note_task(child, look)
    child.is_quiet = look.phase is Phase.QUIET
    child.has_worked = look.has_worked
    if child.role is Role.WORKER:
        child.in_hand = child.busy or look.has_outcomes
        child.recycle_for = _REASONS_TO_RECYCLE[look.wish]
        child.shortest_soft_seconds = look.shortest_soft_ns / NANOSECONDS or math.inf
        child.shortest_soft_met_at = look.shortest_soft_met_ns / NANOSECONDS
    if child.state is ChildState.DRAINING:
        _note_whether_it_leaves(child, look, looked_before)


def _note_task(child: Child, look: Look) -> None:
    task = look.task
    child.busy = task is not None
    child.task_until = child.soft_until = math.inf
    if task is not None and task.deadline_ns:
        child.task_until = task.deadline_ns / NANOSECONDS
    if task is not None and task.soft_deadline_ns:
        child.soft_until = task.soft_deadline_ns / NANOSECONDS


def _note_whether_it_leaves(child: Child, look: Look, looked_before: float) -> None:
    """Whether a child that was told to leave has begun to. It cannot, in the task in which it was told."""
    if look.phase is Phase.DRAINING:
        child.unheard_since = math.inf
        child.told_at = -math.inf
    elif look.task is not None and look.task.started_ns / NANOSECONDS <= child.told_at:
        child.unheard_since = math.inf
    elif child.unheard_since == math.inf and child.told_at > -math.inf:
        child.unheard_since = max(child.told_at, looked_before)
