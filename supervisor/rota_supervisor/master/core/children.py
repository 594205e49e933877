"""What the master knows of its children: a record of each, with the steps that its state may take.

All times are seconds of CLOCK_BOOTTIME, the clock of the slots.
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
    """REGISTERING: its owner is being registered. ASKED: the zygote was asked. BOOTING: it has a pid.
    READY: it said so. DRAINING: told to leave. KILLED: SIGKILL sent. EXITED: gone; its owner is being retired."""

    REGISTERING = "registering"
    ASKED = "asked"
    BOOTING = "booting"
    READY = "ready"
    DRAINING = "draining"
    KILLED = "killed"
    EXITED = "exited"


ARROWS: Final = {
    ChildState.REGISTERING: {ChildState.ASKED, ChildState.EXITED},
    ChildState.ASKED: {ChildState.BOOTING, ChildState.KILLED, ChildState.EXITED},
    ChildState.BOOTING: {ChildState.READY, ChildState.DRAINING, ChildState.KILLED, ChildState.EXITED},
    ChildState.READY: {ChildState.DRAINING, ChildState.KILLED, ChildState.EXITED},
    ChildState.DRAINING: {ChildState.KILLED, ChildState.EXITED},
    ChildState.KILLED: {ChildState.EXITED},
    ChildState.EXITED: set[ChildState](),
}
STARTING: Final = frozenset({ChildState.REGISTERING, ChildState.ASKED, ChildState.BOOTING})
LIVE: Final = STARTING | {ChildState.READY}  # what counts towards a pool
AT_WORK: Final = frozenset({ChildState.READY, ChildState.DRAINING})  # it may run a task
ENDING: Final = frozenset({ChildState.KILLED, ChildState.EXITED})
UNSEEN: Final = ENDING | {ChildState.REGISTERING}  # nothing is read from its slot, and it has no deadline

STOPPED_SECONDS: Final = 0.5  # of a poller or an exporter; with tick and start another is there within 2 s


class WrongArrow(Exception):
    """A child was moved along an arrow that does not exist: a fault of the master."""


@dataclass(frozen=True, slots=True)
class PoolKey:
    """One generation of one pool."""

    role: Role
    pool: str
    generation: int


@dataclass(frozen=True, slots=True)
class ChildRef:
    """One life of a slot, as effects name it. `pid` is 0 as long as nobody has reported the process."""

    role: Role
    slot: int
    nonce: int
    pid: int = 0


class ToldCancel(NamedTuple):
    """Of which task in a place a worker was told that it was cancelled. `kill_after`: how many seconds that task was
    given to end, None for no limit; `kill_at`: when they are over."""

    number: int
    kill_after: float | None = None
    kill_at: float = math.inf


@dataclass(slots=True)
class Child:
    """One child, from the decision to start it until its slot is free again."""

    role: Role
    pool: str  # of a worker its pool, of others a name of their own
    generation: int
    slot: int
    nonce: int  # the number of this life of the slot
    state: ChildState
    asked_at: float  # when its process was asked for
    owner: str = ""  # the name under which a worker claims tasks, once that is registered
    asked_of: int = 0  # the nonce of the zygote that was asked for it
    lease_seconds: float = 0.0  # the lease that the worker was given
    has_stack: bool = False  # it has a file to write its stack to
    pid: int = 0
    ready_at: float | None = None
    places: int = 1  # how many tasks it runs at once, at most

    # What its slot showed last
    beat_at: float = 0.0  # its last sign of life
    tasks: tuple[TaskTimes, ...] = ()  # that it runs
    task_until: float = math.inf  # the first hard limit of them
    soft_limits: tuple[float, ...] = ()  # the soft limits of them
    stepping: int | None = None  # the place whose coroutine took a step
    in_hand: bool = False  # it runs a task, or has outcomes that no answer has confirmed
    shortest_soft_seconds: float = math.inf  # the shortest soft limit that a task of it had lately
    shortest_soft_met_at: float = -math.inf  # when a task had that limit last
    has_worked: bool = False  # it has ended a task
    recycle_for: Reason | None = None  # why it asks to be replaced
    is_quiet: bool = False  # it claims nothing for now

    # What the master did with it
    interrupted_at: float = -math.inf  # when it was last told that a soft limit is over: it looks at all that are
    cancels: dict[int, ToldCancel] = field(default_factory=dict)  # by place the last that it was told
    dumped_at: float = -math.inf  # when it was last asked for its stack
    blocked_since: float = -math.inf  # its last beat before it was last reported as blocked
    drain_asked_at: float = math.inf  # when it was told to drain
    has_begun_drain: bool = False  # its slot has shown that it drains
    drain_awaited_since: float = math.inf  # since when it could begin to drain; `inf` in the task it was told in
    why: Reason | None = None  # the reason for which it was told to drain, or killed
    stopped_at: float | None = None  # when a signal stopped it; None while it runs

    def move(self, state: ChildState) -> None:
        """Take a step. Raises WrongArrow when the table does not have it."""
        if state not in ARROWS[self.state]:
            raise WrongArrow(f"{self.role} in slot {self.slot}: {self.state} to {state}")
        self.state = state

    def patience(self, beat_seconds: float) -> float:
        """How long it may be stopped. Without a poller nothing is promoted, without the exporter no probe answered."""
        return min(beat_seconds, STOPPED_SECONDS) if self.role in (Role.POLLER, Role.EXPORTER) else beat_seconds

    def runs(self, tasks: tuple[TaskTimes, ...]) -> None:
        """Its slot shows these."""
        self.tasks = tasks
        hard = [task.deadline_ns for task in tasks if task.deadline_ns]
        self.task_until = min(hard) / NANOSECONDS if hard else math.inf
        self.soft_limits = tuple(task.soft_deadline_ns / NANOSECONDS for task in tasks if task.soft_deadline_ns)

    @property
    def busy(self) -> bool:
        """Whether it runs a task."""
        return bool(self.tasks)

    @property
    def soft_until(self) -> float:
        """The first soft limit of its tasks of which it was not told that it is over."""
        return min((at for at in self.soft_limits if at >= self.interrupted_at), default=math.inf)

    @property
    def kill_at(self) -> float:
        """When the first of its tasks that were cancelled has had the time that it was given."""
        if not self.cancels:
            return math.inf
        running = {(task.place, task.number) for task in self.tasks}
        times = (told.kill_at for place, told in self.cancels.items() if (place, told.number) in running)
        return min(times, default=math.inf)

    @property
    def key(self) -> PoolKey:
        """The pool it belongs to, with its generation: what back-off is kept by."""
        return PoolKey(self.role, self.pool, self.generation)

    @property
    def ref(self) -> ChildRef:
        """What an effect needs to know of it."""
        return ChildRef(self.role, self.slot, self.nonce, self.pid)


class Children:
    """All children by slot. A slot is free when it has no record here."""

    def __init__(self) -> None:
        self._by_slot: dict[int, Child] = {}
        self._last_nonce = 0

    def __iter__(self) -> Iterator[Child]:
        return iter(list(self._by_slot.values()))

    def in_slot(self, slot: int) -> Child:
        """The child in a slot that is taken."""
        return self._by_slot[slot]

    def get(self, slot: int, nonce: int) -> Child | None:
        """That life of the slot, or None when it is over."""
        child = self._by_slot.get(slot)
        return child if child is not None and child.nonce == nonce else None

    def by_pid(self, pid: int) -> Child | None:
        """The child that is this process; its number is its own until it is reaped."""
        return next((child for child in self if child.pid == pid and child.state is not ChildState.EXITED), None)

    def of(self, role: Role, state: ChildState | None = None) -> list[Child]:
        """The children of a role, in that state when one is given."""
        return [child for child in self if child.role is role and state in (None, child.state)]

    @property
    def in_hand(self) -> int:
        """How many workers have tasks or outcomes in hand, living and dead."""
        return sum(child.in_hand for child in self.of(Role.WORKER))

    def begin(self, role: Role, pool: str, generation: int, slot: int, now: float) -> Child:
        """A child in a free slot, to be started now."""
        state = ChildState.REGISTERING if role is Role.WORKER else ChildState.BOOTING
        self._last_nonce += 1
        child = Child(role, pool, generation, slot, self._last_nonce, state, now, beat_at=now)
        assert slot not in self._by_slot, "a slot has one child"
        self._by_slot[slot] = child
        return child

    def forget(self, child: Child) -> None:
        """Free the slot of a child that is EXITED and retired."""
        assert child.state is ChildState.EXITED
        del self._by_slot[child.slot]
