"""What the slots say of the children, written into their records before the next plan."""

import math
from typing import Final

from rota.child.slots import Phase, Slot
from rota_supervisor.master.children import Child, State

NANOSECONDS: Final = 1_000_000_000
_SERVING: Final = frozenset({Phase.IDLE, Phase.BUSY, Phase.QUIET})


def observe(child: Child, slot: Slot, now: float, awake_since: float) -> bool:
    """Update a child from its slot; True when the child is READY for the first time.

    `awake_since`: when the master last came back from being stopped. Silence from before that is not held
    against anybody: the whole machine may have slept.
    """
    if slot.nonce != child.nonce or child.state in (State.REGISTERING, State.KILLED, State.EXITED):
        return False
    child.awake_since = awake_since
    task = slot.current_task()
    child.busy = task is not None
    child.task_until = task.deadline_ns / NANOSECONDS if task is not None and task.deadline_ns else math.inf
    # Silence begins when a task ends, however long ago the last beat before it was.
    spoke_at = now if child.busy else slot.beat_ns / NANOSECONDS
    child.beat_at = max(child.beat_at, spoke_at, awake_since)
    if child.state is State.BOOTING and slot.phase in _SERVING:
        child.move(State.READY)
        child.ready_at = now
        return True
    return False
