"""The scaling rounds for pools with a range of workers. In each round, twice a second, the master exchanges loads and
decisions with the other nodes, decides for the pools that it leads, and applies its share of each decision.

A decision of this node takes effect on this node at once, and is published in a round that follows immediately. If
Redis does not reply, nothing changes. A fleet makes no rounds if all of its pools have a fixed number of workers.
"""

from collections.abc import Iterator

from rota.telemetry import log_events
from rota.telemetry import metrics as m
from rota.telemetry.metrics import GaugeDefinition
from rota_supervisor.config.resolution import WorkerRange, pool_sizes
from rota_supervisor.layout import Role
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.children import AT_WORK, STARTING, Child, ChildState
from rota_supervisor.master.core.master_events import PoolSeen, ScalingSeen
from rota_supervisor.master.core.process_settings import objective_of
from rota_supervisor.master.core.scaling_backlogs import ROUND_SECONDS
from rota_supervisor.master.core.scaling_reason import CAUSES
from rota_supervisor.master.core.scaling_rule import BudgetClaim, PoolScaling, budget_grants, decide
from rota_supervisor.master.core.state import MasterState, ScaledPoolState


def exchange_when_due(state: MasterState, now: float) -> list[do.Effect]:
    """Begin a scaling round if one is due. If this node no longer scales any pool, one more round is made, in which it
    withdraws its load and its lead from Redis."""
    rounds = state.scaling_rounds
    ranges = _scaled_ranges(state)
    if rounds.is_exchanging or now < rounds.due_at or not (ranges or rounds.pools):
        return []
    rounds.pools = {pool: rounds.pools.get(pool) or ScaledPoolState() for pool in ranges}
    rounds.is_exchanging = True
    rounds.due_at = now + ROUND_SECONDS
    pools = tuple(_scaled_pool(state, pool, size) for pool, size in ranges.items())
    config = state.config
    return [do.ExchangeScaling(pools, config.lease.seconds, config.scaling.max_cpu), *_gauges(state, ranges)]


def scaling_seen(state: MasterState, event: ScalingSeen, now: float) -> list[do.Effect]:
    """Decide for the pools that this node leads, and apply this node's share of each decision in force."""
    rounds = state.scaling_rounds
    rounds.is_exchanging = False
    ranges = _scaled_ranges(state)
    effects = [
        effect
        for pool, seen in event.pools.items()
        if pool in ranges and pool in rounds.pools
        for effect in _pool_seen(state, pool, ranges[pool], seen, now)
    ]
    _grant(state, event, ranges)
    return effects


def _scaled_ranges(state: MasterState) -> dict[str, WorkerRange]:
    """Return the range of workers of each pool that this node scales. The result is empty before the fleet works, while
    it is quiet, and while it stops."""
    if state.rollout.current is None or state.quiet.is_requested or state.stop.is_requested:
        return {}
    return {pool: size for pool, size in pool_sizes(state.config).items() if not size.is_fixed}


def _scaled_pool(state: MasterState, pool: str, size: WorkerRange) -> do.ScaledPool:
    settings = state.rollout.in_force.pools[pool].settings
    known = state.scaling_rounds.pools[pool]
    children = [child for child in state.children.of(Role.WORKER) if child.pool == pool]
    names = {share.name for tier in settings.tiers for share in tier.queues}
    return do.ScaledPool(
        pool=pool,
        tiers=settings.tiers,
        objectives={name: do.LagObjective(*objective_of(state.config, name)) for name in names},
        concurrency=settings.concurrency,
        least=size.least,
        most=size.most,
        granted=size.most if known.granted is None else known.granted,
        operator=_operator_count(state, pool, size),
        is_blocked=any(map(_is_blocked, children)),
        first_crashes=state.first_crashes[pool],
        workers=tuple(_worker(child) for child in children if child.state is not ChildState.EXITED),
        publish=known.decision if known.history is not None else None,
    )


def _operator_count(state: MasterState, pool: str, size: WorkerRange) -> int | None:
    scaling = state.wanted.scaling
    return scaling.operator_counts[pool].count if scaling.holds(pool, size) else None


def _is_blocked(child: Child) -> bool:
    """Whether the worker's event loop was reported as blocked, and the worker has sent no heartbeat since then."""
    return child.state in AT_WORK and child.blocked_since == child.heartbeat_at


def _worker(child: Child) -> do.ScaledWorker:
    is_serving = child.state is ChildState.READY and not child.is_quiet
    start_seconds = None if child.ready_at is None else child.ready_at - child.requested_at
    return do.ScaledWorker(child.slot, child.nonce, is_serving, child.state in STARTING, start_seconds)


def _pool_seen(state: MasterState, pool: str, size: WorkerRange, seen: PoolSeen, now: float) -> list[do.Effect]:
    known = state.scaling_rounds.pools[pool]
    known.leader = seen.leader
    known.inputs = seen.inputs
    if seen.inputs is None:
        known.history = None
        known.decision = seen.decision
    else:
        before = known.decision
        known.history, known.decision = decide(known.history or PoolScaling(), seen.inputs, now)
        if before is None or before.shares != known.decision.shares:
            state.scaling_rounds.due_at = now  # Publish the decision at once.
    return _take_share(state, pool, size)


def _take_share(state: MasterState, pool: str, size: WorkerRange) -> list[do.Effect]:
    """Set the number of workers of a pool to this node's share of the decision in force. A number set by an operator
    takes precedence."""
    decision = state.scaling_rounds.pools[pool].decision
    share = None if decision is None else decision.shares.get(state.surroundings.node)
    if decision is None or share is None:
        return []
    before = state.wanted.counts[pool]
    state.wanted.scaling = state.wanted.scaling.with_automatic({pool: size.clamped(share)})
    after = state.wanted.counts[pool]
    if before == after:
        return []
    fields = {"pool": pool, "before": before, "workers": after, "wanted": decision.wanted, "reason": decision.reason}
    return [do.info(log_events.FLEET_AUTOSCALED, **fields)]


def _grant(state: MasterState, event: ScalingSeen, ranges: dict[str, WorkerRange]) -> None:
    """Divide this node's budget, which is the most workers that all of its scaled pools may have together, among these
    pools for the next round."""
    rounds = state.scaling_rounds
    budget = state.config.scaling.budget
    claims = {
        pool: _claim(state, pool, size, event.pools[pool]) for pool, size in ranges.items() if pool in event.pools
    }
    grants = budget_grants(budget, claims) if budget else {}
    for pool, known in rounds.pools.items():
        if pool in claims or not budget:
            known.granted = grants.get(pool)


def _claim(state: MasterState, pool: str, size: WorkerRange, seen: PoolSeen) -> BudgetClaim:
    decision = state.scaling_rounds.pools[pool].decision
    workers = state.wanted.counts[pool]
    given = _operator_count(state, pool, size)
    if decision is None:
        return BudgetClaim(size.least, seen.load.most, workers, workers, 0.0)
    if given is not None:
        return BudgetClaim(given, given, given, given, decision.lag_ratio)
    needed = decision.needs.get(state.surroundings.node, size.least)
    return BudgetClaim(size.least, seen.load.most, workers, needed, decision.lag_ratio)


# Gauges


def _gauges(state: MasterState, ranges: dict[str, WorkerRange]) -> list[do.Effect]:
    """Return the effects that set each scaling gauge that has changed. The gauges of pools that no longer exist are
    removed."""
    before = state.shown.scaling_gauges
    now: dict[tuple[GaugeDefinition, tuple[str, ...]], float | None] = dict.fromkeys(before)
    for pool, size in ranges.items():
        now |= dict(_gauges_of(state, pool, size))
    state.shown.scaling_gauges = now
    return [do.SetGauge(*key, value) for key, value in now.items() if key not in before or before[key] != value]


def _gauges_of(
    state: MasterState, pool: str, size: WorkerRange
) -> Iterator[tuple[tuple[GaugeDefinition, tuple[str, ...]], float | None]]:
    known = state.scaling_rounds.pools[pool]
    ready = [child for child in state.children.of(Role.WORKER, ChildState.READY) if child.pool == pool]
    numbers = {"wanted": state.wanted.counts[pool], "actual": len(ready), "min": size.least, "max": size.most}
    for count, number in numbers.items():
        yield (m.POOL_WORKERS, (pool, count)), number
    if known.decision is None:
        return
    is_leader = known.history is not None
    yield (m.FLEET_WORKERS_WANTED, (pool,)), known.decision.unbounded if is_leader else None
    for cause in CAUSES:
        yield (m.SCALING_LIMITED, (pool, cause)), float(cause in known.decision.limited_by)
