"""From the rollout and the stage of stopping to what `plan` is to bring about. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from rota_supervisor.config.resolve import pool_sizes
from rota_supervisor.layout import Role
from rota_supervisor.master.children.child import PoolKey
from rota_supervisor.master.planning.backoff import Backoff
from rota_supervisor.master.planning.desired import Desired, Target
from rota_supervisor.master.planning.scaling import Scaling
from rota_supervisor.master.reload.rollout import Rollout

POLLERS: Final = "pollers"
EXPORTER: Final = "exporter"
LEAVE_SECONDS: Final = 5.0  # what zygote, pollers and exporter get to leave, and what is left to retire


class Stage(Enum):
    """RUNNING, then WORKERS leave, then the REST: pollers and exporter last, so that due tasks and numbers go
    on as long as somebody works. AT_ONCE kills all."""

    RUNNING = auto()
    WORKERS = auto()
    REST = auto()
    AT_ONCE = auto()


@dataclass(frozen=True, slots=True)
class Stop:
    """The stage of stopping and the instant (CLOCK_BOOTTIME seconds) at which who is still there is killed."""

    stage: Stage = Stage.RUNNING
    leave_by: float = math.inf


@dataclass(frozen=True, slots=True)
class Versions:
    """The generations of the pools that have nothing to do with user code."""

    pollers: int = 1
    exporter: int = 1


def desired_of(
    rollout: Rollout, versions: Versions, stop: Stop, scaling: Scaling, backoffs: Mapping[PoolKey, Backoff]
) -> Desired:
    """What the fleet is to be now. `scaling`: the numbers that operators gave to pools."""
    limits = rollout.in_force.config.limits
    return Desired(
        targets=(*_zygotes(rollout, stop), *_workers(rollout, stop, scaling), *_others(rollout, versions, stop)),
        boot_seconds=rollout.latest.config.limits.boot_seconds,  # what starts anew is mostly of the latest
        beat_seconds=limits.beat_seconds,
        backoffs=backoffs,
        at_once=stop.stage is Stage.AT_ONCE,
    )


def zygote_pool(generation: int) -> str:
    """The name of the pool that is the one zygote of a generation."""
    return f"generation-{generation}"


def _zygotes(rollout: Rollout, stop: Stop) -> list[Target]:
    # They stay until the workers are gone: they are the undertakers.
    count = 1 if stop.stage in (Stage.RUNNING, Stage.WORKERS) else 0
    leave_by = math.inf if count else stop.leave_by
    codes = dict.fromkeys(generation.code for generation in rollout.generations)
    return [_zygote(code, count, leave_by) for code in codes]


def _zygote(number: int, count: int, leave_by: float = math.inf) -> Target:
    return Target(Role.ZYGOTE, zygote_pool(number), count, number, surge=0, leave_by=leave_by)


def _workers(rollout: Rollout, stop: Stop, scaling: Scaling) -> list[Target]:
    running = stop.stage is Stage.RUNNING
    generation = rollout.in_force
    leave_by = math.inf if running else stop.leave_by
    return [
        Target(
            Role.WORKER,
            pool,
            size if running else 0,
            generation.of_pool(pool),
            leave_by=leave_by,
            zygote=generation.code,
        )
        for pool, size in worker_counts(rollout, scaling).items()
    ]


def worker_counts(rollout: Rollout, scaling: Scaling) -> dict[str, int]:
    """How many workers each pool is to have while the fleet runs."""
    return scaling.counts(pool_sizes(rollout.in_force.config))


def _others(rollout: Rollout, versions: Versions, stop: Stop) -> list[Target]:
    config = rollout.in_force.config
    here = stop.stage in (Stage.RUNNING, Stage.WORKERS)
    leave_by = math.inf if here else stop.leave_by
    pollers = config.pollers if here else 0
    exporters = 1 if here and config.http.listen else 0
    return [
        Target(Role.POLLER, POLLERS, pollers, versions.pollers, leave_by=leave_by),
        Target(Role.EXPORTER, EXPORTER, exporters, versions.exporter, surge=0, leave_by=leave_by),
    ]
