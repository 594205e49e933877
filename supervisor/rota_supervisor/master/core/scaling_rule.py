"""The number of workers that a pool needs to meet the lag objectives of its queues, as a pure function of measurements.

The pool needs the largest of three numbers: *steady* keeps workers busy for at most 90 % of the time, *drain* completes
the backlog before its oldest task is late, and *tail* keeps the wait of nearly all tasks below the objective. A pool
grows at once if its workers would not keep the lag below three quarters of the objective or would not keep up with the
arrivals. It shrinks by one worker at a time if all measurements of the last five minutes permit it.
"""

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

from rota_supervisor.master.core.scaling_demand import Demand, demand_of
from rota_supervisor.master.core.scaling_history import (
    PoolScaling,
    is_retrying,
    judged,
    may_shrink,
    may_step,
    noted,
    stepped,
    turned_lately,
)
from rota_supervisor.master.core.scaling_inputs import LoadWindow, NodeLoad, PoolInputs, QueueBacklog
from rota_supervisor.master.core.scaling_reason import GUARDS, reason_of
from rota_supervisor.master.core.scaling_shares import BudgetClaim, budget_grants, shares

__all__ = [
    "BudgetClaim",
    "Decision",
    "LoadWindow",
    "NodeLoad",
    "PoolInputs",
    "PoolScaling",
    "QueueBacklog",
    "budget_grants",
    "decide",
    "shares",
]

GROW_SHARE: Final = 0.75  # a pool grows if its workers cannot keep the lag below this share of an objective
RETRY_SHARE: Final = 0.5  # the largest growth after a freeze, relative to the current number of workers
FEWEST_ATTEMPTS: Final = 10  # if the short window has fewer first attempts, the long one is used


class Decision(NamedTuple):
    """The number of workers that a pool should have on all nodes together, and the reason for it."""

    wanted: int
    unbounded: int  # `wanted` without the nodes' bounds, for node autoscalers (`rota_fleet_workers_wanted`)
    shares: dict[str, int]  # the number of workers of each node
    needs: dict[str, int]  # how many workers each node needs now regardless of budgets, for `budget_grants`
    steady: int  # the number of workers that the arrivals need
    drain: int  # the number of workers that also complete the backlog in time
    tail: int  # the number of workers with which the wait at the target quantile is below the objective
    limited_by: tuple[str, ...]  # the causes that prevented a higher number, the most important first
    reason: str  # one line for people, with the measurements
    drain_seconds: float  # the predicted time until the wanted workers have completed the backlog, or infinity
    lag_ratio: float  # the predicted lag divided by the objective, which determines the pool's part of a budget


def decide(history: PoolScaling, inputs: PoolInputs, now: float) -> tuple[PoolScaling, Decision]:
    """Return the history for the next decision, and the number of workers that the pool should have from now on.

    `now` is in seconds of a steady clock, which must be the same for all decisions about the pool. Call this function
    once per round, with the loads of all live nodes that have the pool. A new leader starts with `PoolScaling()`. Its
    first decision starts from the existing workers, within the range, and a shrink has to wait for the usual delay.
    """
    bounds = _bounds_of(inputs.nodes)
    current = history.wanted
    if current is None:
        current = sum(node.workers + node.starting for node in inputs.nodes)
    history = history._replace(wanted=bounds.clamped(current))
    backlogs, demand = demand_of(history.backlogs, inputs, _boot_left(history, inputs.nodes, now), now)
    history = noted(history._replace(backlogs=backlogs), demand, now)
    need = _need(demand, bounds.clamped(current), inputs)
    history, wanted, causes = _next(history, _Situation(inputs, demand, bounds, need, now))
    decision = Decision(
        wanted=wanted,
        unbounded=wanted if GUARDS.intersection(causes) else max(wanted, need),
        shares=shares(wanted, inputs.nodes),
        needs=shares(need, tuple(node._replace(granted=node.most) for node in inputs.nodes)),
        steady=demand.steady,
        drain=demand.drain,
        tail=demand.tail(),
        limited_by=causes,
        reason=reason_of(demand, wanted, causes),
        drain_seconds=demand.drain_seconds(wanted),
        lag_ratio=demand.lag_ratio(wanted),
    )
    return history, decision


class _Bounds(NamedTuple):
    least: int
    granted: int
    most: int

    def clamped(self, workers: int) -> int:
        """Return `workers`, or the nearest number between `least` and `most`."""
        return max(self.least, min(workers, self.most))


class _Situation(NamedTuple):
    inputs: PoolInputs
    demand: Demand
    bounds: _Bounds
    need: int  # the number of workers that are needed now
    now: float


def _bounds_of(nodes: tuple[NodeLoad, ...]) -> _Bounds:
    """Return the bounds of the pool in the whole fleet, which are the sums of the bounds of its nodes. A node whose
    number of workers was set by an operator adds that number to each sum."""
    by_hand = sum(node.operator for node in nodes if node.operator is not None)
    automatic = [node for node in nodes if node.operator is None]
    return _Bounds(
        by_hand + sum(node.least for node in automatic),
        by_hand + sum(node.granted for node in automatic),
        by_hand + sum(node.most for node in automatic),
    )


def _boot_left(history: PoolScaling, nodes: tuple[NodeLoad, ...], now: float) -> float:
    """Return the seconds until the workers that are starting now will be ready. If none is starting, return how long a
    worker takes to start."""
    boot = max((node.start_seconds for node in nodes), default=0.0)
    if any(node.starting for node in nodes):
        return max(0.0, boot - (now - history.stepped_at))
    return boot


def _need(demand: Demand, current: int, inputs: PoolInputs) -> int:
    """Return the number of workers that are needed now. A backlog counts only if the current workers cannot start its
    tasks in time."""
    need = max(demand.steady, demand.tail())
    if demand.holding(GROW_SHARE) > current:
        need = max(need, demand.drain)
    return max(need, int(any(queue.is_open and queue.ready for queue in inputs.queues)))


def _next(history: PoolScaling, seen: _Situation) -> tuple[PoolScaling, int, tuple[str, ...]]:
    """Return the new history, the new number of workers, and the causes that prevented a higher number."""
    if not seen.demand.backlogs:
        history = history._replace(frozen_until=-math.inf, freezes=0)
    history, current = judged(history, seen.demand, seen.inputs.nodes, seen.now)
    wanted = current
    causes: tuple[str, ...] = ()
    if current > seen.bounds.granted and may_step(history, -1, seen.now):
        wanted = max(seen.bounds.least, seen.bounds.granted)  # Other pools need the workers more.
        causes = ("budget",)
    elif seen.need > current:
        wanted, causes = _grown(history, current, seen)
    elif current > seen.bounds.least and may_shrink(history, seen.now):
        wanted = current - 1
    return stepped(history, wanted, seen.demand, seen.now), wanted, causes


def _grown(history: PoolScaling, current: int, seen: _Situation) -> tuple[int, tuple[str, ...]]:
    """Return the new number of workers of a pool that needs more, and the causes that prevent a higher number."""
    granted = max(current, seen.bounds.granted)
    causes = tuple(_freezes(history, seen))
    if causes:
        return min(max(current, 1), granted), causes
    need = min(seen.need, current + max(1, math.ceil(current * RETRY_SHARE))) if history.freezes else seen.need
    if need <= granted:
        return need, ()
    return granted, tuple(_limits(seen)) or ("range",)


def _limits(seen: _Situation) -> Iterator[str]:
    nodes = seen.inputs.nodes
    if any(node.operator is not None for node in nodes):
        yield "operator"
    if seen.bounds.granted < seen.bounds.most:
        yield "budget"
    yield from sorted({node.limited_by for node in nodes if node.limited_by})


def _freezes(history: PoolScaling, seen: _Situation) -> Iterator[str]:
    if any(_is_failing(node) for node in seen.inputs.nodes):
        yield "failing"
    if any(node.is_blocked for node in seen.inputs.nodes):
        yield "blocked"
    if seen.now < history.frozen_until or is_retrying(history, seen.now):
        yield "no_gain"
    if turned_lately(history, 1, seen.now) and seen.demand.lag_ratio(history.wanted or 0) <= 1:
        yield "turn"


def _is_failing(node: NodeLoad) -> bool:
    """Whether clearly more than half of the first attempts on a node fail or crash, so that more workers would not
    help.

    "Clearly" means by more than one standard deviation of fair coin tosses. One failure of one attempt is therefore not
    enough, but two of two are.
    """
    window = node.short if node.short.first_attempts >= FEWEST_ATTEMPTS else node.long
    return 2 * window.first_failures - window.first_attempts > math.sqrt(window.first_attempts)
