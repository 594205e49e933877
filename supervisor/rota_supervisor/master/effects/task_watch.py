"""Background work for running tasks: it returns tasks that wait behind a long task, receives orders to cancel, and
copies progress from the slots to Redis.

`cancel` adds an order to a list of the node that runs the task. The node's master waits on this list with a blocking
command. An order stays in the list until the master has handled it, so it survives a lost connection. If an order is
lost in another way, the next lease renewal reports the cancelled task.
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

RETURN_AFTER_NS: Final = 25_000_000
CHECK_SECONDS: Final = 0.01
_QUIET_CHECKS: Final = 100  # the watch ends after a second in which no task waits behind another
_LAST_CHECKS: Final = 5  # extra checks, for a worker that claimed just before it could see that the watch ended
_START_CHECK_SECONDS: Final = 0.01
_START_CHECKS: Final = 25  # a task not found after these checks was returned to its lane, and is cancelled there
COPY_SECONDS: Final = 1.0


@dataclass(slots=True, eq=False, repr=False)
class ClaimWatch:
    """A watch over the claims of workers. If one task of a claim runs for a long time, the tasks that wait behind it
    are returned to their lanes.

    1. A worker that claims several tasks at once, or prefetches one, requests the watch and wakes the master. While any
       worker requests it, the watch checks the slots every 10 ms. At other times, it does not run.
    2. The watch returns the waiting tasks of a claim if the claim is older than 25 ms, one of its tasks is running, and
       the worker has more tasks to start or outcomes that Redis has not settled. In one call, the outcomes in the slot
       are settled, as for a dead worker, and all entries behind the running one go back to their lanes. When the worker
       sends the same outcomes in its next call, Redis finds the tasks already settled.
    3. The watch must not return a task that its worker is starting. Before each start, the worker marks the entry as
       started in its slot, and only then reads the clock. If the claim is older than 5 ms by then, the worker calls
       Redis before it starts the entry (`rota.worker.claims`). Otherwise it starts the entry at once. The watch reads
       the slot at least 20 ms later, so it sees the mark. When an entry is returned, its text changes, so a late call
       of the worker does not find it.
    """

    _state: MasterState
    _memory: SlotMemory
    _background: Background
    _happened: Callable[[Event], None]
    _watching: bool = False
    _quiet_checks: int = 0

    def rung(self) -> None:
        """Begin the watch if a worker requests it. This method is called when a child has woken the master."""
        granted = [slot.grant_watch() for _, slot in self._workers()]
        if not any(granted):
            return
        self._quiet_checks = 0
        if not self._watching:
            self._watching = True
            self._background.start(self._watch())

    async def _watch(self) -> None:
        try:
            while self._quiet_checks < _QUIET_CHECKS + _LAST_CHECKS:
                await asyncio.sleep(CHECK_SECONDS)
                self._quiet_checks = 0 if self._check() else self._quiet_checks + 1
                if self._quiet_checks == _QUIET_CHECKS:
                    self._end_watches()
        finally:  # Even after an error, workers must be able to request the watch again.
            self._watching = False
            self._end_watches()

    def _end_watches(self) -> None:
        for _, slot in self._workers():
            slot.end_watch()

    def _check(self) -> bool:
        """Report to the core each claim that a long-running task holds up. Returns whether any task holds up others
        that have not been returned yet, even if it has not run for long."""
        returned_for = self._state.returned_for
        held_up = [
            (child, slot)
            for child, slot in self._workers()
            if (number := slot.held_up_by) and returned_for.get(child.slot) != (child.nonce, number)
        ]
        for child, slot in held_up:
            claim = slot.held_up()
            if claim is not None and boottime_ns() - claim.task.claimed_ns >= RETURN_AFTER_NS:
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
    """Find the tasks to cancel among the running tasks of a worker: those for which `is_meant` returns true. Return an
    event for each of them, with which the core cancels the task."""
    meant = [task for task in slot.running() if is_meant(task)] if slot.nonce == worker.nonce else []
    return [
        CancelOrdered(worker.slot, worker.nonce, task.task_index, task.number, task.id, kill_after) for task in meant
    ]


@dataclass(slots=True, eq=False, repr=False)
class Orders:
    """The receiver of orders to cancel. It reports each order to the core if the task of the order runs on this node.
    `key`: the key of the list with the orders for this node. `works`: an event that is set while the master's main
    connection works. While it is not set, this class does not call the server."""

    _connection: AioConnection
    _key: str
    _works: asyncio.Event
    _children: Children
    _memory: SlotMemory
    _background: Background
    _happened: Callable[[Event], None]

    async def listen(self) -> None:
        """Handle each order when it arrives. Runs forever."""
        backoff = Backoff(FIRST_RETRY_SECONDS, MOST_RETRY_SECONDS)
        while True:
            await self._works.wait()
            try:
                await self._take_one()
                backoff.reset()
            except ServerError:  # The main connection reports outages.
                await asyncio.sleep(backoff.next_seconds())

    async def _take_one(self) -> None:
        """Wait for the first order, handle the order, and then remove it from the list."""
        raw = await self._connection.execute("BLMOVE", self._key, self._key, "LEFT", "LEFT", PARK_SECONDS)
        if raw is not None:
            self._take_in(raw)
            await self._connection.execute("LREM", self._key, 1, raw)

    def _take_in(self, raw: bytes) -> None:
        try:
            order = parse_cancel_order(raw)
        except ValueError:  # The order was not written by Rota.
            return
        if not self._report(order):
            self._background.start(self._await_start(order))

    async def _await_start(self, order: CancelOrder) -> None:
        """Look for the task of the order repeatedly. The worker may have claimed the task but not received the reply of
        Redis with it yet."""
        for _ in range(_START_CHECKS):
            await asyncio.sleep(_START_CHECK_SECONDS)
            if self._report(order):
                return

    def _report(self, order: CancelOrder) -> bool:
        """If the task of the order runs on this node, report to the core that the task was cancelled. Returns whether
        the task runs on this node."""
        child = next((each for each in self._children.of(Role.WORKER) if each.owner == order.owner), None)
        if child is None:
            return False
        meant = order.task_id, str(order.ready_us)
        slot = self._memory.slot(child.slot)
        kill_after = order.kill_after_seconds
        found = cancelled_in(child, slot, lambda task: (task.id, task.ready) == meant, kill_after)
        for each in found:
            self._happened(each)
        return bool(found)


# Progress


class TaskProgress(NamedTuple):
    """The progress that one running task has reported. `owner` is the owner that holds the task, and `entry` is the
    entry of the task."""

    owner: str
    entry: bytes
    text: bytes


@dataclass(slots=True, eq=False, repr=False)
class ProgressCopier:
    """The copier of the progress that tasks report in their workers' slots. About once a second, it sends all changes
    to Redis together.

    If no task reports progress, a round reads only one word of memory for each task. `_known`: the progress that has
    already been sent to Redis.
    """

    _state: MasterState
    _memory: SlotMemory
    _send: Callable[[list[TaskProgress]], Awaitable[object]]
    _known: set[TaskProgress] = field(default_factory=set)

    async def copy(self) -> None:
        """Copy progress from the slots to Redis, forever."""
        while True:
            await asyncio.sleep(COPY_SECONDS)
            await self.step()

    async def step(self) -> None:
        """Send new progress to Redis. If the call fails, a later round sends this progress or newer progress of the
        same task."""
        reports = set(self._reports())
        self._known &= reports
        changed = list(reports - self._known)
        for start in range(0, len(changed), PROGRESS_BATCH):
            batch = changed[start : start + PROGRESS_BATCH]
            try:
                await self._send(batch)
            except ServerError:  # The connection's watch has already reported it.
                return
            self._known.update(batch)

    def _reports(self) -> Iterator[TaskProgress]:
        for child in self._state.children.of(Role.WORKER):
            slot = self._memory.slot(child.slot)
            for record in slot.busy_records() if child.owner and slot.nonce == child.nonce else ():
                task = record.current() if record.has_progress else None
                if task is not None and (text := record.progress_of(task.entry)):
                    yield TaskProgress(child.owner, task.entry, text)
