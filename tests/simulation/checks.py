"""What must hold at every instant. A violation ends the run."""

import math
from typing import TYPE_CHECKING, Final

from rota_supervisor.layout import RANGES, Role
from rota_supervisor.master.children.child import LIVE, Child, Reason, State
from rota_supervisor.master.children.fleet import Fleet
from rota_supervisor.master.planning.actions import Action, Drain, Kill, Start
from rota_supervisor.master.planning.deadlines import (
    DUMP_SECONDS,
    HARD_LIMIT_GRACE_SECONDS,
    STOPPED_POLLER_SECONDS,
    can_be_dumped,
)
from rota_supervisor.master.planning.plan import plan
from rota_supervisor.master.planning.targets import Stage, desired_of, worker_counts
from simulation.capacity import Capacity
from simulation.process import Process
from simulation.violation import require
from simulation.workers import Worker

if TYPE_CHECKING:
    from simulation.node import Node

ROUNDING_SECONDS: Final = 0.001
SLACK_SECONDS: Final = 0.1  # from a wake of the master to its step, and the like


class CheckedFleet(Fleet):
    """The table of children: every action is looked at before it is performed."""

    def __init__(self, node: "Node") -> None:
        super().__init__()
        self._node = node
        self.performed = 0
        self.capacity = Capacity(node)
        self._told_at: dict[int, float] = {}

    def apply(self, action: Action, now: float) -> Child:
        self.performed += 1
        before = next((child for child in self if child.slot == action.slot), None)
        was = before.state if before is not None else None
        if isinstance(action, Start):
            self._check_start(action, before)
        child = super().apply(action, now)
        about = f"{child.role} {child.slot}.{child.nonce} {child.why or ''}"
        self._node.world.say(self._node.name, type(action).__name__, about)
        if isinstance(action, Drain):
            self._told_at[child.nonce] = now
        if isinstance(action, Drain) and was is State.READY and child.role is Role.WORKER:
            self.capacity.drained(child)
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
            generation = self._node.records.reloading.rollout.of(action.generation)
            zygotes = {child.generation for child in self.of(Role.ZYGOTE, State.READY)}
            has_zygote = generation is not None and generation.code in zygotes
            require(has_zygote, f"a worker of {action.generation} is started, and its zygote is not READY")
        lived_in = self._node.memory.slot(action.slot).is_lived_in
        require(not lived_in, f"slot {action.slot} is given away while its process lives")

    def told_at(self, child: Child) -> float:
        """When it was told to leave; `inf` before."""
        return self._told_at.get(child.nonce, math.inf)

    def _check_kill(self, child: Child) -> None:
        process = self._node.processes.get(child.pid)
        now = self._node.boottime()
        match child.why:
            case Reason.HUNG if process is not None:
                self._check_silence(child, process, now)
            case Reason.TIMEOUT if isinstance(process, Worker):
                over_at = process.looked_at + process.settings.time_limit_seconds + HARD_LIMIT_GRACE_SECONDS
                require(now > over_at, f"slot {child.slot} is killed before its deadline")
                late = now - max(over_at, self._node.awake_since)
                require(late <= DUMP_SECONDS + SLACK_SECONDS, f"slot {child.slot} is killed {late:.2f} s too late")
            case Reason.STOP:
                stop = self._node.records.stop
                late_to_leave = stop.stage is Stage.AT_ONCE or now > stop.leave_by
                require(late_to_leave or self._is_deaf(child, process, now), f"slot {child.slot} is killed too soon")
            case _:
                pass
        if can_be_dumped(child, child.why or Reason.STOP):
            since = now - child.dumped_at
            require(
                since >= DUMP_SECONDS, f"slot {child.slot} is killed {since:.2f} s after it was asked for its stack"
            )

    def _check_silence(self, child: Child, process: Process, now: float) -> None:
        silent = now - process.silent_since if process.silent_since is not None else 0.0
        beat_seconds = self._node.records.config.limits.beat_seconds
        allowed = patience(self._node, child.role) if child.stopped_at is not None else beat_seconds
        require(silent > allowed, f"slot {child.slot} is killed after {silent:.2f} s of silence")
        if process.was_ready and not runs_a_task(process):
            late = min(silent, now - self._node.awake_since) - allowed
            require(late <= DUMP_SECONDS + SLACK_SECONDS, f"slot {child.slot} is killed {late:.2f} s too late")

    def _is_deaf(self, child: Child, process: Process | None, now: float) -> bool:
        """Whether it had all the time there is to begin to leave, outside of the task in which it was told."""
        told_at = self.told_at(child)
        if isinstance(process, Worker) and process.running and process.began_at <= told_at:
            return False
        return now - told_at > self._node.records.config.limits.beat_seconds


def check_step(node: "Node") -> None:
    """After a step of its master."""
    records, now = node.records, node.boottime()
    reloading = records.reloading
    if node.fleet.performed:
        desired = desired_of(reloading.rollout, reloading.versions, records.stop, reloading.scaling, records.backoffs)
        again = plan(desired, node.fleet, now)
        require(not again, f"a second plan after performing is not empty: {again}")
        _check_counts(node)
    node.fleet.capacity.check()
    if records.stop.stage is Stage.REST:
        working = [
            process for process in node.processes.values() if isinstance(process, Worker) and process.has_moved_in
        ]
        require(not working, "the rest is told to leave before the workers have left")
    for child in node.fleet:
        process = node.processes.get(child.pid)
        if process is not None and child.state in (State.BOOTING, State.READY, State.DRAINING):
            _check_overdue(node, child, process, now)


def runs_a_task(process: Process) -> bool:
    """Whether its task's limit rules."""
    return isinstance(process, Worker) and process.running


def patience(node: "Node", role: Role) -> float:
    """How long it may be silent."""
    return STOPPED_POLLER_SECONDS if role is Role.POLLER else node.records.config.limits.beat_seconds


def _check_counts(node: "Node") -> None:
    reloading = node.records.reloading
    for pool, count in worker_counts(reloading.rollout, reloading.scaling).items():
        live = [child for child in node.fleet.of(Role.WORKER) if child.pool == pool and child.state in LIVE]
        sure = [child for child in live if child.state is not State.ASKED]
        require(len(sure) <= count + 1, f"{len(sure)} workers of {pool} instead of {count}")


def _check_overdue(node: "Node", child: Child, process: Process, now: float) -> None:
    number = process.slot_number
    spare = DUMP_SECONDS + SLACK_SECONDS
    if process.stopped_since is not None:
        silent = now - max(process.stopped_since, node.awake_since)
        require(silent <= patience(node, process.role) + SLACK_SECONDS, f"slot {number} is stopped for {silent:.2f} s")
        return
    if process.hung and process.was_ready and process.silent_since is not None and not runs_a_task(process):
        silent = now - max(process.silent_since, node.awake_since)
        allowed = node.records.config.limits.beat_seconds + spare
        require(silent <= allowed, f"slot {number} is silent for {silent:.2f} s")
    elif isinstance(process, Worker) and process.running:
        ran = now - max(process.looked_at, node.awake_since)
        allowed = process.settings.time_limit_seconds + HARD_LIMIT_GRACE_SECONDS + spare
        require(ran <= allowed, f"slot {number} runs its task for {ran:.2f} s")
    if isinstance(process, Worker) and process.deaf and child.state is State.DRAINING:
        stays = now - max(node.fleet.told_at(child), node.awake_since)
        allowed = 2 * process.settings.time_limit_seconds + node.records.config.limits.beat_seconds + 1.0 + spare
        require(stays <= allowed, f"slot {number} was told to leave {stays:.2f} s ago, and hears nothing")
