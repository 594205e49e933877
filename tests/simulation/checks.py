"""What must hold at every instant. A violation ends the run."""

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Final

from rota_supervisor.config.model import Restarts
from rota_supervisor.layout import RANGES, TICK_SECONDS, Role
from rota_supervisor.master.backoff import EARLY_DEATHS
from rota_supervisor.master.children import LIVE, Child, Reason, State
from rota_supervisor.master.fleet import Fleet
from rota_supervisor.master.plan import (
    HARD_LIMIT_GRACE_SECONDS,
    STOPPED_POLLER_SECONDS,
    Action,
    Drain,
    Kill,
    Start,
    plan,
)
from rota_supervisor.master.targets import Stage, desired_of, worker_counts
from simulation.process import Process
from simulation.server import MICROSECONDS, Task
from simulation.timeline import NANOSECONDS
from simulation.workers import START_WITHIN_SHARE, Worker

if TYPE_CHECKING:
    from simulation.node import Node
    from simulation.world import World

FENCE_MARGIN_SHARE: Final = 0.1  # of the lease: how long before its end at the latest nothing is started any more
ROUNDING_SECONDS: Final = 0.001
SLACK_SECONDS: Final = 0.1  # from a wake of the master to its step, and the like
MINUTE: Final = 60.0
Key = tuple[str, str, int]  # node, pool, generation


class Violation(AssertionError):
    """Something that must never be."""


def require(condition: bool, text: str) -> None:
    """Raise a Violation unless the condition holds."""
    if not condition:
        raise Violation(text)


class CheckedFleet(Fleet):
    """The table of children: every action is looked at before it is performed."""

    def __init__(self, node: "Node") -> None:
        super().__init__()
        self._node = node
        self.performed = 0

    def apply(self, action: Action, now: float) -> Child:
        self.performed += 1
        before = next((child for child in self if child.slot == action.slot), None)
        was = before.state if before is not None else None
        if isinstance(action, Start):
            self._check_start(action, before)
        child = super().apply(action, now)
        self._node.world.say(self._node.name, type(action).__name__, f"{child.role} {child.slot}.{child.nonce}")
        if isinstance(action, Drain) and was is State.READY and child.role is Role.WORKER:
            self._check_floor(child)
        if isinstance(action, Drain) and child.role in (Role.POLLER, Role.EXPORTER):
            early = self._node.records.stop.stage is Stage.WORKERS
            require(not early, f"a {child.role} is told to leave before the workers have left")
        if isinstance(action, Kill):
            self._check_kill(child)
        return child

    def forget(self, child: Child) -> None:
        registered = child.owner and child.owner in self._node.world.server.owners
        require(not registered, f"slot {child.slot} is free, and its owner {child.owner} is not retired")
        super().forget(child)

    def _check_start(self, action: Start, before: Child | None) -> None:
        require(before is None, f"slot {action.slot} is given to a second child")
        require(action.slot in RANGES[action.role], f"slot {action.slot} is not for a {action.role}")
        if action.role is Role.WORKER:
            zygotes = {child.generation for child in self.of(Role.ZYGOTE, State.READY)}
            require(action.generation in zygotes, f"a worker is started, and no zygote of {action.generation} is READY")
        lived_in = self._node.memory.slot(action.slot).is_lived_in
        require(not lived_in, f"slot {action.slot} is given away while its process lives")

    def _check_floor(self, child: Child) -> None:
        records = self._node.records
        counts = worker_counts(records.reloading.rollout, records.reloading.adjust)
        if records.stop.stage is not Stage.RUNNING or child.pool not in counts:
            return
        count = counts[child.pool]
        ready = [each for each in self.of(Role.WORKER, State.READY) if each.pool == child.pool]
        number = records.reloading.rollout.in_force.number
        has_successor = any(each.generation == number for each in ready)
        floor = max(min(count, 1), count - 1) if has_successor else count
        require(len(ready) >= floor, f"{len(ready)} of {count} workers of {child.pool} READY after {child.why}")

    def _check_kill(self, child: Child) -> None:
        process = self._node.processes.get(child.pid)
        records, now = self._node.records, self._node.boottime()
        match child.why:
            case Reason.HUNG if process is not None:
                silent = now - process.silent_since if process.silent_since is not None else 0.0
                allowed = _patience(records.config.limits.beat_seconds, child.role)
                require(silent > allowed, f"slot {child.slot} is killed after {silent:.2f} s of silence")
            case Reason.TIMEOUT if isinstance(process, Worker):
                allowed = process.settings.time_limit_seconds + HARD_LIMIT_GRACE_SECONDS
                require(now - process.looked_at > allowed, f"slot {child.slot} is killed before its deadline")
            case Reason.STOP:
                stop = records.stop
                late = stop.stage is Stage.AT_ONCE or now > stop.leave_by
                require(late, f"slot {child.slot} is killed before the end of the drain")
            case _:
                pass


def check_step(node: "Node") -> None:
    """After a step of its master."""
    records, now = node.records, node.boottime()
    reloading = records.reloading
    if node.fleet.performed:
        desired = desired_of(reloading.rollout, reloading.versions, records.stop, reloading.adjust, records.backoffs)
        again = plan(desired, node.fleet, now)
        require(not again, f"a second plan after performing is not empty: {again}")
        _check_counts(node)
    if records.stop.stage is Stage.REST:
        working = [
            process for process in node.processes.values() if isinstance(process, Worker) and process.has_moved_in
        ]
        require(not working, "the rest is told to leave before the workers have left")
    for child in node.fleet:
        process = node.processes.get(child.pid)
        if process is not None and child.state in (State.BOOTING, State.READY, State.DRAINING):
            _check_overdue(node, process, now)


def _runs_a_task(process: Process) -> bool:
    return isinstance(process, Worker) and process.running


def _patience(beat_seconds: float, role: Role) -> float:
    return STOPPED_POLLER_SECONDS if role is Role.POLLER else beat_seconds


def _check_counts(node: "Node") -> None:
    reloading = node.records.reloading
    for pool, count in worker_counts(reloading.rollout, reloading.adjust).items():
        live = [child for child in node.fleet.of(Role.WORKER) if child.pool == pool and child.state in LIVE]
        sure = [child for child in live if child.state is not State.ASKED]
        require(len(sure) <= count + 1, f"{len(sure)} workers of {pool} instead of {count}")


def _check_overdue(node: "Node", process: Process, now: float) -> None:
    if process.stopped_since is not None:
        silent = now - max(process.stopped_since, node.awake_since)
        allowed = _patience(node.records.config.limits.beat_seconds, process.role) + SLACK_SECONDS
        require(silent <= allowed, f"slot {process.slot_number} is stopped for {silent:.2f} s")
    elif process.hung and process.was_ready and process.silent_since is not None and not _runs_a_task(process):
        silent = now - max(process.silent_since, node.awake_since)
        allowed = node.records.config.limits.beat_seconds + TICK_SECONDS + SLACK_SECONDS
        require(silent <= allowed, f"slot {process.slot_number} is silent for {silent:.2f} s")
    elif isinstance(process, Worker) and process.running and process.stopped_since is None:
        ran = now - process.looked_at
        allowed = process.settings.time_limit_seconds + HARD_LIMIT_GRACE_SECONDS + ROUNDING_SECONDS
        require(ran <= allowed, f"slot {process.slot_number} runs its task for {ran:.2f} s")


class Witness:
    """Judges what concerns leases, at the instant it happens; keeps what explains starts."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._failed: dict[Key, deque[float]] = defaultdict(deque)
        self._flapped: dict[Key, deque[float]] = defaultdict(deque)

    # Leases

    def registered(self, owner: str) -> None:
        """A name is never used again."""
        require(owner not in self._world.workers, f"the owner {owner} begins a second life")

    def retired(self, owner: str, *, expired: bool) -> None:
        """An owner is retired: nobody who bears the name may start anything from now on."""
        worker = self._world.workers.get(owner)
        self._world.say("server", "retired", f"{owner} {'expired' if expired else 'exited'}")
        if not expired:
            living = worker is not None and worker.alive and worker.has_moved_in
            require(not living, f"{owner} is retired as exited, and it lives")
            return
        if worker is not None and worker.alive:
            now_ns = round(worker.boottime() * NANOSECONDS)
            up = not worker.has_moved_in or worker.fence.is_up(now_ns)
            require(up, f"{owner} is retired as expired while its fence lets it start tasks")
            excused = worker.place in self._world.excused or worker.node.frozen or not worker.has_moved_in
            require(excused, f"{owner} is retired as expired, and only the server was away")

    def allowed(self, worker: Worker, task: Task) -> None:
        """A worker looked at its fence, and goes on to start a task: its lease lasts longer than the way there."""
        server = self._world.server
        expires = server.owners.get(worker.owner)
        require(expires is not None, f"{worker.owner} is allowed to start {task.id}, and it was retired")
        assert expires is not None
        if self._world.clock_moved_at is not None:
            return  # leases end sooner or later than was thought, and grace makes up for it
        left = (expires - server.now_us) / MICROSECONDS
        margin = worker.settings.lease_seconds * FENCE_MARGIN_SHARE - ROUNDING_SECONDS
        require(left >= margin, f"{worker.owner} is allowed to start {task.id} {left:.3f} s before its lease ends")

    def started(self, worker: Worker, task: Task, looked_ns: int) -> None:
        """A task's function is called."""
        took = worker.boottime() - looked_ns / NANOSECONDS
        if took > worker.settings.lease_seconds * START_WITHIN_SHARE + ROUNDING_SECONDS:
            # Stopped between the look at the clock and the call: no client can close that gap.
            self._world.say(worker.place, "starts late", task.id)
            return
        require(worker.owner in self._world.server.owners, f"{worker.owner} starts {task.id} after it was given away")

    # Restarts

    def has_died_early(self, worker: Process) -> None:
        """A worker died of its own soon after it was READY: that is slowed as well, after a while."""
        times = self._remember(self._flapped, worker)
        probes = _probes_a_minute(worker.node.records.config.restarts)
        most = (EARLY_DEATHS + 1) * _counted(worker) + 2 * probes  # those that die together count once
        require(len(times) <= most, f"{len(times)} early deaths within a minute, more than {most}")

    def failed_to_boot(self, worker: Process) -> None:
        """A child died of its own before it was READY."""
        times = self._remember(self._failed, worker)
        most = _counted(worker) + _probes_a_minute(worker.node.records.config.restarts)
        require(len(times) <= most, f"{len(times)} failed starts within a minute, more than {most}")

    def _remember(self, deaths: dict[Key, deque[float]], process: Process) -> deque[float]:
        now = self._world.timeline.now
        times = deaths[self._key(process)]
        times.append(now)
        while times[0] <= now - MINUTE:
            times.popleft()
        return times

    def was_ready(self, worker: Process) -> None:
        """One that works: what failed before was not the same trouble."""
        self._failed.pop(self._key(worker), None)

    @staticmethod
    def _key(process: Process) -> Key:
        return process.node.name, process.pool, process.generation


def _counted(process: Process) -> int:
    """How many may be there at once, and so die together before the first death slows them."""
    records = process.node.records
    return sum(worker_counts(records.reloading.rollout, records.reloading.adjust).values()) + 2


def _probes_a_minute(restarts: Restarts) -> int:
    wait, spent, probes = restarts.backoff_seconds, 0.0, 0
    while spent < MINUTE:
        spent += min(wait, restarts.backoff_max_seconds)
        wait *= 2
        probes += 1
    return probes
