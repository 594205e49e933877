"""One node of a simulated fleet. It runs the product's master, and applies the master's effects to simulated
processes.
"""

import asyncio
import math
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from rota_supervisor.config.errors import Fault
from rota_supervisor.config.loader import Loaded
from rota_supervisor.config.model import Config
from rota_supervisor.control.port import RequestKind
from rota_supervisor.exits import Failure
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import Child, ChildState
from rota_supervisor.master.core.effects import (
    AddToCounter,
    DropPreparedAddress,
    Effect,
    ListenAt,
    PrepareAddress,
    PublishSnapshot,
    ReadConfiguration,
    Respond,
    SetGauge,
    SetGaugeToNow,
    WriteLog,
)
from rota_supervisor.master.core.master_events import AddressPrepared, ConfigurationRead, Event, Requested
from rota_supervisor.master.core.process_settings import Surroundings
from rota_supervisor.master.core.state import MasterState
from rota_supervisor.master.effects.background import Background
from rota_supervisor.master.effects.master_output import write_log
from rota_supervisor.master.effects.master_redis import RedisCalls, ScheduleDeclarer
from rota_supervisor.master.effects.task_watch import Orders
from rota_supervisor.master.shell.loop import Inbox, MasterLoop
from simulation.calls import CALLS, SCHEDULE_CALLS, MasterConnection
from simulation.cancels import OrdersLine
from simulation.checks import Checks
from simulation.children import Zygote
from simulation.kernel import SimulatedKernel
from simulation.loop import Loop
from simulation.process import Process
from simulation.slots import SimulatedMemory
from simulation.timeline import MICROSECOND, NANOSECONDS, Action

if TYPE_CHECKING:
    from simulation.world import World

_AWAKE_WITHIN: Final = 0.005  # the longest time from a wake-up to the master's step, in seconds


def _ignore(_: Any) -> None:
    pass  # the simulation ignores status messages, which only people read


class CheckedInbox(Inbox):
    """The master's inbox. It checks the effects before they are carried out."""

    def __init__(self, state: MasterState, node: "Node") -> None:
        super().__init__(state)
        self._node = node

    def _perform(self, effects: list[Effect]) -> None:
        self._node.checks.check(effects)
        super()._perform(effects)


class ReloadRequest:
    """A requested reload with its result. `config` is the requested configuration, or None if the configuration file is
    invalid.
    """

    def __init__(self, config: Config | None) -> None:
        self.config = config
        self.result = ""  # `success` or `failure` after the reload has ended, and "" before


class Node:
    """One life of a node, from the start of its master to the end of its master. `file` is the configuration that a
    reload reads, or None if the configuration file is invalid.
    """

    def __init__(self, world: "World", name: str, config: Config) -> None:
        self.world = world
        self.name = name
        self.file: Config | None = config
        self.first_config = config
        self.booted_at = world.timeline.now - world.random.uniform(1, 1000)
        self.alive = True
        self.frozen = False
        self.master_stopped = False
        self.failure: Failure | None = None
        self.reload_requests: list[ReloadRequest] = []
        self.processes: dict[int, Process] = {}
        self._tickets = count(1)
        self._reload_requests: dict[int, ReloadRequest] = {}
        self._turn_at: float | None = None
        self._pids = 1
        self.awake_since = 0.0
        self.memory = SimulatedMemory()
        self.loop = Loop(self.boottime)
        self._background = Background()
        self._build(config)

    def _build(self, config: Config) -> None:
        self.enter()
        self.state = MasterState.first(Surroundings(self.name), Loaded(config, {}, ()), self.boottime())
        self.inbox = CheckedInbox(self.state, self)
        self.checks = Checks(self)
        self.kernel = SimulatedKernel(self)
        self.connection = MasterConnection(self, self.world.network, self.world.server)
        self._listen_for_orders()
        declaring = ScheduleDeclarer(self.connection, SCHEDULE_CALLS)
        calls = RedisCalls(self.connection, CALLS, self.name, self.memory, self._background, declaring, self._happened)
        ignored = dict.fromkeys(
            (AddToCounter, SetGauge, SetGaugeToNow, PublishSnapshot, ListenAt, DropPreparedAddress), _ignore
        )
        self.inbox.handlers |= {
            **ignored,
            **self.kernel.handlers,
            **calls.handlers,
            WriteLog: write_log,
            ReadConfiguration: lambda effect: self._happened(self._read(effect)),
            PrepareAddress: lambda effect: self._happened(AddressPrepared(effect.ticket)),
            Respond: self._respond,
        }
        self.master = MasterLoop(
            self.inbox, self.memory, self.kernel.receive, self.kernel.reap, lambda: self.connection.silent_since
        )
        self._tick_at = self.boottime()
        self.nudge()

    def _listen_for_orders(self) -> None:
        line = OrdersLine(self, self.world.network, self.world.server)
        works = asyncio.Event()
        works.set()
        orders = Orders(line, "", works, self.state.children, self.memory, self._background, self._happened)
        self.loop.call_soon(lambda: self._background.start(orders.listen()))

    def _happened(self, event: Event) -> None:
        self.inbox.happened(event)
        self.nudge()

    def _read(self, effect: ReadConfiguration) -> ConfigurationRead:
        if self.file is None:
            return ConfigurationRead(effect.ticket, Loaded(Config(), {}, ()), (Fault("workers", "expected a number"),))
        return ConfigurationRead(effect.ticket, Loaded(self.file, {}, ()))

    def _respond(self, effect: Respond) -> None:
        if effect.ticket in self._reload_requests:
            assert effect.reply is not None, "no reload is refused here"
            self._reload_requests.pop(effect.ticket).result = str(effect.reply["result"])

    @property
    def ready_workers(self) -> list[Child]:
        """Return the workers that are READY and can claim."""
        return self.state.children.of(Role.WORKER, ChildState.READY)

    # Time

    def boottime(self) -> float:
        """Return the node's CLOCK_BOOTTIME in seconds."""
        return round((self.world.timeline.now - self.booted_at) * NANOSECONDS) / NANOSECONDS

    def enter(self) -> None:
        """Make this node's clock the current one. Call this before any code of the node runs."""
        self.world.clock.booted_at = self.booted_at

    def nudge(self, seconds: float | None = None) -> None:
        """Plan that the master's loop runs soon, or after this number of seconds."""
        delay = self.world.random.uniform(0, _AWAKE_WITHIN) if seconds is None else max(0.0, seconds)
        at = self.world.timeline.now + delay
        if self._turn_at is None or at < self._turn_at:
            self._turn_at = at
            self.world.timeline.after(delay, lambda: self._turn(at))

    def _turn(self, at: float) -> None:
        if at != self._turn_at:
            return
        self._turn_at = None
        if not self.alive or self.frozen or self.master_stopped:
            return
        self.enter()
        self.loop.turn()
        if self.inbox.wake.is_set() or self.boottime() >= self._tick_at:
            self.loop.run(self.master.step)
            self._check_step()
            self.loop.turn()  # runs the asyncio tasks that the step has started
        if self.loop.errors:
            raise AssertionError(f"an exception that no code handled: {self.loop.errors}")
        if self.alive:
            next_at = min(self._tick_at, math.inf if self.loop.next_at is None else self.loop.next_at)
            self.nudge(0.0 if self.inbox.wake.is_set() else next_at - self.boottime() + MICROSECOND)

    def _check_step(self) -> None:
        if self.inbox.failure is not None or self.inbox.has_left:
            self._end()
            return
        self.checks.check_step()
        self._tick_at = self.boottime() + self.master.seconds_to_wait()

    def _end(self) -> None:
        self.failure = self.inbox.failure
        if self.failure is not None:
            self.world.note(self.name, "gave up", str(self.failure))
        self.lose()

    def later(self, seconds: float, action: Action) -> None:
        """Plan that data reaches the master after this number of seconds. The simulated kernel accepts the data even
        while the master is stopped.
        """
        self.world.timeline.after(seconds, lambda: self._reach(action))

    def _reach(self, action: Action) -> None:
        if self.alive:
            self.enter()
            action()
            self.nudge()

    @property
    def location(self) -> str:
        """The name of the node. The network needs the location of each caller."""
        return self.name

    # The kernel

    def add_process(self, process: Process) -> int:
        """Add a process, and return its pid."""
        self._pids += 1
        self.processes[self._pids] = process
        return self._pids

    def ended(self, process: Process, status: int) -> None:
        """Record that a process has ended with this wait status, and report its end to the master. The channel of a
        zygote closes a little earlier or later.
        """
        del self.processes[process.pid]
        self.world.gone(process, status)
        lingers = self.world.random.uniform(0, self.world.trouble.channel_lingers)
        if not isinstance(process, Zygote):
            self._zombie(process.pid, status)
        elif (
            self.world.random.random() < self.world.trouble.channel_ends_first
        ):  # the kernel closes the files of a process before another process can reap it
            process.line.send(None)
            self.world.timeline.after(lingers, lambda: self._zombie(process.pid, status))
        else:  # an intermediate or a new worker still has a copy of the channel
            self._zombie(process.pid, status)
            self.world.timeline.after(lingers, lambda: process.line.send(None))

    def _zombie(self, pid: int, status: int) -> None:
        self.kernel.reports.append((pid, status))
        self.ring()

    def note_stop(self, pid: int, *, stopped: bool) -> None:
        """Report to the master, as SIGCHLD does, that a process was stopped or continued."""
        self.kernel.reports.append((pid, stopped))
        self.ring()

    def ring(self) -> None:
        """Wake the master."""
        if self.alive:
            self.inbox.wake.set()
            self.nudge()

    # Requests and faults

    def reload(self, config: Config | None, *, fresh: bool = False) -> None:
        """Write this configuration to the file and request a reload. If `fresh` is set, request a restart with fresh
        code instead.
        """
        self.file = config
        if self.state.stop.is_requested:
            return
        reload_request = ReloadRequest(config)
        self.reload_requests.append(reload_request)
        self._request(RequestKind.RESTART if fresh else RequestKind.RELOAD, reload_request)

    def adjust(self, more: int) -> None:
        """Request one worker more or one worker fewer, as the signals TTIN and TTOU do."""
        self._request(RequestKind.MORE if more > 0 else RequestKind.LESS)

    def quiet(self, *, on: bool) -> None:
        """Request that the node becomes quiet, as TSTP does, or that it resumes, as CONT does."""
        self._request(RequestKind.QUIET if on else RequestKind.RESUME)

    def stop(self, *, at_once: bool = False) -> None:
        """Request a drain, as TERM does, or a stop at once, as QUIT does."""
        self._request(RequestKind.STOP_NOW if at_once else RequestKind.DRAIN)

    def _request(self, request: RequestKind, reload_request: ReloadRequest | None = None) -> None:
        ticket = next(self._tickets)
        if reload_request is not None:
            self._reload_requests[ticket] = reload_request
        self.loop.call_soon(lambda: self.inbox.happened(Requested(request, ticket, by_signal=True)))
        self.nudge()

    def freeze(self) -> None:
        """Freeze all processes of the node, including the master. The clock of the node continues."""
        self.enter()
        for process in self.processes.values():
            if process.is_beating:
                process.slot.heartbeat()
        self.frozen = True

    def thaw(self) -> None:
        """Let the master and all other processes continue, except those that were stopped before the node was
        frozen.
        """
        self.frozen = False
        self.awake_since = self.boottime()
        self.nudge()
        for process in list(self.processes.values()):
            if process.stopped_since is None:
                process.go_on()

    def stop_master(self) -> None:
        self.master_stopped = True

    def continue_master(self) -> None:
        self.master_stopped = False
        self.awake_since = self.boottime()
        self.nudge()

    def lose(self) -> None:
        """Kill the master together with all its children."""
        if not self.alive:
            return
        for process in list(self.processes.values()):
            process.kill()
        self.alive = False
        self.enter()
        self.loop.close()
