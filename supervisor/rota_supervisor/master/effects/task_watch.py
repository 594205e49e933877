"""Watches over running tasks, beside the loop: claims that a long task holds up, progress carried from the slots to
Redis, and orders to cancel.

`cancel` leaves an order on a list of the node, and a connection of the master waits there. An order stays on the list
until it was taken in, so that none is lost with a connection. One that is lost all the same is found at the next
renewal.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rota.child.slot_memory import SlotMemory
from rota.child.slot_record import TaskInSlot
from rota.child.slots import Slot, boottime_ns
from rota.durations import Backoff
from rota.protocol.replies import CancelOrder, parse_cancel_order
from rota.protocol.store import PROGRESS_BATCH
from rota.server.aio_connection import FIRST_RETRY_SECONDS, MOST_RETRY_SECONDS, AioConnection
from rota.server.connection import PARK_SECONDS
from rota.server.server_errors import ServerError
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import Child, Children
from rota_supervisor.master.core.effects import HeldLease
from rota_supervisor.master.core.master_events import CancelOrdered, ClaimHeldUp, Event
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.effects.background import Background

RECALL_AFTER_NS: Final = 25_000_000
LOOK_SECONDS: Final = 0.01
_QUIET_LOOKS: Final = 100  # a second in which nothing waits behind a task ends the watch
_LAST_LOOKS: Final = 5  # and then a few more, as a worker may have claimed just before it could see that
_START_LOOK_SECONDS: Final = 0.01
_START_LOOKS: Final = 25  # what is not started by then went back to its lane, and ended there
CARRY_SECONDS: Final = 1.0


@dataclass(slots=True, eq=False, repr=False)
class ClaimWatch:
    """The watch over claims: when one task of a claim takes long, those behind it are given back.

    1. A worker that claims several tasks, or one ahead, asks for the watch and rings; while any does, the slots are
       looked at every 10 ms.
    2. A claim that is older than 25 ms with entries unstarted or outcomes not yet sent is recalled: the outcomes are
       taken from the slot, as from that of a dead worker, and everything behind the entry that runs goes back to its
       lane. The worker sends the same outcomes at its next turn, which finds them settled.
    3. The worker starts nothing of a claim without asking once 5 ms are over, and marks what it starts before it looks
       at the clock (`rota.worker.claims`). So an entry that started is seen here, 20 ms later, as started; and what is
       recalled has another text from then on, by which the worker's own late call finds nothing.

    It runs beside the loop, and only while there is something to watch.
    """

    _state: MasterState
    _memory: SlotMemory
    _background: Background
    _happened: Callable[[Event], None]
    _watching: bool = False
    _quiet_looks: int = 0

    def rung(self) -> None:
        """Somebody rang: begin the watch if a worker asks for it."""
        granted = [slot.grant_watch() for _, slot in self._workers()]
        if not any(granted):
            return
        self._quiet_looks = 0
        if not self._watching:
            self._watching = True
            self._background.start(self._watch())

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
        """Report claims that are held up. Returns whether there are any, or may be in a moment."""
        recalled = self._state.recalled
        held_up = [
            (child, slot)
            for child, slot in self._workers()
            if (number := slot.held_up_by) and recalled.get(child.slot) != (child.nonce, number)
        ]
        for child, slot in held_up:
            claim = slot.held_up()
            if claim is not None and boottime_ns() - claim.task.claimed_ns >= RECALL_AFTER_NS:
                self._happened(ClaimHeldUp(child.slot, child.nonce, claim))
        return bool(held_up)

    def _workers(self) -> list[tuple[Child, Slot]]:
        slot = self._memory.slot
        workers = ((child, slot(child.slot)) for child in self._state.children.of(Role.WORKER) if child.owner)
        return [(child, slot) for child, slot in workers if slot.nonce == child.nonce]


# Orders to cancel


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
        for _ in range(_START_LOOKS):
            await asyncio.sleep(_START_LOOK_SECONDS)
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


# Progress


class Told(NamedTuple):
    """What the task of that entry, held by that owner, says."""

    owner: str
    entry: bytes
    text: bytes


@dataclass(slots=True, eq=False, repr=False)
class ProgressCarrier:
    """Beside the loop, about once a second: of the slots whose task says something new, all in one call. A fleet in
    which no task reports progress costs a look at one word of each task. `_known`: what Redis knows already."""

    _state: MasterState
    _memory: SlotMemory
    _tell: Callable[[list[Told]], Awaitable[object]]
    _known: set[Told] = field(default_factory=set)

    async def carry(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(CARRY_SECONDS)
            await self.step()

    async def step(self) -> None:
        """Tell what is new. What could not be told is told later, if the task says nothing else meanwhile."""
        told = set(self._look())
        self._known &= told
        news = list(told - self._known)
        for start in range(0, len(news), PROGRESS_BATCH):
            batch = news[start : start + PROGRESS_BATCH]
            try:
                await self._tell(batch)
            except ServerError:  # reported by the connection's watch
                return
            self._known.update(batch)

    def _look(self) -> Iterator[Told]:
        for child in self._state.children.of(Role.WORKER):
            slot = self._memory.slot(child.slot)
            for record in slot.busy_records() if child.owner and slot.nonce == child.nonce else ():
                task = record.current() if record.has_progress else None
                if task is not None and (text := record.progress_of(task.entry)):
                    yield Told(child.owner, task.entry, text)
