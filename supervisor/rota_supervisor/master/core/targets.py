"""What the fleet is to be now, pool by pool, for `plan` to bring about: from the generations, operators' numbers and
the stage of stopping.

An operator's number holds over reloads and restarts until the configuration's own number for that pool changes: the
later one wins. While a reload is on its way two configurations may come into force, the new one and the one that is
gone back to when it fails; a number said then goes before that of both.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import cached_property
from typing import Final

from rota_supervisor.config.model import Fault, suggestion
from rota_supervisor.config.resolution import pool_sizes
from rota_supervisor.config.rules import MAX_WORKERS
from rota_supervisor.control.port import RequestRefused, ScaleOrder
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import Child, Children, ChildState, PoolKey
from rota_supervisor.master.core.generations import Generation, Rollout
from rota_supervisor.master.core.start_backoff import StartBackoff

Sizes = Mapping[str, int]  # workers by pool, as a configuration has them
_ORIGINS = {"file": "file", "environment": "environment", "command": "flag"}  # by the first word of a value's origin
POLLERS: Final = "pollers"
EXPORTER: Final = "exporter"


# Stopping: workers leave first, then everything else, with one deadline for all of a stage. While Redis is away, the
# fleet does not wait for processes that have nothing in hand: it is gone within 2 s, whatever hangs. Tasks that run and
# outcomes that are not settled yet get the whole drain, and RETIRE_SECONDS to be given back.


class Stage(Enum):
    """RUNNING, then WORKERS leave, then the REST: pollers and exporter last, so that due tasks and numbers go
    on as long as somebody works. AT_ONCE kills all."""

    RUNNING = auto()
    WORKERS = auto()
    REST = auto()
    AT_ONCE = auto()


# What zygote, pollers and exporter get to leave; all to retire, when the fleet leaves at once.
LEAVE_SECONDS: Final = 5.0
RETIRE_SECONDS: Final = 3.0  # from the end of the drain on; with the rest, and some time to spare, 5 s
AWAY_SECONDS: Final = 0.8  # so long without an answer that was asked for: Redis is away
# How long a process with nothing in hand gets to leave while Redis is away.
IDLE_SECONDS: Final = {Stage.WORKERS: 0.9, Stage.REST: 0.6, Stage.AT_ONCE: 0.9}


@dataclass(frozen=True, slots=True)
class Stop:
    """The stage of stopping, when it began, when who is still there is killed (CLOCK_BOOTTIME seconds), and whether
    Redis is away meanwhile."""

    stage: Stage = Stage.RUNNING
    began: float = math.inf
    leave_by: float = math.inf
    is_without_redis: bool = False

    @property
    def is_asked(self) -> bool:
        """Whether the fleet was asked to stop."""
        return self.stage is not Stage.RUNNING

    @property
    def idle_leave_by(self) -> float:
        """When those that have nothing in hand are killed if that is sooner, while Redis is away."""
        return self.began + IDLE_SECONDS[self.stage] if self.is_without_redis else math.inf

    def after_request(self, now: float, drain_seconds: float, *, at_once: bool) -> "Stop":
        """Return the stop after a request to stop; a second request never delays the first."""
        if at_once:
            return self if self.stage is Stage.AT_ONCE else Stop(Stage.AT_ONCE, now, now + LEAVE_SECONDS)
        return self if self.is_asked else Stop(Stage.WORKERS, now, now + drain_seconds)

    def advance(self, children: Children, now: float, silent_since: float) -> "Stop":
        """Note whether Redis is away, which owes an answer since `silent_since`; go on to the rest when no worker is
        waited for any more."""
        if not self.is_asked:
            return self
        stop = replace(self, is_without_redis=now - silent_since > AWAY_SECONDS)
        if stop.stage is not Stage.WORKERS or any(stop.waits_for(child, now) for child in children.of(Role.WORKER)):
            return stop
        return Stop(Stage.REST, now, now + LEAVE_SECONDS, stop.is_without_redis)

    def waits_for(self, worker: Child, now: float) -> bool:
        """Whether a worker is still there, or its owner is to be retired. When Redis takes too long for that, the lease
        expires by itself, and then what the worker held is given back."""
        return _is_there(worker) or (self._retires(worker) and now <= self.leave_by + RETIRE_SECONDS)

    def _retires(self, child: Child) -> bool:
        return child.in_hand or not self.is_without_redis

    def is_over(self, children: Children, now: float) -> bool:
        """Whether nothing is left to wait for."""
        if self.stage in (Stage.RUNNING, Stage.WORKERS) or any(map(_is_there, children)):
            return False
        return self.stage is Stage.REST or now > self.leave_by or not any(map(self._retires, children))

    def ends_by(self, children: Children) -> float:
        """When the fleet has left at the latest, as long as Redis is away."""
        has_work = children.in_hand > 0
        if self.stage is not Stage.WORKERS:
            return self.leave_by if has_work else self.idle_leave_by
        workers_by = self.leave_by + RETIRE_SECONDS if has_work else self.idle_leave_by
        return workers_by + IDLE_SECONDS[Stage.REST]

    def deadlines(self, silent_since: float) -> tuple[float, ...]:
        """The instants after which `advance` and `is_over` may return something else, whatever the children do."""
        return self.leave_by, self.leave_by + RETIRE_SECONDS, silent_since + AWAY_SECONDS


def _is_there(child: Child) -> bool:
    return child.state is not ChildState.EXITED


# How many workers each pool is to have


@dataclass(frozen=True, slots=True)
class OperatorCount:
    """An operator's number for a pool. `over`: the configured numbers that it goes before."""

    count: int
    over: frozenset[int]


@dataclass(frozen=True, slots=True)
class Scaling:
    """What operators said, by pool."""

    said_counts: Mapping[str, OperatorCount] = field(default_factory=dict)

    def counts(self, sizes: Sizes) -> dict[str, int]:
        """How many workers each pool is to have where the configuration says `sizes`."""
        return {pool: self.said_counts[pool].count if self.holds(pool, size) else size for pool, size in sizes.items()}

    def holds(self, pool: str, size: int) -> bool:
        """Whether an operator's number goes before the configured one."""
        return pool in self.said_counts and size in self.said_counts[pool].over

    def with_count(self, pool: str, count: int, generations: Iterable[Sizes]) -> "Scaling":
        """An operator gives a pool a number, whichever of these generations comes into force."""
        over = frozenset(sizes[pool] for sizes in generations if pool in sizes)
        return Scaling({**self.said_counts, pool: OperatorCount(count, over)})

    def after(self, generations: Sequence[Sizes]) -> "Scaling":
        """Return the numbers that still hold for these generations; the first is the one that a failed reload restores.

        A number the configuration had once does not bring an operator's number back.
        """
        kept = {pool: said for pool, said in self.said_counts.items() if generations[0].get(pool) in said.over}
        return Scaling({pool: _narrowed(pool, said, generations) for pool, said in kept.items()})

    def faults(self, sizes: Sizes) -> list[Fault]:
        """Whether a configuration with these sizes is too great together with what operators said."""
        total = sum(self.counts(sizes).values())
        if total <= MAX_WORKERS or total == sum(sizes.values()):
            return []
        scaled = ", ".join(
            f"{pool} {self.said_counts[pool].count}" for pool, size in sizes.items() if self.holds(pool, size)
        )
        message = f"expected at most {MAX_WORKERS} workers on a node, got {total} with what was scaled"
        return [Fault("pools", f"{message} ({scaled}): scale that down first")]


def _narrowed(pool: str, said: OperatorCount, generations: Sequence[Sizes]) -> OperatorCount:
    return OperatorCount(said.count, said.over.intersection(each[pool] for each in generations if pool in each))


def origin_of_count(pool: str, generation: Generation, scaling: Scaling) -> str:
    """Where a pool's number comes from: operator, flag, environment, file or default."""
    config = generation.config
    if scaling.holds(pool, pool_sizes(config)[pool]):
        return "operator"
    path = f"pools.{pool}.workers" if config.pools else "workers"
    return _ORIGINS.get(generation.origins.get(path, "").partition(" ")[0], "default")


def ordered(order: ScaleOrder, counts: Mapping[str, int]) -> tuple[str, int]:
    """The pool that an order is about, and how many workers it is to have. Raises RequestRefused."""
    pool, pools = order.pool, ", ".join(counts)
    if pool is None and len(counts) > 1:
        raise RequestRefused(f"there is more than one pool, say which one: {pools}")
    pool = next(iter(counts)) if pool is None else pool
    if pool not in counts:
        raise RequestRefused(f'there is no pool "{pool}"{suggestion(pool, counts) or f": there is {pools}"}')
    count = counts[pool] + order.number if order.is_relative else order.number
    if count < 0:
        raise RequestRefused(f'pool "{pool}" has {counts[pool]} workers and cannot have {count}: 0 is the least')
    others = sum(counts.values()) - counts[pool]
    if count + others > MAX_WORKERS:
        besides = f", and the other pools have {others}" if others else ""
        raise RequestRefused(
            f'pool "{pool}" cannot have {count} workers: a node has at most {MAX_WORKERS}{besides}: '
            f"ask for {MAX_WORKERS - others} at most, or start a master on another node"
        )
    return pool, count


# Targets


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
