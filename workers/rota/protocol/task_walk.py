"""Where a task stands, how it ended, however many ends are remembered, or what it follows."""

from dataclasses import replace

from rota.protocol.command import Command, Steps, ask
from rota.protocol.replies import Raw
from rota.protocol.store import Store
from rota.protocol.views import TaskState

PENDING = "pending"
_UNKNOWN = "unknown"


def find_task(store: Store, task_id: str) -> Steps[TaskState]:
    """Where an id stands. Looks through the whole memory of ends, a portion at a time."""
    found = yield from ask(store.status(task_id))
    return (yield from look_back(store, task_id, found))


def look_back(store: Store, task_id: str, found: TaskState) -> Steps[TaskState]:
    """What was found of an id; or the end that a further look finds, where the first did not reach the oldest; or
    what it follows, if it is not known otherwise."""
    further = found
    while further.looked_at:
        further = yield from ask(store.status(task_id, further.looked_at))
    if further.ended or found.state != _UNKNOWN:
        return further if further.ended else found
    if follows := (yield from _predecessor(store, task_id)):
        return replace(found, state=PENDING, follows=follows)
    # Its turn may have come while the chains and groups were looked through.
    return (yield from ask(_readable(store.status(task_id), found)))


def _readable(status: Command[TaskState], otherwise: TaskState) -> Command[TaskState]:
    """Have a reply that cannot be read, where something foreign is among the ends, count as `otherwise`."""

    def parse(raw: Raw) -> TaskState:
        try:
            return status.parse(raw)
        except ValueError:
            return otherwise

    return replace(status, parse=parse)


def _predecessor(store: Store, task_id: str) -> Steps[str]:
    """What a task follows that is not enqueued yet; "" if it follows nothing."""
    found = yield from ask(store.pending(task_id, ""))
    while found.cursor:
        found = yield from ask(store.pending(task_id, found.cursor))
    return found.name
