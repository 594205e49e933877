"""The master's view of its children: one record each, with the arrows its state may take.

All times are seconds of CLOCK_BOOTTIME, the clock of the slots.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rota_supervisor.layout import Role


class State(StrEnum):
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
    State.REGISTERING: {State.ASKED, State.EXITED},
    State.ASKED: {State.BOOTING, State.KILLED, State.EXITED},
    State.BOOTING: {State.READY, State.DRAINING, State.KILLED, State.EXITED},
    State.READY: {State.DRAINING, State.KILLED, State.EXITED},
    State.DRAINING: {State.KILLED, State.EXITED},
    State.KILLED: {State.EXITED},
    State.EXITED: set[State](),
}
STARTING: Final = frozenset({State.REGISTERING, State.ASKED, State.BOOTING})
LIVE: Final = STARTING | {State.READY}  # what counts towards a pool


class Reason(StrEnum):
    """Why a child was told to leave or killed, and why it died: also the label of the restart counter."""

    CRASH = "crash"
    SIGNAL = "signal"
    OOM = "oom"
    HUNG = "hung"
    TIMEOUT = "timeout"
    MAX_TASKS = "max_tasks"
    MAX_RSS = "max_rss"
    RELOAD = "reload"
    BOOT = "boot"
    SURPLUS = "surplus"
    STOP = "stop"
    LOST = "lost"
    DRAINED = "drained"


class WrongArrow(Exception):
    """A child was moved along an arrow that does not exist: a fault of the master."""


@dataclass(slots=True)
class Child:
    """One child, from the decision to start it until its slot is free again.

    `pool`: a worker's pool; for others a name of their own. `nonce`: this life of the slot. `owner`: the name a worker
    claims under, "" until it is registered and for other roles. `asked_at`: when the process was asked for; `asked_of`:
    the nonce of the zygote that was asked. `lease_seconds`: the lease that a worker was told. `awake_since`: when the
    machine last came back from a sleep, which is held against nobody. `task_until`: its task's hard deadline, `inf` for
    none; `soft_until`: its soft one; `interrupted_for`: the one for which it was last interrupted;
    `shortest_soft_seconds`: of the soft limits met of late. `wish`: why it would like to be replaced. `is_quiet`:
    it claims nothing for now. `has_stack`: it can be asked for its stack; `dumped_at`: when it last was. `deaf_since`:
    since when it could have heard that it is to leave; `inf` before it was told, and once it has. `why`: of DRAINING,
    KILLED.
    """

    role: Role
    pool: str
    generation: int
    slot: int
    nonce: int
    state: State
    asked_at: float
    owner: str = ""
    asked_of: int = 0
    lease_seconds: float = 0.0
    pid: int = 0
    ready_at: float | None = None
    beat_at: float = 0.0
    awake_since: float = 0.0
    busy: bool = False
    task_until: float = math.inf
    soft_until: float = math.inf
    interrupted_for: float = math.inf
    shortest_soft_seconds: float = math.inf
    stopped_at: float | None = None
    wish: Reason | None = None
    is_quiet: bool = False
    has_stack: bool = False
    dumped_at: float = -math.inf
    deaf_since: float = math.inf
    why: Reason | None = None

    def move(self, state: State) -> None:
        """Take an arrow. Raises WrongArrow when there is none."""
        if state not in ARROWS[self.state]:
            raise WrongArrow(f"{self.role} in slot {self.slot}: {self.state} to {state}")
        self.state = state

    @property
    def key(self) -> "PoolKey":
        """The pool it belongs to, with its generation: what back-off is kept by."""
        return PoolKey(self.role, self.pool, self.generation)


@dataclass(frozen=True, slots=True)
class PoolKey:
    """One generation of one pool."""

    role: Role
    pool: str
    generation: int
