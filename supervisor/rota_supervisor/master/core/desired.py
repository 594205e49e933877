"""What a plan is to bring about, and what it is made of."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from rota_supervisor.layout import Role
from rota_supervisor.master.core.backoff import StartBackoff
from rota_supervisor.master.core.children import PoolKey
from rota_supervisor.master.core.reasons import Reason


@dataclass(frozen=True, slots=True)
class Target:
    """One pool as it should be. `surge`: how many may be started beside stale ones. `leave_by`: when all that is left
    of it is killed. `zygote`: of workers, the generation of the zygote they are forked from; None for their own."""

    role: Role
    pool: str
    count: int
    generation: int
    surge: int = 1
    leave_by: float = math.inf
    zygote: int | None = None

    @property
    def name(self) -> tuple[Role, str]:
        """What tells it from other pools."""
        return self.role, self.pool

    @property
    def forked_from(self) -> int:
        """The generation of the zygote that its workers are forked from."""
        return self.generation if self.zygote is None else self.zygote


@dataclass(frozen=True, slots=True)
class Desired:
    """The fleet as it should be. `awake_since`: when the master last found that it had been stopped, or the machine had
    slept: silence from before is held against nobody. `at_once`: everything is killed now.
    `idle_leave_by`: when, of the pools that are to leave, those are killed that have nothing in hand."""

    targets: tuple[Target, ...]
    boot_seconds: float
    beat_seconds: float
    awake_since: float = 0.0
    backoffs: Mapping[PoolKey, StartBackoff] = field(default_factory=dict)
    at_once: bool = False
    idle_leave_by: float = math.inf


# What the master does about its children


@dataclass(frozen=True, slots=True)
class Start:
    """Begin a child in a free slot."""

    role: Role
    pool: str
    generation: int
    slot: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Ask a child to leave when it has finished."""

    slot: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Tell a worker that its task is over its soft limit."""

    slot: int


@dataclass(frozen=True, slots=True)
class Dump:
    """Ask a child for its stack, a moment before it is killed."""

    slot: int


@dataclass(frozen=True, slots=True)
class KillChild:
    """SIGKILL for a child and its process group."""

    slot: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Abandon:
    """Give up a child that has no process yet."""

    slot: int
    reason: Reason


Action = Start | Drain | Interrupt | Dump | KillChild | Abandon
