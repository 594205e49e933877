"""Between the master and the kernel: hands that reach simulated processes, a reaper that finds them dead."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rota_supervisor import messages
from rota_supervisor.layout import Role
from rota_supervisor.master.children.births import Births
from rota_supervisor.master.children.child import Child
from rota_supervisor.master.children.hands import Hands
from rota_supervisor.master.children.stacks import Stacks
from rota_supervisor.master.deaths.deaths import Deaths
from rota_supervisor.master.deaths.reap import Ending
from rota_supervisor.master.deaths.reaper import Reaper
from rota_supervisor.master.reload.listening import Listening
from rota_supervisor.master.shown.gauges import Gauges
from simulation.children import Exporter, Line, Poller, Zygote
from simulation.workers import Worker

if TYPE_CHECKING:
    from simulation.node import Node


class SimulatedHands(Hands):
    """Starts, tells and kills simulated processes."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._open: list[tuple[Child, Line]] = []
        self.stacks = Stacks(node.memory)  # of which none is ever made

    def start(self, child: Child, settings: dict[str, Any], listen_fd: int | None = None) -> None:  # noqa: ARG002 - the signature is the product's
        node = self._node
        node.memory.slot(child.slot).begin(child.nonce)
        self._give_stack(child)
        seconds = node.world.trouble.seconds_to_boot(node.world.random, child.role)
        match child.role:
            case Role.ZYGOTE:
                zygote = Zygote(node, child)
                zygote.start(seconds, settings)
                self._open.append((child, zygote.line))
                child.pid = zygote.pid
            case Role.POLLER:
                poller = Poller(node, child)
                poller.start(seconds, json.dumps(settings))
                child.pid = poller.pid
            case _:
                exporter = Exporter(node, child)
                exporter.start(seconds)
                child.pid = exporter.pid

    def fork(self, zygote: Child, child: Child, pool_settings: str) -> None:
        line = self._line_of(zygote)
        assert line is not None, "a READY zygote has a channel"
        self._give_stack(child)
        line.zygote.ask(child, child.owner, pool_settings)

    def _give_stack(self, child: Child) -> None:
        child.has_stack = self._node.world.random.random() < self._node.world.trouble.stacks

    def ask_to_leave(self, child: Child) -> None:
        process = self._node.processes.get(child.pid)
        if process is not None:
            process.term()

    def wake(self, child: Child) -> None:
        process = self._node.processes.get(child.pid)
        if isinstance(process, Worker):
            process.later(0.0, process.look_up)

    def interrupt(self, child: Child) -> None:
        process = self._node.processes.get(child.pid)
        if isinstance(process, Worker):
            process.interrupt()

    def dump(self, child: Child) -> None:
        pass  # the stack is for people

    def kill(self, child: Child) -> None:
        process = self._node.processes.get(child.pid)
        if process is not None:
            process.kill()

    def lay_out(self, child: Child) -> None:
        self._node.memory.slot(child.slot).vacate()

    def hear(self) -> Iterator[tuple[Child, messages.Message | None]]:
        for child, line in list(self._open):
            for message in line.read():
                yield child, message
        self._open = [(child, line) for child, line in self._open if line.is_open]

    def let_go(self, child: Child) -> None:
        pass

    def _line_of(self, zygote: Child) -> Line | None:
        return next((line for child, line in self._open if child is zygote), None)


class SimulatedReaper(Reaper):
    """Takes in stops and deaths in the order in which they happened, each as the product's reaper does."""

    def __init__(self, node: "Node", births: Births, deaths: Deaths) -> None:
        self._node = node
        self._births = births
        self._deaths = deaths

    def reap(self, now: float) -> None:
        node = self._node
        while node.news:
            pid, status = node.news.popleft()
            child = node.fleet.by_pid(pid)
            if isinstance(status, bool):
                if child is not None:
                    child.stopped_at = now if status else None
                continue
            self._births.listen()
            child = node.fleet.by_pid(pid)
            if child is not None:
                self._births.look(child, now)
                node.hands.lay_out(child)
                self._deaths.died(child, Ending(status))


class SilentGauges(Gauges):
    """Shows nothing."""

    def __init__(self) -> None:
        pass

    def show_workers(self, *_: Any) -> None:
        pass

    def count_restart(self, *_: Any) -> None:
        pass

    def count_retired(self, *_: Any) -> None:
        pass

    def show_recovered_queues(self, *_: Any) -> None:
        pass

    def count_reload(self, *, success: bool) -> None:
        pass

    def count_lost_lease(self) -> None:
        pass


class NoListening(Listening):
    """Binds nothing."""

    def prepare(self, wanted: str) -> None:
        pass

    def forget(self) -> None:
        pass

    def probe(self, wanted: str) -> None:
        pass

    def use(self, wanted: str) -> None:
        pass

    @property
    def fd(self) -> int | None:
        return None
