"""The simulated operating system between a master and its children. It applies the master's effects to simulated
processes, and reports to the master what happens to them.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rota.protocol.wire import Packed
from rota_supervisor import messages
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import Child, ChildRef
from rota_supervisor.master.core.effects import (
    CloseChannels,
    ForkWorker,
    FreeSlot,
    NotifyCancelled,
    Order,
    SetQuiet,
    SignalChild,
    Spawn,
)
from rota_supervisor.master.core.master_events import (
    Died,
    Event,
    ProcessEnd,
    StackFileMade,
    Started,
    StopSeen,
    ZygoteGone,
    ZygoteReported,
)
from simulation.children import Exporter, Line, Poller, Zygote
from simulation.workers import Worker

if TYPE_CHECKING:
    from simulation.node import Node


class SimulatedKernel:
    """A kernel that starts, signals and kills simulated processes. It reports the stops and deaths of the processes in
    order.
    """

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._lines: list[tuple[ChildRef, int, Line]] = []
        self.reports: deque[tuple[int, int | bool]] = deque()

    @property
    def handlers(self) -> Mapping[type, Callable[[Any], None]]:
        """Return the function that carries out each type of effect."""
        return {
            Spawn: self._spawn,
            ForkWorker: self._fork,
            SignalChild: self._signal,
            SetQuiet: self._set_quiet,
            NotifyCancelled: self._notify_cancelled,
            FreeSlot: lambda effect: self._node.memory.slot(effect.slot).assign(0),
            CloseChannels: lambda _: None,
        }

    # Actions of the master

    def _spawn(self, effect: Spawn) -> None:
        node = self._node
        ref = effect.child
        child = self._record_of(ref)
        node.memory.slot(ref.slot).assign(ref.nonce)
        self._make_stack(ref)
        seconds = node.world.trouble.seconds_to_boot(node.world.random, ref.role)
        process = self._begin(child, effect.settings, seconds)
        node.inbox.happened(Started(ref.slot, ref.nonce, process.pid))

    def _begin(self, child: Child, settings: dict[str, Any], seconds: float) -> Zygote | Poller | Exporter:
        node = self._node
        if child.role is Role.ZYGOTE:
            zygote = Zygote(node, child)
            zygote.start(seconds, settings)
            self._lines.append((child.ref, child.generation, zygote.line))
            return zygote
        if child.role is Role.POLLER:
            poller = Poller(node, child)
            poller.start(seconds, json.dumps(settings))
            return poller
        exporter = Exporter(node, child)
        exporter.start(seconds)
        return exporter

    def _fork(self, effect: ForkWorker) -> None:
        slot = self._node.memory.slot(effect.child.slot)
        slot.assign(effect.child.nonce, effect.concurrency)
        slot.renewed_ns = effect.renewed_ns
        slot.quiet_requested = effect.quiet
        self._make_stack(effect.child)
        line = next(line for ref, _, line in self._lines if ref.nonce == effect.zygote.nonce)
        line.zygote.request_worker(self._record_of(effect.child), effect.owner, effect.settings)

    def _make_stack(self, child: ChildRef) -> None:
        if self._node.world.random.random() < self._node.world.trouble.stacks:
            self._node.inbox.happened(StackFileMade(child.slot, child.nonce))

    def _signal(self, effect: SignalChild) -> None:
        process = self._node.processes.get(effect.child.pid)
        if process is None:
            return
        if effect.order is Order.LEAVE:
            process.term()
        elif effect.order is Order.KILL:
            process.kill()
        elif effect.order is Order.INTERRUPT and isinstance(process, Worker):
            process.interrupt()

    def _set_quiet(self, effect: SetQuiet) -> None:
        for child in effect.children:
            slot = self._node.memory.slot(child.slot)
            if slot.nonce == child.nonce:
                slot.quiet_requested = effect.quiet
                process = self._node.processes.get(child.pid)
                if isinstance(process, Worker):
                    process.later(0.0, process.look_up)

    def _notify_cancelled(self, effect: NotifyCancelled) -> None:
        child = effect.child
        slot = self._node.memory.slot(child.slot)
        process = self._node.processes.get(child.pid)
        if slot.nonce == child.nonce:
            slot.record(effect.task_index).cancelled = effect.number
            if isinstance(process, Worker):
                process.later(0.0, process.receive_cancel)

    def _record_of(self, ref: ChildRef) -> Child:
        child = self._node.state.children.get(ref.slot, ref.nonce)
        assert child is not None, "each started child has a record"
        return child

    # Events for the master

    def receive(self) -> Iterator[Event]:
        """Yield an event for each message that a zygote or a process forked by it has sent, and for each channel that
        has closed.
        """
        for ref, generation, line in list(self._lines):
            for message in line.read():
                yield from self._events_of(ref, generation, message)
        self._lines = [each for each in self._lines if each[2].is_open]

    def _events_of(self, ref: ChildRef, generation: int, message: messages.Message | None) -> Iterator[Event]:
        if message is None:
            for child in self._node.state.children.of(Role.WORKER):
                if child.zygote_nonce == ref.nonce:
                    yield from self._unreported_worker(child.slot, child.nonce)
            yield ZygoteGone(ref.slot, ref.nonce)
            return
        if isinstance(message, messages.ForkFailed):
            yield from self._unreported_worker(message.slot, message.nonce)
        yield ZygoteReported(generation, message)

    def _unreported_worker(self, number: int, nonce: int) -> Iterator[Event]:
        slot = self._node.memory.slot(number)
        if slot.nonce == nonce and slot.pid > 1:
            yield ZygoteReported(0, messages.Spawned(number, nonce, slot.pid))

    def reap(self, _now: float, listen: Callable[[Child | None], None]) -> None:
        """Report children that have stopped, continued or died to the master. As in the product, `listen` is called
        twice before each death is reported: first with None, and then with the child that died.
        """
        while self.reports:
            pid, status = self.reports.popleft()
            if isinstance(status, bool):
                child = self._node.state.children.by_pid(pid)
                if child is not None:
                    self._node.inbox.happened(StopSeen(child.slot, child.nonce, status))
                continue
            listen(None)
            child = self._node.state.children.by_pid(pid)
            if child is not None:
                listen(child)
                self._reap_child(child, status)

    def _reap_child(self, child: Child, status: int) -> None:
        slot = self._node.memory.slot(child.slot)
        slot.vacate()
        outcomes = Packed(*slot.outcomes())
        ended = slot.has_worked
        tasks = tuple(slot.running())
        self._node.inbox.happened(Died(child.slot, child.nonce, ProcessEnd(status), tasks, outcomes, ended))
