"""One node: a master, made of the product's own parts, on a loop and a process table of its own."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rota_supervisor.config.faults import ConfigError, Fault
from rota_supervisor.config.load import Loaded
from rota_supervisor.config.model import Config
from rota_supervisor.control.port import Answer
from rota_supervisor.exits import Failure
from rota_supervisor.layout import Role
from rota_supervisor.master.children.births import Births
from rota_supervisor.master.children.child import Child, State
from rota_supervisor.master.deaths.deaths import Deaths
from rota_supervisor.master.master import Master
from rota_supervisor.master.owners.leases import Leases
from rota_supervisor.master.owners.owners import Owners
from rota_supervisor.master.planning.targets import Stage
from rota_supervisor.master.records import Records
from rota_supervisor.master.reload.reloading import Reloading
from rota_supervisor.master.requests.requests import Requests
from rota_supervisor.master.requests.signals import Request
from simulation.calls import CALLS, MasterConnection
from simulation.checks import CheckedFleet, check_step
from simulation.children import Zygote
from simulation.hands import NoListening, SilentGauges, SimulatedHands, SimulatedReaper
from simulation.loop import Loop
from simulation.process import Process
from simulation.slots import SimulatedMemory
from simulation.timeline import MICROSECOND, NANOSECONDS, Action

if TYPE_CHECKING:
    from simulation.world import World

_AWAKE_WITHIN: Final = 0.005  # seconds from a wake to the master's step, at most


class CheckedMaster(Master):
    """The master, looked at after each step."""

    node: "Node"

    def step(self) -> None:
        self.node.fleet.performed = 0
        super().step()
        check_step(self.node)


class Asked:
    """A reload that was asked for, and its answer."""

    def __init__(self, config: Config | None, answer: "asyncio.Future[Answer]") -> None:
        self.config = config
        self.answer = answer

    @property
    def result(self) -> str:
        """`success`, `failure`, or "" as long as there is none."""
        return str(self.answer.result()["result"]) if self.answer.done() else ""


class Node:
    """One life of a node, from the start of its master to its end. `file`: what a reload reads, None for garbage."""

    def __init__(self, world: "World", name: str, config: Config) -> None:
        self.world = world
        self.name = name
        self.file: Config | None = config
        self.first_config = config
        self.booted_at = world.timeline.now - world.random.uniform(1, 1000)
        self.alive, self.frozen, self.master_stopped = True, False, False
        self.failure: Failure | None = None
        self.asked: list[Asked] = []
        self.processes: dict[int, Process] = {}
        self.news: deque[tuple[int, int | bool]] = deque()
        self._turn_at: float | None = None
        self._pids = 1
        self.awake_since = 0.0
        self.memory = SimulatedMemory()
        self.loop = Loop(self.boottime)
        self._build(config)

    def _build(self, config: Config) -> None:
        self.enter()
        gauges, listening = SilentGauges(), NoListening()
        self.fleet = CheckedFleet(self)
        reloading = Reloading(Loaded(config, {}, ()), self._read, listening, gauges)
        self.records = Records(self.memory, gauges, reloading, self.fleet)
        self.hands = SimulatedHands(self)
        connection = MasterConnection(self, self.world.network, self.world.server)
        leases = Leases(connection, CALLS, self.name, self._lease_lost)
        owners = Owners(leases, self.fleet, self.memory, gauges, self.records.wake.set)
        deaths = Deaths(self.records, self.hands, owners)
        births = Births(self.records, self.hands, deaths)
        reaper = SimulatedReaper(self, births, deaths)
        self.master = CheckedMaster(
            self.records,
            self.hands,
            owners=owners,
            births=births,
            deaths=deaths,
            reaper=reaper,
            listening=listening,
            import_paths=(),
            tell=lambda _: None,
        )
        self.master.node = self
        self.requests = Requests(self.records, self.hands, dict, lambda: None)
        self._main = self.loop.create_task(self.master.run())
        self._renewing = self.loop.create_task(
            owners.keep_leases(lambda: self.records.config, lambda: self.records.taken_queues)
        )
        self.nudge()

    def _read(self) -> Loaded:
        if self.file is None:
            raise ConfigError([Fault("workers", "expected a number")])
        return Loaded(self.file, {}, ())

    def _lease_lost(self, owner: str) -> None:
        self.world.say(self.name, "lease lost", owner)

    @property
    def ready_workers(self) -> list[Child]:
        """Those that could claim."""
        return self.fleet.of(Role.WORKER, State.READY)

    # Time

    def boottime(self) -> float:
        """Its CLOCK_BOOTTIME, in seconds."""
        return round((self.world.timeline.now - self.booted_at) * NANOSECONDS) / NANOSECONDS

    def enter(self) -> None:
        """From here on code of this node runs."""
        self.world.clock.booted_at = self.booted_at

    def nudge(self, seconds: float | None = None) -> None:
        """Have the master's loop run soon, or in so many seconds."""
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
        self._look_at_ends()
        next_at = self.loop.next_at
        if self.alive and next_at is not None:
            self.nudge(next_at - self.boottime() + MICROSECOND)

    def _look_at_ends(self) -> None:
        if self.loop.errors:
            raise AssertionError(f"an exception nobody took: {self.loop.errors}")
        if self._renewing.done():
            self._renewing.result()
        if self._main.done():
            try:
                self._main.result()
            except Failure as failure:
                self.failure = failure
                self.world.say(self.name, "gave up", str(failure))
            self.lose()

    def later(self, seconds: float, action: Action) -> None:
        """Something reaches the master in so many seconds. Its socket takes it in, even while it is stopped."""
        self.world.timeline.after(seconds, lambda: self._reach(action))

    def _reach(self, action: Action) -> None:
        if self.alive:
            self.enter()
            action()
            self.nudge()

    @property
    def place(self) -> str:
        """Its name, as a caller."""
        return self.name

    # The kernel

    def add_process(self, process: Process) -> int:
        """A new process; answers its number."""
        self._pids += 1
        self.processes[self._pids] = process
        return self._pids

    def ended(self, process: Process, status: int) -> None:
        """A process is a zombie; the number is free when it was reaped."""
        del self.processes[process.pid]
        self.world.gone(process, status)
        lingers = self.world.random.uniform(0, self.world.trouble.channel_lingers)
        if not isinstance(process, Zygote):
            self._zombie(process.pid, status)
        elif (
            self.world.random.random() < self.world.trouble.channel_ends_first
        ):  # the kernel closes its files before anybody can wait for it
            process.line.say(None)
            self.world.timeline.after(lingers, lambda: self._zombie(process.pid, status))
        else:  # an intermediate, or a worker just forked, has a copy of the channel still
            self._zombie(process.pid, status)
            self.world.timeline.after(lingers, lambda: process.line.say(None))

    def _zombie(self, pid: int, status: int) -> None:
        self.news.append((pid, status))
        self.ring()

    def note_stop(self, pid: int, *, stopped: bool) -> None:
        """SIGCHLD tells of stops too."""
        self.news.append((pid, stopped))
        self.ring()

    def ring(self) -> None:
        """Wake the master."""
        if self.alive:
            self.records.wake.set()
            self.nudge()

    # What can be done to it

    def reload(self, config: Config | None, *, fresh: bool = False) -> None:
        """Write the file and send a HUP, or USR2 for `fresh` code."""
        self.file = config
        if self.records.stop.stage is not Stage.RUNNING:
            return
        asked = Asked(config, self.loop.create_future())
        self.asked.append(asked)
        self._tell(lambda: self.records.reloading.reload(asked.answer, self.fleet, fresh=fresh))

    def adjust(self, more: int) -> None:
        """TTIN or TTOU."""
        self._tell(lambda: self.requests.signalled(Request.MORE if more > 0 else Request.LESS))

    def quiet(self, *, on: bool) -> None:
        """TSTP or CONT."""
        self._tell(lambda: self.requests.signalled(Request.QUIET if on else Request.RESUME))

    def stop(self, *, at_once: bool = False) -> None:
        """TERM or QUIT."""
        self._tell(lambda: self.requests.signalled(Request.STOP_NOW if at_once else Request.DRAIN))

    def _tell(self, request: Callable[[], None]) -> None:
        self.loop.call_soon(request)
        self.loop.call_soon(self.records.wake.set)
        self.nudge()

    def freeze(self) -> None:
        """Everything stands still; its clock goes on."""
        self.enter()
        for process in self.processes.values():
            if process.is_beating:
                process.slot.beat()
        self.frozen = True

    def thaw(self) -> None:
        """Everything goes on."""
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
        """The master is gone, and with it all its children."""
        if not self.alive:
            return
        for process in list(self.processes.values()):
            process.kill()
        self.alive = False
        self.enter()
        self.loop.close()
