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
    BOOTING = "booting"  # the process is starting and is not ready yet
    READY = "ready"  # the child has reported in its slot that it is ready
    DRAINING = "draining"  # the child was ordered to finish its tasks and exit
    KILLED = "killed"  # SIGKILL was sent
    EXITED = "exited"  # the child is dead, and its owner is being reaped


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
AT_WORK: Final = frozenset({ChildState.READY, ChildState.DRAINING})  # states in which a child may run a task
ENDING: Final = frozenset({ChildState.KILLED, ChildState.EXITED})
UNSEEN: Final = ENDING | {ChildState.REGISTERING}  # states in which the child has no deadline and its slot is not read

# How long a signal may suspend a poller or an exporter before the master kills the process. A replacement then runs
# within 2 s, including the time until the next tick and the start of the process.
STOPPED_SECONDS: Final = 0.5


class ForbiddenTransition(Exception):
    """A transition that is not in `TRANSITIONS`. It is a bug in the master."""


@dataclass(frozen=True, slots=True)
class PoolKey:
    """The key of one pool in one generation."""

    role: Role
    pool: str
    generation: int


@dataclass(frozen=True, slots=True)
class ChildRef:
    """A reference to a child, for use in effects. The nonce distinguishes the child from earlier children in the same
    slot. `pid` is 0 until the pid is known."""

    role: Role
    slot: int
    nonce: int
    pid: int = 0


class SentCancel(NamedTuple):
    """The last cancellation of which a worker was notified for one of its task indexes. A worker that runs several
    tasks at once has an index for each of them."""

    number: int  # the number of the cancelled task, which distinguishes it from later tasks at the same index
    # Seconds that the task has to end before the worker is killed, or None for no limit.
    kill_after: float | None = None
    kill_at: float = math.inf  # when the worker is killed if the task is still running


@dataclass(slots=True)
class Child:
    """One child, from the decision to start it until its slot is free again."""

    role: Role
    pool: str  # the name of the child's pool, for example `default`, `pollers` or `generation-1`
    generation: int
    slot: int
    nonce: int  # a number that no other child of this master has
    state: ChildState
    requested_at: float  # when the master requested the child's process
    owner: str = ""  # the name under which a worker claims tasks; empty until it is registered
    zygote_nonce: int = 0  # the nonce of the zygote from which the worker was requested
    lease_seconds: float = 0.0  # the duration of the worker's lease
    has_stack: bool = False  # whether the child has a stack file
    pid: int = 0
    ready_at: float | None = None
    concurrency: int = 1  # the largest number of tasks that the child runs at once

    # Values from the last reading of the child's slot
    heartbeat_at: float = 0.0  # the time of the child's last sign of life
    tasks: tuple[TaskTimes, ...] = ()  # the tasks that the child is running
    task_until: float = math.inf  # the earliest time at which a running task reaches its hard limit
    soft_limits: tuple[float, ...] = ()  # the times at which the running tasks reach their soft limits
    stepping: int | None = None  # the index of the task whose coroutine is running now
    has_work: bool = False  # whether the child runs a task or has outcomes that Redis has not confirmed
    shortest_soft_seconds: float = math.inf  # the shortest soft limit among the child's recent tasks
    shortest_soft_met_at: float = -math.inf  # when a task with this shortest limit last ran
    has_worked: bool = False  # whether the child has finished a task
    recycle_for: Reason | None = None  # why the worker has asked to be replaced, or None
    is_quiet: bool = False  # whether the child has stopped claiming tasks for now

    # The actions of the master
    interrupted_at: float = -math.inf  # when the child was last ordered to check the soft limits of its tasks
    cancels: dict[int, SentCancel] = field(default_factory=dict)  # the last cancellation sent for each task index
    dumped_at: float = -math.inf  # when the child's stack was last requested
    blocked_since: float = -math.inf  # the last heartbeat before the child's event loop was last reported as blocked
    drain_requested_at: float = math.inf  # when the child was ordered to drain
    has_started_drain: bool = False  # whether the child has reported in its slot that it is draining
    # When the master began to wait for the child to start draining. If a task was running when the order was sent, this
    # is when that task ended. `inf` while the master does not wait.
    drain_awaited_since: float = math.inf
    why: Reason | None = None  # why the child was ordered to drain, or was killed
    stopped_at: float | None = None  # when a signal suspended the child, or None if it is not suspended

    def move(self, state: ChildState) -> None:
        """Move to another state. Raises ForbiddenTransition if `TRANSITIONS` does not allow the transition."""
        if state not in TRANSITIONS[self.state]:
            raise ForbiddenTransition(f"{self.role} in slot {self.slot}: {self.state} to {state}")
        self.state = state

    def stop_timeout(self, beat_seconds: float) -> float:
        """Return how many seconds a signal such as SIGSTOP may suspend the child before the master kills the child.

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
        """The next time at which a running task of the child has to be interrupted, because it reaches its soft limit.
        Limits for which the child has already been interrupted do not count."""
        return min((at for at in self.soft_limits if at >= self.interrupted_at), default=math.inf)

    @property
    def kill_at(self) -> float:
        """The earliest time at which the child has to be killed because one of its cancelled tasks has not ended, or
        infinity."""
        if not self.cancels:
            return math.inf
        running = {(task.task_index, task.number) for task in self.tasks}
        times = (sent.kill_at for task_index, sent in self.cancels.items() if (task_index, sent.number) in running)
        return min(times, default=math.inf)

    @property
    def key(self) -> PoolKey:
        """The key of the child's pool and generation. There is a separate back-off for each such key."""
        return PoolKey(self.role, self.pool, self.generation)

    @property
    def ref(self) -> ChildRef:
        """A reference to the child, for use in effects."""
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
        """Return the children with this role. If `state` is given, return only those in that state."""
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
        """Free the slot of an EXITED child, after its owner has been reaped."""
        assert child.state is ChildState.EXITED
        del self._by_slot[child.slot]
