"""What the fleet is to be now, pool by pool: from what was asked for and the stage of stopping to what `plan` is to
bring about."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from rota_supervisor.config.resolve import pool_sizes
from rota_supervisor.layout import Role
from rota_supervisor.master.core.backoff import StartBackoff
from rota_supervisor.master.core.children import PoolKey
from rota_supervisor.master.core.rollout import Rollout
from rota_supervisor.master.core.scaling import Scaling
from rota_supervisor.master.core.stopping import Stage, Stop

POLLERS: Final = "pollers"
EXPORTER: Final = "exporter"

PoolName = tuple[Role, str]


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
    def name(self) -> PoolName:
        """What tells it from other pools."""
        return self.role, self.pool

    @property
    def key(self) -> PoolKey:
        """What its back-off is kept by."""
        return PoolKey(self.role, self.pool, self.generation)


@dataclass(frozen=True)
class Desired:
    """The fleet as it should be. `awake_since`: when the master last found that it had been stopped, or the machine had
    slept: silence from before is held against nobody."""

    targets: tuple[Target, ...]
    boot_seconds: float
    beat_seconds: float
    awake_since: float = 0.0
    backoffs: Mapping[PoolKey, StartBackoff] = field(default_factory=dict)
    stop: Stop = field(default_factory=Stop)

    @cached_property
    def by_name(self) -> dict[PoolName, Target]:
        return {target.name: target for target in self.targets}


@dataclass(frozen=True, slots=True)
class Versions:
    """The generations of the pools that have nothing to do with user code."""

    pollers: int = 1
    exporter: int = 1


@dataclass(slots=True)
class WantedFleet:
    """What was asked for: the generations, and the numbers that operators gave to pools."""

    rollout: Rollout
    versions: Versions = field(default_factory=Versions)
    scaling: Scaling = field(default_factory=Scaling)

    @property
    def counts(self) -> dict[str, int]:
        """How many workers each pool is to have while the fleet runs."""
        return self.scaling.counts(pool_sizes(self.rollout.in_force.config))


def desired_of(
    wanted: WantedFleet, stop: Stop, backoffs: Mapping[PoolKey, StartBackoff], awake_since: float = 0.0
) -> Desired:
    """What the fleet is to be now."""
    rollout = wanted.rollout
    return Desired(
        targets=tuple(_targets(wanted, stop)),
        boot_seconds=rollout.latest.config.limits.boot_seconds,  # what starts anew is mostly of the latest
        beat_seconds=rollout.in_force.config.limits.beat_seconds,
        awake_since=awake_since,
        backoffs=backoffs,
        stop=stop,
    )


def zygote_pool(generation: int) -> str:
    """The name of the pool that is the one zygote of a generation."""
    return f"generation-{generation}"


def _targets(wanted: WantedFleet, stop: Stop) -> Iterator[Target]:
    generation, versions = wanted.rollout.in_force, wanted.versions
    config = generation.config
    # The rest stays until the workers are gone: a zygote kills what its workers leave behind when the master dies.
    rest = stop.stage in (Stage.RUNNING, Stage.WORKERS)
    by = math.inf if rest else stop.leave_by
    for code in dict.fromkeys(each.code for each in wanted.rollout.generations):
        yield Target(Role.ZYGOTE, zygote_pool(code), int(rest), code, surge=0, leave_by=by)
    for pool, size in wanted.counts.items():
        count, number = 0 if stop.is_asked else size, generation.of_pool(pool)
        yield Target(Role.WORKER, pool, count, number, leave_by=stop.leave_by, zygote=generation.code)
    yield Target(Role.POLLER, POLLERS, config.pollers if rest else 0, versions.pollers, leave_by=by)
    exporters = int(rest and bool(config.http.listen))
    yield Target(Role.EXPORTER, EXPORTER, exporters, versions.exporter, surge=0, leave_by=by)
