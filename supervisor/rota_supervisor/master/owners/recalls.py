"""Recalls: when one task of a claim takes long, those before it are settled and those behind it given back.

1. A worker that claims several tasks asks for the watch and rings; while any does, the slots are looked at every 10 ms.
2. A claim that is older than 25 ms with entries unstarted or outcomes untold is recalled: the outcomes are taken from
   the slot, as from that of a dead worker, and everything behind the entry that runs goes back to its lane. The worker
   tells the same outcomes at its next turn, which finds them settled.
3. The worker starts nothing of a claim without asking once 5 ms are over, and says what it starts before it looks at
   the clock (`rota.worker.holding`). So an entry that started is seen here, 20 ms later, as started; and what is
   recalled has another text from then on, by which the worker's own late call finds nothing.
"""

import asyncio
from typing import Final

from rota.child.slot_task import HeldUp
from rota.child.slots import Slot, boottime_ns
from rota.protocol.store import Store
from rota.protocol.wire import Packed, packed_in
from rota.server.aio_connection import AioConnection
from rota.server.server_errors import ServerError
from rota.telemetry import events, log
from rota_supervisor.layout import Role
from rota_supervisor.master.children.child import Child
from rota_supervisor.master.children.told import NO_TIERS
from rota_supervisor.master.records import Records

RECALL_AFTER_NS: Final = 25_000_000
LOOK_SECONDS: Final = 0.01
AGAIN_SECONDS: Final = 0.2  # after a call that failed
_QUIET_LOOKS: Final = 100  # a second without a claim of several ends the watch
_LAST_LOOKS: Final = 5  # and then a few more, as a worker may have claimed just before it could see that


class Recalls:
    """The watch over claims. It runs beside the loop, and only while there is something to watch."""

    def __init__(self, records: Records, connection: AioConnection, store: Store) -> None:
        self._records = records
        self._connection = connection
        self._store = store
        self._asked: dict[int, tuple[int, int]] = {}  # by slot: the life and the task for whose sake was recalled last
        self._watching = False
        self._quiet_looks = 0

    def rung(self) -> None:
        """Somebody rang: begin the watch if a worker asks for it."""
        granted = [slot.grant_watch() for _, slot in self._workers()]
        if not any(granted):
            return
        self._quiet_looks = 0
        if not self._watching:
            self._watching = True
            self._records.background.start(self._watch())

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
        """Recall what is held up; whether anything is, or may be in a moment."""
        held_up = [
            (child, slot)
            for child, slot in self._workers()
            if (number := slot.held_up_by) and self._asked.get(child.slot) != (child.nonce, number)
        ]
        for child, slot in held_up:
            self._recall_late(child, slot)
        return bool(held_up)

    def _recall_late(self, child: Child, slot: Slot) -> None:
        held_up = slot.held_up()
        if held_up is not None and boottime_ns() - held_up.task.claimed_ns >= RECALL_AFTER_NS:
            self._asked[child.slot] = child.nonce, held_up.number
            slot.recalled = held_up.number  # before it is sent
            self._records.background.start(self._recall(child, slot, held_up))

    async def _recall(self, child: Child, slot: Slot, held_up: HeldUp) -> None:
        """Call until there is an answer, or the task has ended that held the others up."""
        finished = packed_in(*held_up.outcomes)
        call = self._store.recall(child.owner, held_up.task.entry, self._tiers(child), finished)
        while slot.nonce == child.nonce and slot.held_up_by == held_up.number:
            try:
                recalled = await self._connection.run(call)
            except ServerError:  # told by the connection's watch
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            if recalled:
                log.logger().debug(events.CLAIM_RECALLED, owner=child.owner, slot=child.slot, tasks=recalled)
            return

    def _tiers(self, child: Child) -> Packed:
        told = self._records.told_to(child)
        return NO_TIERS if told is None else told.tiers

    def _workers(self) -> list[tuple[Child, Slot]]:
        memory = self._records.memory
        workers = ((child, memory.slot(child.slot)) for child in self._records.fleet.of(Role.WORKER) if child.owner)
        return [(child, slot) for child, slot in workers if slot.nonce == child.nonce]
