"""Where a task stands, or how it ended, however many ends are remembered."""

from rota.protocol.command import Steps, ask
from rota.protocol.store import Store
from rota.protocol.views import TaskState


def find_task(store: Store, task_id: str) -> Steps[TaskState]:
    """Where an id stands. Looks through the whole memory of ends, a portion at a time."""
    found = yield from ask(store.status(task_id))
    return (yield from look_back(store, task_id, found))


def look_back(store: Store, task_id: str, found: TaskState) -> Steps[TaskState]:
    """What was found of an id; or the end that a further look finds, where the first did not reach the oldest."""
    further = found
    while further.looked_at:
        further = yield from ask(store.status(task_id, further.looked_at))
    return further if further.ended else found
