"""Each node's share of the workers of a pool, and each pool's share of the budget of a node."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from rota_supervisor.master.core.scaling_inputs import NodeLoad

FURTHER: Final = 1.25  # a pool gets a worker from another pool if its own lag ratio is higher by this factor
_HALVINGS: Final = 40


class BudgetClaim(NamedTuple):
    """The needs of a pool with a range of workers, from which its part of a node's budget is computed."""

    least: int
    most: int
    workers: int  # the number of workers that the pool should have now
    needed: int  # how many workers the pool needs on this node, from `Decision.needs`
    lag_ratio: float  # the lag ratio of the decision in force


def shares(wanted: int, nodes: tuple[NodeLoad, ...]) -> dict[str, int]:
    """Return how many of a pool's `wanted` workers each node runs, in proportion to the number that the node may run.

    A node whose number was set by an operator runs that number. Each other node runs at least its `least` and at most
    its `granted` workers. If that is too few for `wanted`, because the nodes' budgets have just been reduced, a node
    may run up to its `most` for now. The result does not depend on the order of the nodes.
    """
    found = {node.node: node.operator for node in nodes if node.operator is not None}
    automatic = sorted((node for node in nodes if node.operator is None), key=lambda node: node.node)
    left = wanted - sum(found.values())
    if left > sum(node.granted for node in automatic):
        automatic = [node._replace(granted=node.most) for node in automatic]
    lower, upper = 0.0, 1.0  # bounds for the share of its granted workers that each node runs
    for _ in range(_HALVINGS):
        middle = (lower + upper) / 2
        lower, upper = (middle, upper) if sum(_parts(middle, automatic)) <= left else (lower, middle)
    found |= {node.node: part for node, part in zip(automatic, _parts(lower, automatic), strict=True)}
    growing = [node for node in automatic if found[node.node] < node.granted]
    growing.sort(key=lambda node: (found[node.node] + 1) / node.granted)
    for node in growing[: max(0, wanted - sum(found.values()))]:
        found[node.node] += 1
    return found


def _parts(share: float, nodes: Sequence[NodeLoad]) -> list[int]:
    return [max(node.least, math.floor(share * node.granted)) for node in nodes]


def budget_grants(budget: int, claims: Mapping[str, BudgetClaim]) -> dict[str, int]:
    """Return how many workers the budget of a node permits each of its pools (`NodeLoad.granted`).

    Each pool gets its `least`. A pool keeps the workers that it has and needs. Free workers, and workers that a pool
    has but does not need, go to the pools that need more, in descending order of `lag_ratio`. If that is not enough,
    the pool that is furthest from its objective gets one worker per round from the pool that is nearest to its
    objective. A pool grows only after other pools have given up workers, so the workers of the node never exceed the
    budget.
    """
    by_lag = sorted(claims, key=lambda pool: (-claims[pool].lag_ratio, pool))
    ideal = _moved(_divided(budget, claims, by_lag), claims, by_lag)
    free = budget - sum(max(claim.workers, claim.least) for claim in claims.values())
    granted = {}
    for pool in by_lag:
        present = max(claims[pool].workers, claims[pool].least)
        more = max(0, min(free, ideal[pool] - present))
        free -= more
        granted[pool] = min(present + more, ideal[pool])
    return granted


def _divided(budget: int, claims: Mapping[str, BudgetClaim], by_lag: Sequence[str]) -> dict[str, int]:
    parts = {pool: claim.least for pool, claim in claims.items()}
    left = budget - sum(parts.values())
    for wish in _WISHES:
        for pool in by_lag:
            more = max(0, min(left, min(wish(claims[pool]), claims[pool].most) - parts[pool]))
            parts[pool] += more
            left -= more
    return parts


_WISHES: Final[tuple[Callable[[BudgetClaim], int], ...]] = (
    lambda claim: min(claim.needed, claim.workers),
    lambda claim: claim.needed,
    lambda claim: claim.workers,
    lambda claim: claim.most,
)


def _moved(parts: dict[str, int], claims: Mapping[str, BudgetClaim], by_lag: Sequence[str]) -> dict[str, int]:
    """Return `parts`, which are the numbers of workers that a node's budget gives to its pools, after one worker has
    moved from the pool nearest to its lag objective to the pool furthest from it. Nothing moves if the latter has
    enough workers or its lag ratio is not clearly higher."""
    furthest = next((pool for pool in by_lag if parts[pool] < min(claims[pool].needed, claims[pool].most)), None)
    nearest = next((pool for pool in reversed(by_lag) if parts[pool] > claims[pool].least), None)
    if furthest is None or nearest is None:
        return parts
    if claims[furthest].lag_ratio <= FURTHER * claims[nearest].lag_ratio:
        return parts
    return parts | {furthest: parts[furthest] + 1, nearest: parts[nearest] - 1}
