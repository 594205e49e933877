"""The audit's search for unplaced tasks. The protocol driver makes all calls of a search."""

from collections.abc import Callable
from typing import Any

from rota.protocol.replies import RestoreStatus
from rota.protocol.scans import Seen, find_unplaced
from rota.protocol.scripts import ScriptCall
from support.protocol import Fleet


def walk(
    fleet: Fleet,
    make_seen: Callable[[int], Seen] = lambda _: set(),
    between: Callable[[ScriptCall[Any]], None] = lambda _: None,
) -> list[str]:
    """Search for unplaced tasks as the audit does, and return their ids. `between` is called with each script call
    before it runs.
    """
    steps = find_unplaced(fleet.store, make_seen)
    answer: Any = None
    while True:
        try:
            call = steps.send(answer)
        except StopIteration as over:
            return [task_id.decode() for task_id in over.value]
        between(call)
        answer = fleet.run(call)


def restore(fleet: Fleet, *ids: str) -> list[RestoreStatus]:
    return fleet.run(fleet.store.restore(ids))
