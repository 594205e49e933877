"""Faults of the cluster: the hash slot of the namespace moves, or a replica takes over from its primary. Neither loses
writes.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from soak.act import Act
from soak.faults import Fault
from soak.node import NAMESPACE
from support.clusters import Cluster


def choose(fault: Fault, cluster: Cluster, _random: Random) -> Act:
    """Return the steps of a fault that affects the cluster."""
    return _ACTS[fault](cluster)


def _move_slot(cluster: Cluster) -> Act:
    move = cluster.slot_move(NAMESPACE)
    return Act(move.begin, again=move.move_some, undo=move.finish, detail=f"to port {move.target.port}")


def _fail_over(cluster: Cluster) -> Act:
    return Act(lambda: cluster.fail_over(cluster.owner_of(NAMESPACE)))


_ACTS: Final[dict[Fault, Callable[[Cluster], Act]]] = {Fault.MOVE_SLOT: _move_slot, Fault.FAIL_OVER: _fail_over}
