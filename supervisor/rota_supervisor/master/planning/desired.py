"""The fleet as it should be: what a plan is to bring about."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from rota_supervisor.layout import Role
from rota_supervisor.master.children.child import PoolKey
from rota_supervisor.master.planning.backoff import Backoff


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
    """The fleet as it should be. `at_once`: everything is killed now."""

    targets: tuple[Target, ...]
    boot_seconds: float
    beat_seconds: float
    backoffs: Mapping[PoolKey, Backoff] = field(default_factory=dict)
    at_once: bool = False
