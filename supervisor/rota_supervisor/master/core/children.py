"""The master's records of its children, and the permitted transitions between the states of a child.

All times are in seconds of CLOCK_BOOTTIME, the clock of the slots.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from rota.child.slot_record import TaskTimes
from rota.durations import NANOSECONDS
from rota_supervisor.layout import Role
from rota_supervisor.master.core.reasons import Reason


class ChildState(StrEnum):
    """The state of a child."""

    REGISTERING = "registering"  # the owner of the worker is being registered in Redis
    REQUESTED = "requested"  # the worker was requested from a zygote
    BOOTING = "booting"  # it has a pid
    READY = "ready"  # its slot has shown that it is ready
    DRAINING = "draining"  # it was ordered to leave
    KILLED = "killed"  # SIGKILL was sent
    EXITED = "exited"  # it is dead, and its owner is being reaped


TRANSITIONS: Final = {
    ChildState.REGISTERING: {ChildState.REQUESTED, ChildState.EXITED},
    ChildState.REQUESTED: {ChildState.BOOTING, ChildState.KILLED, ChildState.EXITED},
    ChildState.BOOTING: {ChildState.READY, ChildState.DRAINING, ChildState.KILLED, ChildState.EXITED},
    ChildState.READY: {ChildState.DRAINING, ChildState.KILLED, ChildState.EXITED},
    ChildState.DRAINING: {ChildState.KILLED, ChildState.EXITED},
    ChildState.KILLED: {ChildState.EXITED},
    ChildState.EXITED: set[ChildState](),
}
STARTING: Final = frozenset({ChildState.REGISTERING, ChildState.REQUESTED, ChildState.BOOTING})
LIVE: Final = STARTING | {ChildState.READY}  # states that count towards the size of a pool
AT_WORK: Final = frozenset({ChildState.READY, ChildState.DRAINING})  # states in which it may run a task
ENDING: Final = frozenset({ChildState.KILLED, ChildState.EXITED})
UNSEEN: Final = ENDING | {ChildState.REGISTERING}  # states in which the child has no deadline and its slot is not read

# How long a poller or an exporter may stay stopped by a signal before it is killed. A replacement then runs within 2 s,
# including the time until the next tick and the start of the process.
STOPPED_SECONDS: Final = 0.5


class ForbiddenTransition(Exception):
    """A transition that is missing in `TRANSITIONS`. This is a bug of the master."""


@dataclass(frozen=True, slots=True)
class PoolKey:
    """One generation of one pool."""

    role: Role
    pool: str
    generation: int


@dataclass(frozen=True, slots=True)
class ChildRef:
    """A reference to one incarnation of a slot, as used in effects. `pid` is 0 until the process is reported."""

    role: Role
    slot: int
    nonce: int
    pid: int = 0


class SentCancel(NamedTuple):
    """The last cancellation that a worker was notified of for one task index."""

    number: int  # the number of the cancelled task, counted over all tasks that ran at this index
    kill_after: float | None = None  # seconds until the worker is killed if the task has not ended, or None for never
    kill_at: float = math.inf  # the time at which `kill_after` has passed


@dataclass(slots=True)
class Child:
    """One child, from the decision to start it until its slot is free again."""

    role: Role
    pool: str  # the pool of a worker; for other roles, the name of the role's own pool
    generation: int
    slot: int
    nonce: int  # the number of this incarnation of the slot
    state: ChildState
    requested_at: float  # when its process was requested
    owner: str = ""  # the name under which a worker claims tasks, once it is registered
    zygote_nonce: int = 0  # the nonce of the zygote from which the worker was requested
    lease_seconds: float = 0.0  # the lease that the worker was given
    has_stack: bool = False  # whether it has a stack file
    pid: int = 0
    ready_at: float | None = None
    concurrency: int = 1  # the largest number of tasks that it runs at once

    # The last reading of its slot
    heartbeat_at: float = 0.0  # the time of its last sign of life
    tasks: tuple[TaskTimes, ...] = ()  # the tasks that it runs
    task_until: float = math.inf  # the earliest time at which one of its tasks reaches its hard limit
    soft_limits: tuple[float, ...] = ()  # the times at which its tasks reach their soft limits
    stepping: int | None = None  # the index of the task whose coroutine is running now
    has_work: bool = False  # whether it runs a task or has outcomes that Redis has not confirmed
    shortest_soft_seconds: float = math.inf  # the shortest soft limit among its recent tasks
    shortest_soft_met_at: float = -math.inf  # when a task with that limit last ran
    has_worked: bool = False  # whether it has finished a task
    recycle_for: Reason | None = None  # why it has asked to be replaced, or None
    is_quiet: bool = False  # whether it has stopped claiming tasks for now

    # The actions of the master
    interrupted_at: float = -math.inf  # when it was last ordered to check the soft limits of its tasks
    cancels: dict[int, SentCancel] = field(default_factory=dict)  # the last cancellation sent for each task index
    dumped_at: float = -math.inf  # when its stack was last requested
    blocked_since: float = -math.inf  # its last heartbeat before its event loop was last reported as blocked
    drain_requested_at: float = math.inf  # when it was ordered to drain
    has_started_drain: bool = False  # whether its slot has shown that it is draining
    # When the master began to wait for it to drain: after the end of the task that was running when the order to drain
    # was sent. `inf` until then.
    drain_awaited_since: float = math.inf
    why: Reason | None = None  # why it was ordered to drain, or killed
    stopped_at: float | None = None  # when a signal stopped it, or None while it runs

    def move(self, state: ChildState) -> None:
        """Move to another state. Raises ForbiddenTransition if `TRANSITIONS` does not allow the transition."""
        if state not in TRANSITIONS[self.state]:
            raise ForbiddenTransition(f"{self.role} in slot {self.slot}: {self.state} to {state}")
        self.state = state

    def stop_timeout(self, beat_seconds: float) -> float:
        """Return how many seconds the child may stay stopped by a signal before it is killed.

        Pollers and the exporter get less time, because without a poller no task is promoted, and without the exporter
        no health probe gets a reply.
        """
        return min(beat_seconds, STOPPED_SECONDS) if self.role in (Role.POLLER, Role.EXPORTER) else beat_seconds

    def runs(self, tasks: tuple[TaskTimes, ...]) -> None:
        """Store the tasks that the child's slot shows as running, and the times at which they reach their limits."""
        self.tasks = tasks
        hard = [task.deadline_ns for task in tasks if task.deadline_ns]
        self.task_until = min(hard) / NANOSECONDS if hard else math.inf
        self.soft_limits = tuple(task.soft_deadline_ns / NANOSECONDS for task in tasks if task.soft_deadline_ns)

    @property
    def busy(self) -> bool:
        """Whether the child runs a task."""
        return bool(self.tasks)

    @property
    def soft_until(self) -> float:
        """The earliest time at which one of the child's tasks reaches its soft limit. Expired limits that the child was
        already notified of do not count."""
        return min((at for at in self.soft_limits if at >= self.interrupted_at), default=math.inf)

    @property
    def kill_at(self) -> float:
        """The earliest time at which the child is killed because a cancelled task has not ended."""
        if not self.cancels:
            return math.inf
        running = {(task.task_index, task.number) for task in self.tasks}
        times = (sent.kill_at for task_index, sent in self.cancels.items() if (task_index, sent.number) in running)
        return min(times, default=math.inf)

    @property
    def key(self) -> PoolKey:
        """The child's pool and generation. Each such key has a separate back-off."""
        return PoolKey(self.role, self.pool, self.generation)

    @property
    def ref(self) -> ChildRef:
        """A reference to this incarnation of the child, for use in effects."""
        return ChildRef(self.role, self.slot, self.nonce, self.pid)


class Children:
    """All children by slot. A slot without a record here is free."""

    def __init__(self) -> None:
        self._by_slot: dict[int, Child] = {}
        self._last_nonce = 0

    def __iter__(self) -> Iterator[Child]:
        return iter(list(self._by_slot.values()))

    def in_slot(self, slot: int) -> Child:
        """Return the child in a slot that is taken."""
        return self._by_slot[slot]

    def get(self, slot: int, nonce: int) -> Child | None:
        """Return the child with this nonce, or None if the slot is free or has another child."""
        child = self._by_slot.get(slot)
        return child if child is not None and child.nonce == nonce else None

    def by_pid(self, pid: int) -> Child | None:
        """Return the child with this pid, or None. EXITED children are ignored, because the kernel can reuse their
        pids."""
        return next((child for child in self if child.pid == pid and child.state is not ChildState.EXITED), None)

    def of(self, role: Role, state: ChildState | None = None) -> list[Child]:
        """Return the children of a role, or only the children of that role that are in `state`."""
        return [child for child in self if child.role is role and state in (None, child.state)]

    @property
    def holding_work(self) -> int:
        """The number of workers, living and dead, that hold tasks or unconfirmed outcomes."""
        return sum(child.has_work for child in self.of(Role.WORKER))

    def add(self, role: Role, pool: str, generation: int, slot: int, now: float) -> Child:
        """Add a new child in a free slot, and return its record."""
        state = ChildState.REGISTERING if role is Role.WORKER else ChildState.BOOTING
        self._last_nonce += 1
        child = Child(role, pool, generation, slot, self._last_nonce, state, now, heartbeat_at=now)
        assert slot not in self._by_slot, "the slot already has a child"
        self._by_slot[slot] = child
        return child

    def forget(self, child: Child) -> None:
        """Free the slot of a child that is EXITED, after its owner was reaped."""
        assert child.state is ChildState.EXITED
        del self._by_slot[child.slot]
