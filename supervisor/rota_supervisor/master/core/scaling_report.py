"""Reports about pools with a range of workers: a summary for the status, and all measurements for `rota explain`."""

import math
from typing import Any, Final

from rota_supervisor.config.resolution import WorkerRange, pool_sizes
from rota_supervisor.master.core.scaling_inputs import LoadWindow, NodeLoad, QueueBacklog
from rota_supervisor.master.core.scaling_rule import Decision
from rota_supervisor.master.core.state import MasterState, ScaledPoolState
from rota_supervisor.master_snapshot import Json

_DIGITS: Final = 3


def summary_of(state: MasterState, pool: str, size: WorkerRange) -> Json | None:
    """Return the range of workers of a pool and the decision in force, or None if the pool has a fixed number of
    workers."""
    if size.is_fixed:
        return None
    known = state.scaling_rounds.pools.get(pool)
    facts: Json = {"min": size.least, "max": size.most, "leader": known.leader if known else ""}
    decision = known.decision if known else None
    if decision is not None:
        facts |= {"wanted": decision.wanted, "limited_by": list(decision.limited_by), "reason": decision.reason}
    return facts


def report_of_scaling(state: MasterState) -> dict[str, object]:
    """Return the measurements that led to the decision in force, for each pool with a range of workers.

    Only the leader of a pool knows the measurements of all nodes.
    """
    return {
        pool: (summary_of(state, pool, size) or {})
        | {"node": state.surroundings.node, "workers": state.wanted.counts[pool]}
        | _details(state.scaling_rounds.pools.get(pool) or ScaledPoolState())
        for pool, size in pool_sizes(state.config).items()
        if not size.is_fixed
    }


def _details(known: ScaledPoolState) -> Json:
    decision = {} if known.decision is None else _numbers_of(known.decision)
    if known.inputs is None:
        return decision
    nodes = [_node_row(node) for node in known.inputs.nodes]
    return decision | {"nodes": nodes, "queues": [_queue_row(queue) for queue in known.inputs.queues]}


def _numbers_of(decision: Decision) -> Json:
    return {
        "steady": decision.steady,
        "drain": decision.drain,
        "tail": decision.tail,
        "unbounded": decision.unbounded,
        "shares": decision.shares,
        "drain_seconds": _finite(decision.drain_seconds),
        "lag_ratio": _finite(decision.lag_ratio),
    }


def _node_row(node: NodeLoad) -> Json:
    return {
        "node": node.node,
        "workers": node.workers,
        "starting": node.starting,
        "free_slots": node.free_slots,
        "running": node.running,
        "held": node.held,
        "min": node.least,
        "max": node.most,
        "granted": node.granted,
        "limited_by": node.limited_by,
        "operator": node.operator,
        "start_seconds": _finite(node.start_seconds),
        "short": _window_row(node.short),
        "long": _window_row(node.long),
    }


def _window_row(window: LoadWindow) -> Json:
    is_measured = window.seconds > 0
    return {
        "seconds": _finite(window.seconds),
        "starts_per_second": _finite(window.starts / window.seconds) if is_measured else None,
        "task_seconds": round(window.occupied_seconds / window.starts, 6) if window.starts else None,
        "variation": _finite(window.variation),
        "first_attempts": window.first_attempts,
        "first_failures": window.first_failures,
    }


def _queue_row(queue: QueueBacklog) -> Json:
    row: dict[str, Any] = queue._asdict()
    return row | {"rate_per_second": _finite(queue.rate_per_second), "oldest_seconds": _finite(queue.oldest_seconds)}


def _finite(number: float) -> float | None:
    return round(number, _DIGITS) if math.isfinite(number) else None
