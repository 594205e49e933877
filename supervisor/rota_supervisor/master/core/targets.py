"""The desired state of each pool, which `plan` brings about. It depends on the generations, the numbers of workers set
by operators, the scaling rule and the stage of stopping.

A number set by an operator remains in force after reloads and restarts until the configured number of that pool
changes, because the later number takes precedence. During a reload, two configurations can come into force: the new
one, and the one that is restored if the reload fails. A number set during a reload takes precedence over both.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import cached_property
from typing import Final

from rota_supervisor.config.errors import Fault, suggestion
from rota_supervisor.config.resolution import WorkerRange, pool_sizes
from rota_supervisor.config.rules import MAX_WORKERS
from rota_supervisor.control.port import RequestRefused, ScaleOrder
from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import Child, Children, ChildState, PoolKey
from rota_supervisor.master.core.generations import Generation, Rollout
from rota_supervisor.master.core.start_backoff import StartBackoff

Sizes = Mapping[str, WorkerRange]  # the configured number of workers of each pool
# The origin that is shown, by the first word of the origin of a configured value.
_ORIGINS = {"file": "file", "environment": "environment", "command": "flag"}
POLLERS: Final = "pollers"
EXPORTER: Final = "exporter"


# Stopping: workers leave first, then all other children. All children that leave in a stage have the same deadline.
# While Redis is unreachable, the fleet does not wait for processes that hold no tasks or outcomes: they end within 2 s,
# even if they hang. Running tasks and unsettled outcomes get the whole drain time, and then REAP_SECONDS in which they
# can be given back.


class Stage(Enum):
    """The stage of stopping.

    Pollers and the exporter leave last, so that due tasks are promoted and metrics are exported as long as any worker
    runs tasks.
    """

    RUNNING = auto()
    WORKERS = auto()  # the workers leave
    REST = auto()  # the zygotes, the pollers and the exporter leave
    AT_ONCE = auto()  # all children are killed


# How much time zygotes, pollers and the exporter have to leave. If the fleet leaves at once, all owners must be reaped
# within this time.
LEAVE_SECONDS: Final = 5.0
# How long owners may be reaped after the drain. With the stage REST and a margin, a stop takes at most 5 s longer than
# the drain.
REAP_SECONDS: Final = 3.0
AWAY_SECONDS: Final = 0.8  # Redis counts as unreachable if a call has had no reply for this long
# How much time a process that holds no tasks or outcomes has to leave while Redis is unreachable
IDLE_SECONDS: Final = {Stage.WORKERS: 0.9, Stage.REST: 0.6, Stage.AT_ONCE: 0.9}


@dataclass(frozen=True, slots=True)
class Stop:
    """The stage of stopping, with its deadlines. Times are in seconds of CLOCK_BOOTTIME."""

    stage: Stage = Stage.RUNNING
    since: float = math.inf  # when the stage began
    leave_by: float = math.inf  # when the children that remain are killed
    is_without_redis: bool = False  # whether Redis was unreachable at the last tick

    @property
    def is_requested(self) -> bool:
        """Whether a stop of the fleet was requested."""
        return self.stage is not Stage.RUNNING

    @property
    def idle_leave_by(self) -> float:
        """The deadline of children that hold no tasks or outcomes while Redis is unreachable. It is infinite while
        Redis replies. `leave_by` applies too, and the earlier of the two counts."""
        return self.since + IDLE_SECONDS[self.stage] if self.is_without_redis else math.inf

    def after_request(self, now: float, drain_seconds: float, *, at_once: bool) -> "Stop":
        """Return the stage of stopping after a request to stop. A second request never delays the stop."""
        if at_once:
            return self if self.stage is Stage.AT_ONCE else Stop(Stage.AT_ONCE, now, now + LEAVE_SECONDS)
        return self if self.is_requested else Stop(Stage.WORKERS, now, now + drain_seconds)

    def advance(self, children: Children, now: float, silent_since: float) -> "Stop":
        """Return the stage of stopping at the time `now`. When there are no workers left to wait for, the stage becomes
        REST.

        `silent_since` is the time at which the first call to Redis without a reply was sent.
        """
        if not self.is_requested:
            return self
        stop = replace(self, is_without_redis=now - silent_since > AWAY_SECONDS)
        if stop.stage is not Stage.WORKERS or any(stop.waits_for(child, now) for child in children.of(Role.WORKER)):
            return stop
        return Stop(Stage.REST, now, now + LEAVE_SECONDS, stop.is_without_redis)

    def waits_for(self, worker: Child, now: float) -> bool:
        """Whether the fleet waits for a worker before it enters the stage REST. The fleet waits while the worker lives,
        and then for some time until the worker's owner has been reaped.

        If Redis takes too long to reap the owner, the owner's lease expires, and its tasks are then given back.
        """
        return _is_there(worker) or (self._needs_reap(worker) and now <= self.leave_by + REAP_SECONDS)

    def _needs_reap(self, child: Child) -> bool:
        return child.has_work or not self.is_without_redis

    def is_over(self, children: Children, now: float) -> bool:
        """Whether all children have exited and there is nothing left to wait for."""
        if self.stage in (Stage.RUNNING, Stage.WORKERS) or any(map(_is_there, children)):
            return False
        return self.stage is Stage.REST or now > self.leave_by or not any(map(self._needs_reap, children))

    def ends_by(self, children: Children) -> float:
        """Return the time by which all children will have exited if Redis stays unreachable."""
        has_work = children.holding_work > 0
        if self.stage is not Stage.WORKERS:
            return self.leave_by if has_work else self.idle_leave_by
        workers_by = self.leave_by + REAP_SECONDS if has_work else self.idle_leave_by
        return workers_by + IDLE_SECONDS[Stage.REST]

    def deadlines(self, silent_since: float) -> tuple[float, ...]:
        """Return the times at which `advance` or `is_over` may return another result although no event has arrived. The
        master has to wake at these times."""
        return self.leave_by, self.leave_by + REAP_SECONDS, silent_since + AWAY_SECONDS


def _is_there(child: Child) -> bool:
    return child.state is not ChildState.EXITED


# The number of workers of each pool


@dataclass(frozen=True, slots=True)
class OperatorCount:
    """The number of workers that an operator has set for a pool."""

    count: int
    over: frozenset[WorkerRange]  # the configured numbers of workers that `count` overrides


@dataclass(frozen=True, slots=True)
class Scaling:
    """The numbers of workers that operators and the scaling rule have set, by pool."""

    operator_counts: Mapping[str, OperatorCount] = field(default_factory=dict)
    # The scaling rule's number for each pool with a range of workers; 0 before the first decision.
    automatic: Mapping[str, int] = field(default_factory=dict)

    def counts(self, sizes: Sizes) -> dict[str, int]:
        """Return the number of workers that each pool should have if the configured numbers are `sizes`."""
        return {
            pool: self.operator_counts[pool].count
            if self.holds(pool, size)
            else size.clamped(self.automatic.get(pool, 0))
            for pool, size in sizes.items()
        }

    def holds(self, pool: str, size: WorkerRange) -> bool:
        """Whether an operator has set a number of workers for the pool that takes precedence over the configured number
        `size`."""
        return pool in self.operator_counts and size in self.operator_counts[pool].over

    def with_count(self, pool: str, count: int, generations: Iterable[Sizes]) -> "Scaling":
        """Return the scaling after an operator has set the number of workers of a pool to `count`. This number
        overrides the configured numbers of all these generations."""
        over = frozenset(sizes[pool] for sizes in generations if pool in sizes)
        return replace(self, operator_counts={**self.operator_counts, pool: OperatorCount(count, over)})

    def without_count(self, pool: str) -> "Scaling":
        """Return the scaling after an operator's number for a pool has been removed. If the pool has a range of
        workers, the scaling rule starts from that number."""
        others = {name: count for name, count in self.operator_counts.items() if name != pool}
        given = self.operator_counts.get(pool)
        return Scaling(others, self.automatic if given is None else {**self.automatic, pool: given.count})

    def with_automatic(self, counts: Mapping[str, int]) -> "Scaling":
        """Return the scaling with these numbers from the scaling rule."""
        return replace(self, automatic={**self.automatic, **counts})

    def after(self, generations: Sequence[Sizes]) -> "Scaling":
        """Return the scaling after the configuration has changed. An operator's number is dropped if the configured
        number of its pool was changed after the operator set it, because the later number takes precedence.

        `generations` has the configured numbers of each generation that may come into force. The first one is the
        generation to which a failed reload returns. A dropped number does not come back when the configuration returns
        to an earlier number.
        """
        kept = {
            pool: scaled for pool, scaled in self.operator_counts.items() if generations[0].get(pool) in scaled.over
        }
        return replace(
            self, operator_counts={pool: _narrowed(pool, scaled, generations) for pool, scaled in kept.items()}
        )

    def faults(self, sizes: Sizes) -> list[Fault]:
        """Return a fault if the workers of a configuration, together with the operators' numbers, exceed the limit of a
        node."""
        most = {pool: size.most for pool, size in sizes.items()}
        total = sum((most | {pool: self.operator_counts[pool].count for pool in self._held(sizes)}).values())
        if total <= MAX_WORKERS or total == sum(most.values()):
            return []
        scaled = ", ".join(f"{pool} {self.operator_counts[pool].count}" for pool in self._held(sizes))
        message = f"expected at most {MAX_WORKERS} workers on a node, got {total} with the numbers set by hand"
        return [Fault("pools", f"{message} ({scaled}): scale these pools down first")]

    def _held(self, sizes: Sizes) -> list[str]:
        return [pool for pool, size in sizes.items() if self.holds(pool, size)]


def _narrowed(pool: str, scaled: OperatorCount, generations: Sequence[Sizes]) -> OperatorCount:
    return OperatorCount(scaled.count, scaled.over.intersection(each[pool] for each in generations if pool in each))


def origin_of_count(pool: str, generation: Generation, scaling: Scaling) -> str:
    """Return the origin of a pool's number of workers: operator, automatic, flag, environment, file or default."""
    config = generation.config
    size = pool_sizes(config)[pool]
    if scaling.holds(pool, size):
        return "operator"
    if not size.is_fixed:
        return "automatic"
    path = f"pools.{pool}.workers" if config.pools else "workers"
    return _ORIGINS.get(generation.origins.get(path, "").partition(" ")[0], "default")


def pool_of(order: ScaleOrder, counts: Mapping[str, int]) -> str:
    """Return the pool to which an operator's order applies. Raises RequestRefused if the order does not name one of the
    pools."""
    pools = ", ".join(counts)
    if order.pool is None and len(counts) > 1:
        raise RequestRefused(f"there is more than one pool; name one of them: {pools}")
    pool = next(iter(counts)) if order.pool is None else order.pool
    if pool not in counts:
        raise RequestRefused(f'there is no pool "{pool}"{suggestion(pool, counts) or f"; the pools are {pools}"}')
    return pool


def ordered(order: ScaleOrder, counts: Mapping[str, int]) -> tuple[str, int | None]:
    """Return the pool to which an operator's order applies, and the new number of workers of the pool.

    The number is None if the order restores the configured number or the scaling rule. Raises RequestRefused.
    """
    pool = pool_of(order, counts)
    if order.number is None:
        return pool, None
    count = counts[pool] + order.number if order.is_relative else order.number
    if count < 0:
        raise RequestRefused(f'pool "{pool}" cannot have {count} workers: it has {counts[pool]}, and the minimum is 0')
    others = sum(counts.values()) - counts[pool]
    if count + others > MAX_WORKERS:
        besides = f", and the other pools have {others}" if others else ""
        raise RequestRefused(
            f'pool "{pool}" cannot have {count} workers: a node has at most {MAX_WORKERS}{besides}: '
            f"request at most {MAX_WORKERS - others}, or start a master on another node"
        )
    return pool, count


# Targets


PoolName = tuple[Role, str]


@dataclass(frozen=True, slots=True)
class Target:
    """The desired state of one pool."""

    role: Role
    pool: str
    count: int
    generation: int
    surge: int = 1  # how many children above `count` may run while stale children are replaced
    leave_by: float = math.inf  # when the children that remain are killed
    zygote: int | None = None  # the generation of the zygote that forks the workers, or None for `generation`

    @property
    def name(self) -> PoolName:
        """The role and the name of the pool, which identify it."""
        return self.role, self.pool

    @property
    def key(self) -> PoolKey:
        """The key of the pool's back-off."""
        return PoolKey(self.role, self.pool, self.generation)


@dataclass(frozen=True)
class Desired:
    """The desired state of the fleet."""

    targets: tuple[Target, ...]
    boot_seconds: float
    beat_seconds: float
    # When the master last noticed that it had been suspended, or that the machine had slept. A child's silence before
    # that time is ignored.
    awake_since: float = 0.0
    backoffs: Mapping[PoolKey, StartBackoff] = field(default_factory=dict)
    stop: Stop = field(default_factory=Stop)

    @cached_property
    def by_name(self) -> dict[PoolName, Target]:
        return {target.name: target for target in self.targets}


@dataclass(frozen=True, slots=True)
class Versions:
    """The generations of the pollers and the exporter, which run no user code. They are counted separately from those
    of the workers."""

    pollers: int = 1
    exporter: int = 1


@dataclass(slots=True)
class WantedFleet:
    """The fleet that people and the scaling rule want: the generations, and the numbers of workers of the pools."""

    rollout: Rollout
    versions: Versions = field(default_factory=Versions)
    scaling: Scaling = field(default_factory=Scaling)

    @property
    def counts(self) -> dict[str, int]:
        """The number of workers that each pool should have while the fleet runs."""
        return self.scaling.counts(pool_sizes(self.rollout.in_force.config))


def desired_of(
    wanted: WantedFleet, stop: Stop, backoffs: Mapping[PoolKey, StartBackoff], awake_since: float = 0.0
) -> Desired:
    """Return the desired state of the fleet now."""
    rollout = wanted.rollout
    return Desired(
        targets=tuple(_targets(wanted, stop)),
        boot_seconds=rollout.latest.config.limits.boot_seconds,  # Most children that start belong to this generation.
        beat_seconds=rollout.in_force.config.limits.beat_seconds,
        awake_since=awake_since,
        backoffs=backoffs,
        stop=stop,
    )


def zygote_pool(generation: int) -> str:
    """Return the name of the pool that holds the zygote of a generation."""
    return f"generation-{generation}"


def _targets(wanted: WantedFleet, stop: Stop) -> Iterator[Target]:
    generation = wanted.rollout.in_force
    versions = wanted.versions
    config = generation.config
    # The other roles stay until all workers have ended. A zygote, for example, kills what its workers leave behind if
    # the master dies.
    rest = stop.stage in (Stage.RUNNING, Stage.WORKERS)
    by = math.inf if rest else stop.leave_by
    for code in dict.fromkeys(each.code for each in wanted.rollout.generations):
        yield Target(Role.ZYGOTE, zygote_pool(code), int(rest), code, surge=0, leave_by=by)
    for pool, size in wanted.counts.items():
        count = 0 if stop.is_requested else size
        number = generation.of_pool(pool)
        yield Target(Role.WORKER, pool, count, number, leave_by=stop.leave_by, zygote=generation.code)
    yield Target(Role.POLLER, POLLERS, config.pollers if rest else 0, versions.pollers, leave_by=by)
    exporters = int(rest and bool(config.http.listen))
    yield Target(Role.EXPORTER, EXPORTER, exporters, versions.exporter, surge=0, leave_by=by)
