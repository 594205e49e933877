"""That no pool falls below its floor by what the master does: only deaths and a greater count may take it there."""

from typing import TYPE_CHECKING, Final

from rota_supervisor.layout import Role
from rota_supervisor.master.children.child import LIVE, Child, PoolKey, Reason, State
from rota_supervisor.master.planning.deadlines import DUMP_SECONDS
from rota_supervisor.master.planning.plan import RECYCLED_SHARE
from rota_supervisor.master.planning.targets import Stage, worker_counts
from simulation.violation import require

if TYPE_CHECKING:
    from simulation.node import Node

RECYCLED: Final = frozenset({Reason.MAX_TASKS, Reason.MAX_RSS})


class Capacity:
    """Looks at the pools of one node after each step of its master."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._counts: dict[str, int] = {}
        self._was_ready: list[Child] = []
        self._excused: set[str] = set()

    def drained(self, child: Child) -> None:
        """A READY worker was just told to leave."""
        counts = self._wanted()
        if child.pool not in counts:
            return
        count = counts[child.pool]
        ready, rolling = len(self._ready(child.pool)), self._is_rolling(child.pool)
        number = self._node.records.reloading.rollout.in_force.of_pool(child.pool)
        if child.why in RECYCLED:
            require(child.generation == number, f"a stale worker in slot {child.slot} is replaced as it wished")
            floor = max(1, count - 1) if rolling else _recycling_floor(count)
        else:
            has_successor = any(each.generation == number for each in self._ready(child.pool))
            floor = max(min(count, 1), count - 1) if has_successor else count
        require(ready >= floor, f"{ready} of {count} workers of {child.pool} READY after {child.why}")

    def check(self) -> None:
        """After a step."""
        counts = self._wanted()
        grown = {pool for pool, count in counts.items() if count > self._counts.get(pool, 0)}
        died = {child.pool for child in self._was_ready if child.state in (State.KILLED, State.EXITED)}
        self._excused |= grown | died
        self._counts = counts
        self._was_ready = self._node.fleet.of(Role.WORKER, State.READY)
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
        """Whoever leaves is replaced in the same step, where nothing forbids it."""
        records, fleet = self._node.records, self._node.fleet
        generation = records.reloading.rollout.in_force
        # One that writes down its stack is about to be killed: nobody is forked from it.
        dumped_after = self._node.boottime() - DUMP_SECONDS
        zygotes = {each.generation for each in fleet.of(Role.ZYGOTE, State.READY) if each.dumped_at < dumped_after}
        key = PoolKey(Role.WORKER, pool, generation.of_pool(pool))
        if generation.code not in zygotes or records.backoff_of(key).restrains:
            return
        live = sum(child.pool == pool and child.state in LIVE for child in fleet.of(Role.WORKER))
        require(live >= count, f"{live} of {count} workers of {pool} are there or on their way")

    def _wanted(self) -> dict[str, int]:
        records = self._node.records
        if records.stop.stage is not Stage.RUNNING:
            return {}
        return worker_counts(records.reloading.rollout, records.reloading.scaling)

    def _ready(self, pool: str) -> list[Child]:
        return [child for child in self._node.fleet.of(Role.WORKER, State.READY) if child.pool == pool]

    def _is_rolling(self, pool: str) -> bool:
        number = self._node.records.reloading.rollout.in_force.of_pool(pool)
        workers = [child for child in self._node.fleet.of(Role.WORKER) if child.pool == pool]
        return any(child.state in LIVE and child.generation != number for child in workers)


def _recycling_floor(count: int) -> int:
    return count - max(1, count // RECYCLED_SHARE)
