"""The start of a task that may be started once at most: Redis is told of it before the function is called."""

from dataclasses import dataclass

from rota.child.life import Fence, Life
from rota.child.slots import boottime_ns
from rota.child.wait import Waiter
from rota.protocol.entry import Entry, parse_entry
from rota.protocol.store import Store
from rota.server.link import Link
from rota.server.server_errors import ServerError


@dataclass(frozen=True, slots=True)
class Beginner:
    """Marks entries as begun.

    1. The script marks the entry, if this worker still holds it. Killed from here on, the task is dead.
    2. Without an answer nothing is started. The entry goes back to those claimed, and whatever the worker does with it
       next, Redis tells it how the entry stands now: to ask again finds the mark.
    3. The answer may have been long in coming, so the fence is looked at once more.
    """

    life: Life
    store: Store
    link: Link
    waiter: Waiter
    fence: Fence

    def begin(self, entry: Entry) -> Entry | None:
        """The entry as it stands now, which may be started; None when it may not. Raises Orphaned."""
        try:
            begun = self.link.connection().run(self.store.begin(self.life.owner, entry.text))
        except ServerError as error:
            self.waiter.pause(self.link.failed(error))
            return None
        self.link.worked()
        slot, now_ns = self.life.slot, boottime_ns()
        if not begun or not slot.is_intact or self.fence.is_up(now_ns):
            return None
        slot.record(0).begin(begun, now_ns)
        return parse_entry(begun)
