"""Faults of the cluster: the hash slot of the namespace moves, or a replica takes over from its primary. Neither loses
writes.
"""

from random import Random

from soak.act import Act
from soak.faults import Fault
from soak.node import NAMESPACE
from support.clusters import Cluster


def choose(fault: Fault, cluster: Cluster, _random: Random) -> Act:
    """Return the steps of a fault that affects the cluster."""
    if fault is Fault.FAIL_OVER:
        return Act(lambda: cluster.fail_over(cluster.owner_of(NAMESPACE)))
    move = cluster.slot_move(NAMESPACE)
    return Act(move.begin, again=move.move_some, undo=move.finish, detail=f"to port {move.target.port}")
