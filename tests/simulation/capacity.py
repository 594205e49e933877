"""The check that the master never reduces the READY workers of a pool below a floor. The number of READY workers may be
below the floor only after deaths, or after the configured number has been raised.
"""

from typing import TYPE_CHECKING

from rota_supervisor.layout import Role
from rota_supervisor.master.core.children import ENDING, LIVE, Child, ChildState, PoolKey
from rota_supervisor.master.core.plan import DUMP_SECONDS, RECYCLED_SHARE
from rota_supervisor.master.core.reasons import RECYCLED
from simulation.violation import require

if TYPE_CHECKING:
    from simulation.node import Node


class Capacity:
    """A check of one node's pools after each step of its master."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._counts: dict[str, int] = {}
        self._was_ready: list[Child] = []
        self._excused: set[str] = set()

    def drained(self, child: Child, still_there: list[Child]) -> None:
        """Check that enough READY workers remain when this worker is ordered to drain. The workers in `still_there`
        still count, because they are ordered to drain later in the same step.
        """
        counts = self._wanted()
        if child.pool not in counts:
            return
        count = counts[child.pool]
        number = self._node.state.rollout.in_force.of_pool(child.pool)
        workers = [*self._ready(child.pool), *still_there]
        ready = len(workers)
        rolling = self._is_rolling(child.pool) or any(each.generation != number for each in still_there)
        if child.why in RECYCLED:
            require(child.generation == number, f"a stale worker in slot {child.slot} is replaced at its own request")
            floor = max(1, count - 1) if rolling else _recycling_floor(count)
        else:
            has_successor = any(each.generation == number for each in workers)
            floor = max(min(count, 1), count - 1) if has_successor else count
        require(ready >= floor, f"{ready} of {count} workers of {child.pool} READY after {child.why}")

    def check(self) -> None:
        """Check the pools after a step."""
        counts = self._wanted()
        grown = {pool for pool, count in counts.items() if count > self._counts.get(pool, 0)}
        died = {child.pool for child in self._was_ready if child.state in ENDING}
        self._excused |= grown | died
        self._counts = counts
        self._was_ready = self._node.state.children.of(Role.WORKER, ChildState.READY)
        for pool, count in counts.items():
            ready = len(self._ready(pool))
            if ready >= count:
                self._excused.discard(pool)
            floor = _recycling_floor(count)
            require(
                ready >= floor or pool in self._excused, f"{ready} of {count} workers of {pool} READY, and none died"
            )
            self._check_replaced(pool, count)

    def _check_replaced(self, pool: str, count: int) -> None:
        """Require that each draining worker is replaced in the same step, unless there is no zygote or the pool is in
        back-off.
        """
        state = self._node.state
        children = self._node.state.children
        generation = state.rollout.in_force
        # A zygote that was asked for its stack is about to be killed, so it forks no worker.
        dumped_after = self._node.boottime() - DUMP_SECONDS
        zygotes = {
            each.generation for each in children.of(Role.ZYGOTE, ChildState.READY) if each.dumped_at < dumped_after
        }
        key = PoolKey(Role.WORKER, pool, generation.of_pool(pool))
        if generation.code not in zygotes or state.backoff_of(key).restrains:
            return
        live = sum(child.pool == pool and child.state in LIVE for child in children.of(Role.WORKER))
        require(live >= count, f"{live} of {count} workers of {pool} are there or on their way")

    def _wanted(self) -> dict[str, int]:
        state = self._node.state
        return {} if state.stop.is_requested else state.wanted.counts

    def _ready(self, pool: str) -> list[Child]:
        return [child for child in self._node.state.children.of(Role.WORKER, ChildState.READY) if child.pool == pool]

    def _is_rolling(self, pool: str) -> bool:
        number = self._node.state.rollout.in_force.of_pool(pool)
        workers = [child for child in self._node.state.children.of(Role.WORKER) if child.pool == pool]
        return any(child.state in LIVE and child.generation != number for child in workers)


def _recycling_floor(count: int) -> int:
    return count - max(1, count // RECYCLED_SHARE)
