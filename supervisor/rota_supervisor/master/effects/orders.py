"""Running tasks that somebody cancelled: how their master hears of them, and finds the worker.

`cancel` leaves an order on a list of the node, and a connection of the master waits there. An order stays on the list
until it was taken in, so that none is lost with a connection. One that is lost all the same is found at the next
renewal.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rota.backoff import Backoff
from rota.child.slot_memory import SlotMemory
from rota.child.slot_task import TaskInSlot
from rota.child.slots import Slot
from rota.protocol.replies import CancelOrder, parse_cancel_order
from rota.server.aio_connection import FIRST_RETRY_SECONDS, MOST_RETRY_SECONDS, AioConnection
from rota.server.connection import PARK_SECONDS
from rota.server.server_errors import ServerError
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import Child, Children
from rota_supervisor.master.core.effects import HeldLease
from rota_supervisor.master.core.events import CancelOrdered, Event
from rota_supervisor.master.effects.background import Background

_LOOK_SECONDS: Final = 0.01
_LOOKS: Final = 25  # what is not started by then went back to its lane, and ended there


def cancelled_in(
    worker: Child | HeldLease, slot: Slot, is_meant: Callable[[TaskInSlot], bool], kill_after: float | None = None
) -> list[CancelOrdered]:
    """The orders for those of the tasks that this worker runs that are meant."""
    meant = [task for task in slot.running() if is_meant(task)] if slot.nonce == worker.nonce else []
    return [CancelOrdered(worker.slot, worker.nonce, task.place, task.number, task.id, kill_after) for task in meant]


@dataclass(slots=True, eq=False, repr=False)
class Orders:
    """Waits for orders, and reports those whose task runs. `works` is set while the main connection works: before that
    there is nobody to listen to. `key`: the list of this node."""

    _connection: AioConnection
    _key: str
    _works: asyncio.Event
    _children: Children
    _memory: SlotMemory
    _background: Background
    _happened: Callable[[Event], None]

    async def listen(self) -> None:
        """Take in orders, for ever."""
        backoff = Backoff(FIRST_RETRY_SECONDS, MOST_RETRY_SECONDS)
        while True:
            await self._works.wait()
            try:
                await self._take_one()
                backoff.reset()
            except ServerError:  # of an outage the main connection tells
                await asyncio.sleep(backoff.next_seconds())

    async def _take_one(self) -> None:
        """Wait for the first order, which stays where it is, and take it off the list once it was taken in."""
        raw = await self._connection.execute("BLMOVE", self._key, self._key, "LEFT", "LEFT", PARK_SECONDS)
        if raw is not None:
            self._take_in(raw)
            await self._connection.execute("LREM", self._key, 1, raw)

    def _take_in(self, raw: bytes) -> None:
        try:
            order = parse_cancel_order(raw)
        except ValueError:  # somebody else wrote it
            return
        if not self._report(order):
            self._background.start(self._await_start(order))

    async def _await_start(self, order: CancelOrder) -> None:
        """The claim may be on its way to the worker."""
        for _ in range(_LOOKS):
            await asyncio.sleep(_LOOK_SECONDS)
            if self._report(order):
                return

    def _report(self, order: CancelOrder) -> bool:
        """Whether the task was found to run."""
        child = next((each for each in self._children.of(Role.WORKER) if each.owner == order.owner), None)
        if child is None:
            return False
        meant = order.task_id, str(order.ready_us)
        slot, kill_after = self._memory.slot(child.slot), order.kill_after_seconds
        found = cancelled_in(child, slot, lambda task: (task.id, task.ready) == meant, kill_after)
        for each in found:
            self._happened(each)
        return bool(found)
