"""The conditions that must hold at every moment of a simulation. A violation ends the simulation."""

import math
from typing import TYPE_CHECKING, Final

from rota_supervisor.layout import RANGES, Role
from rota_supervisor.master.core.children import LIVE, Child, ChildState
from rota_supervisor.master.core.effects import (
    Effect,
    FreeSlot,
    Order,
    ReapOwner,
    Register,
    RenewLeases,
    SignalChild,
    Spawn,
)
from rota_supervisor.master.core.master_events import Ticked
from rota_supervisor.master.core.plan import (
    DUMP_SECONDS,
    HARD_LIMIT_GRACE_SECONDS,
    can_be_dumped,
)
from rota_supervisor.master.core.reasons import Reason
from rota_supervisor.master.core.take import take
from rota_supervisor.master.core.targets import Stage
from simulation.capacity import Capacity
from simulation.process import Process
from simulation.serving import schedules_of
from simulation.violation import require
from simulation.workers import Worker

if TYPE_CHECKING:
    from simulation.node import Node

ROUNDING_SECONDS: Final = 0.001
# A tolerance, for example because the master needs a moment between its wake-up and its step.
SLACK_SECONDS: Final = 0.1
_NOTED: Final = {Order.LEAVE: "Drain", Order.INTERRUPT: "Interrupt", Order.WRITE_STACK: "Dump", Order.KILL: "Kill"}


class Checks:
    """Checks of the master's effects and state. The effects of an event are checked before they are carried out, and
    the state is checked after each step.
    """

    def __init__(self, node: "Node") -> None:
        self._node = node
        self.capacity = Capacity(node)
        self._signalled_at: dict[int, float] = {}
        self._registering: set[tuple[int, int]] = set()
        self._reaped: dict[int, str] = {}
        self._declared: dict[str, bytes] = {}

    # Effects

    def check(self, effects: list[Effect]) -> None:
        """Check the effects of an event before they are carried out."""
        for number, effect in enumerate(effects):
            match effect:
                case Register(places):
                    for slot, nonce in places:
                        self._check_start(slot, nonce)
                case Spawn(child):
                    self._check_start(child.slot, child.nonce)
                case SignalChild():
                    self._check_signal(effect, effects[number + 1 :])
                case ReapOwner(slot, _, owner):
                    self._reaped[slot] = owner
                case FreeSlot(slot):
                    self._check_free(slot)
                case RenewLeases():
                    self._check_declared(effect)
                case _:
                    pass
        self._note_abandoned()

    def _check_start(self, slot: int, nonce: int) -> None:
        node = self._node
        child = node.state.children.get(slot, nonce)
        assert child is not None, "each started child has a record"
        self._note("Start", child)
        require(slot in RANGES[child.role], f"slot {slot} is not for a {child.role}")
        if child.role is Role.WORKER:
            generation = node.state.rollout.of(child.generation)
            zygotes = {each.generation for each in node.state.children.of(Role.ZYGOTE, ChildState.READY)}
            has_zygote = generation is not None and generation.code in zygotes
            require(has_zygote, f"a worker of {child.generation} is started, and its zygote is not READY")
        lived_in = node.memory.slot(slot).is_lived_in
        require(not lived_in, f"slot {slot} is given away while its process lives")

    def _check_signal(self, effect: SignalChild, later: list[Effect]) -> None:
        child = self._node.state.children.get(effect.child.slot, effect.child.nonce)
        assert child is not None, "each signalled child has a record"
        self._note(_NOTED[effect.order], child)
        if effect.order is Order.LEAVE:
            self._check_drain(child, later)
        if effect.order is Order.KILL:
            self._check_kill(child)

    def _check_drain(self, child: Child, later: list[Effect]) -> None:
        self._signalled_at[child.nonce] = self._node.boottime()
        if child.role is Role.WORKER and child.ready_at is not None:
            self.capacity.drained(child, still_there=self._drained_later(child.pool, later))
        if child.role in (Role.POLLER, Role.EXPORTER):
            early = self._node.state.stop.stage is Stage.WORKERS
            require(not early, f"a {child.role} is ordered to leave before the workers have left")

    def _drained_later(self, pool: str, later: list[Effect]) -> list[Child]:
        """Return the pool's workers that were READY and are ordered to drain by a later effect of the same step. The
        records of these workers are already marked as draining.
        """
        told = [each.child for each in later if isinstance(each, SignalChild) and each.order is Order.LEAVE]
        children = [self._node.state.children.in_slot(child.slot) for child in told]
        return [child for child in children if child.pool == pool and child.ready_at is not None]

    def _check_free(self, slot: int) -> None:
        if any(child.slot == slot for child in self._node.state.children):
            return  # the child's record is gone; if the process still starts, it cannot take the slot
        owner = self._reaped.pop(slot, "")
        registered = owner in self._node.world.server.owners
        require(not registered, f"slot {slot} is free, and its owner {owner} is not reaped")

    def _check_declared(self, effect: RenewLeases) -> None:
        self._note_declared()
        self._check_announced(effect)
        declared = {each.name: each.text for each in effect.schedules}
        require(declared == self._declared, f"{declared} is declared instead of {self._declared}")
        require(all(each.age_seconds >= 0 for each in effect.schedules), "a schedule is declared before its time")

    def _check_announced(self, effect: RenewLeases) -> None:
        """Check that the announced queues and conditions are those of the configuration in force. Consumers and sweeps
        rely on this.
        """
        config = self._node.state.config
        told = {share.name: share.condition for share in effect.announced.shares}
        wanted = {name: queue.condition for name, queue in config.queues.items()}
        require(told == wanted, f"{told} is announced instead of {wanted}")
        require(
            effect.conditions == config.conditions, f"{effect.conditions} are published instead of {config.conditions}"
        )

    def _note_declared(self) -> None:
        """Record the schedules that the master must declare. Until the code of the configuration in force is loaded,
        the master must still declare the previous schedules.
        """
        state = self._node.state
        if state.code_of(state.rollout.in_force.code).is_loaded:
            self._declared = schedules_of(state.config)

    def _note_abandoned(self) -> None:
        now = {(child.slot, child.nonce) for child in self._node.state.children.of(Role.WORKER, ChildState.REGISTERING)}
        for slot, nonce in self._registering - now:
            if self._node.state.children.get(slot, nonce) is None:
                self._node.world.note(self._node.name, "Abandon", f"worker {slot}.{nonce}")
        self._registering = now

    def _note(self, what: str, child: Child) -> None:
        self._node.world.note(self._node.name, what, f"{child.role} {child.slot}.{child.nonce} {child.why or ''}")

    def signalled_at(self, child: Child) -> float:
        """Return when the child was ordered to exit, in seconds of the node's clock, or `inf` if it was not ordered to
        exit.
        """
        return self._signalled_at.get(child.nonce, math.inf)

    def _check_kill(self, child: Child) -> None:
        process = self._node.processes.get(child.pid)
        now = self._node.boottime()
        match child.why:
            case Reason.HUNG if process is not None:
                self._check_silence(child, process, now)
            case Reason.TIMEOUT if isinstance(process, Worker):
                over_at = process.read_at + process.settings.time_limit_seconds + HARD_LIMIT_GRACE_SECONDS
                require(now > over_at, f"slot {child.slot} is killed before its deadline")
                late = now - max(over_at, self._node.awake_since)
                require(late <= DUMP_SECONDS + SLACK_SECONDS, f"slot {child.slot} is killed {late:.2f} s too late")
            case Reason.CANCELLED if isinstance(process, Worker):
                is_meant = process.runs_cancelled
                require(is_meant, f"slot {child.slot} is killed for a cancelled task that it does not run")
                require(now > child.kill_at, f"slot {child.slot} is killed before the time that its task was given")
                late = now - max(child.kill_at, self._node.awake_since)
                require(late <= DUMP_SECONDS + SLACK_SECONDS, f"slot {child.slot} is killed {late:.2f} s too late")
            case Reason.STOP:
                stop = self._node.state.stop
                leave_by = stop.leave_by if child.has_work else min(stop.leave_by, stop.idle_leave_by)
                late_to_leave = stop.stage is Stage.AT_ONCE or now > leave_by
                require(
                    late_to_leave or self._is_unresponsive(child, process, now), f"slot {child.slot} is killed too soon"
                )
            case _:
                pass
        if can_be_dumped(child, child.why or Reason.STOP):
            since = now - child.dumped_at
            require(since >= DUMP_SECONDS, f"slot {child.slot} is killed {since:.2f} s after its stack was requested")

    def _check_silence(self, child: Child, process: Process, now: float) -> None:
        silent = now - process.silent_since if process.silent_since is not None else 0.0
        beat_seconds = self._node.state.config.limits.beat_seconds
        allowed = child.stop_timeout(beat_seconds) if child.stopped_at is not None else beat_seconds
        require(silent > allowed, f"slot {child.slot} is killed after {silent:.2f} s of silence")
        if process.was_ready and not runs_a_task(process):
            late = min(silent, now - self._node.awake_since) - allowed
            require(late <= DUMP_SECONDS + SLACK_SECONDS, f"slot {child.slot} is killed {late:.2f} s too late")

    def _is_unresponsive(self, child: Child, process: Process | None, now: float) -> bool:
        """Whether the child has not responded to the order to exit although it had enough time. A worker does not have
        to respond while it still runs the task during which the order arrived.
        """
        signalled_at = self.signalled_at(child)
        if isinstance(process, Worker) and process.running and process.began_at <= signalled_at:
            return False
        return now - signalled_at > self._node.state.config.limits.beat_seconds

    # The state

    def check_step(self) -> None:
        """Check the state after a step of the master."""
        node = self._node
        now = self._node.boottime()
        state = node.state
        again = take(state, Ticked(node.connection.silent_since), now)
        require(not again, f"a second tick at the same time is not without effect: {again}")
        self._note_declared()
        _check_counts(node)
        self.capacity.check()
        if state.stop.stage is Stage.REST:
            working = [
                process for process in node.processes.values() if isinstance(process, Worker) and process.has_moved_in
            ]
            require(not working, "the rest is ordered to leave before the workers have left")
        for child in state.children:
            process = node.processes.get(child.pid)
            if process is not None and child.state in (ChildState.BOOTING, ChildState.READY, ChildState.DRAINING):
                _check_overdue(node, child, process, now)


def runs_a_task(process: Process) -> bool:
    """Whether the process runs a task, so that the task's time limit applies to it instead of the heartbeat limit."""
    return isinstance(process, Worker) and process.running and not process.several


def _check_counts(node: "Node") -> None:
    for pool, count in node.state.wanted.counts.items():
        live = [child for child in node.state.children.of(Role.WORKER) if child.pool == pool and child.state in LIVE]
        sure = [child for child in live if child.state is not ChildState.REQUESTED]
        require(len(sure) <= count + 1, f"{len(sure)} workers of {pool} instead of {count}")


def _check_overdue(node: "Node", child: Child, process: Process, now: float) -> None:
    number = process.slot_number
    spare = DUMP_SECONDS + SLACK_SECONDS
    if process.stopped_since is not None:
        silent = now - max(process.stopped_since, node.awake_since)
        allowed = child.stop_timeout(node.state.config.limits.beat_seconds) + SLACK_SECONDS
        require(silent <= allowed, f"slot {number} is stopped for {silent:.2f} s")
        return
    if process.hung and process.was_ready and process.silent_since is not None and not runs_a_task(process):
        silent = now - max(process.silent_since, node.awake_since)
        allowed = node.state.config.limits.beat_seconds + spare
        require(silent <= allowed, f"slot {number} is silent for {silent:.2f} s")
    elif isinstance(process, Worker) and process.running:
        ran = now - max(process.read_at, node.awake_since)
        allowed = process.settings.time_limit_seconds + HARD_LIMIT_GRACE_SECONDS + spare
        require(ran <= allowed, f"slot {number} runs its task for {ran:.2f} s")
        if process.runs_cancelled:
            stays = now - max(child.kill_at, node.awake_since)
            require(stays <= spare, f"slot {number} runs on for {stays:.2f} s after the time that was given")
    if (
        isinstance(process, Worker)
        and process.unresponsive
        and not process.stop_requested
        and child.state is ChildState.DRAINING
    ):
        stays = now - max(node.checks.signalled_at(child), node.awake_since)
        allowed = 2 * process.settings.time_limit_seconds + node.state.config.limits.beat_seconds + 1.0 + spare
        require(stays <= allowed, f"slot {number} was ordered to leave {stays:.2f} s ago, and does not respond")
