"""From what was asked for and the stage of stopping to what `plan` is to bring about."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rota_supervisor.config.resolve import pool_sizes
from rota_supervisor.layout import Role
from rota_supervisor.master.core.backoff import StartBackoff
from rota_supervisor.master.core.children import PoolKey
from rota_supervisor.master.core.desired import Desired, Target
from rota_supervisor.master.core.rollout import Rollout
from rota_supervisor.master.core.scaling import Scaling
from rota_supervisor.master.core.stopping import Stage, Stop

POLLERS: Final = "pollers"
EXPORTER: Final = "exporter"


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
    limits = rollout.in_force.config.limits
    return Desired(
        targets=(*_zygotes(rollout, stop), *_workers(wanted, stop), *_others(wanted, stop)),
        boot_seconds=rollout.latest.config.limits.boot_seconds,  # what starts anew is mostly of the latest
        beat_seconds=limits.beat_seconds,
        awake_since=awake_since,
        backoffs=backoffs,
        at_once=stop.stage is Stage.AT_ONCE,
        idle_leave_by=stop.idle_leave_by,
    )


def zygote_pool(generation: int) -> str:
    """The name of the pool that is the one zygote of a generation."""
    return f"generation-{generation}"


def _zygotes(rollout: Rollout, stop: Stop) -> list[Target]:
    # They stay until the workers are gone: a zygote kills what its workers leave behind when the master dies.
    count = 1 if stop.stage in (Stage.RUNNING, Stage.WORKERS) else 0
    leave_by = math.inf if count else stop.leave_by
    codes = dict.fromkeys(generation.code for generation in rollout.generations)
    return [_zygote(code, count, leave_by) for code in codes]


def _zygote(number: int, count: int, leave_by: float = math.inf) -> Target:
    return Target(Role.ZYGOTE, zygote_pool(number), count, number, surge=0, leave_by=leave_by)


def _workers(wanted: WantedFleet, stop: Stop) -> list[Target]:
    generation = wanted.rollout.in_force
    leave_by = stop.leave_by if stop.is_asked else math.inf
    return [
        Target(
            Role.WORKER,
            pool,
            0 if stop.is_asked else count,
            generation.of_pool(pool),
            leave_by=leave_by,
            zygote=generation.code,
        )
        for pool, count in wanted.counts.items()
    ]


def _others(wanted: WantedFleet, stop: Stop) -> list[Target]:
    config, versions = wanted.rollout.in_force.config, wanted.versions
    here = stop.stage in (Stage.RUNNING, Stage.WORKERS)
    leave_by = math.inf if here else stop.leave_by
    pollers = config.pollers if here else 0
    exporters = 1 if here and config.http.listen else 0
    return [
        Target(Role.POLLER, POLLERS, pollers, versions.pollers, leave_by=leave_by),
        Target(Role.EXPORTER, EXPORTER, exporters, versions.exporter, surge=0, leave_by=leave_by),
    ]
