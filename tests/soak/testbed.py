"""The environment of a soak: one server, the nodes and their links to the server. It also collects the oddities that
are noticed during the run.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from soak import cluster_faults, file_faults, network_faults, node_faults, process_faults, server_faults, verb_faults
from soak.act import Act
from soak.faults import KINDS, Fault, FaultScope
from soak.node import NAMESPACE, Node
from soak.plan import Planned
from support.clusters import Cluster
from support.faulty_link import FaultyLink
from support.servers import Server


@dataclass(frozen=True, slots=True)
class Testbed:
    """The server or the cluster, the nodes and the links of a soak."""

    folder: Path
    server: Server | Cluster
    nodes: dict[str, Node]
    links: dict[str, FaultyLink]  # the link of each target: of each node without its own host, and of the producers
    oddities: list[str] = field(default_factory=list)  # descriptions for people; a run with any oddity fails

    @property
    def data_url(self) -> str:
        """The URL of the server that has the data of the namespace now."""
        return self.server.owner_of(NAMESPACE).url if isinstance(self.server, Cluster) else self.server.url

    def act_for(self, planned: Planned, seed: int) -> Act | None:
        """Choose the steps of a planned fault. Return None if the target of the fault does not exist at the moment."""
        random = Random(f"{seed} {planned.number}")
        scope = KINDS[planned.fault].scope
        if scope in _OF_NODES:
            return _OF_NODES[scope](planned.fault, self.nodes[planned.target], random)
        if scope is FaultScope.LINK:
            return network_faults.choose(planned.fault, self.links[planned.target], random)
        if isinstance(self.server, Cluster):
            return cluster_faults.choose(planned.fault, self.server, random)
        return server_faults.choose(planned.fault, self.server, planned.seconds, random)


_OF_NODES: Final[dict[FaultScope, Callable[[Fault, Node, Random], Act | None]]] = {
    FaultScope.PROCESSES: process_faults.choose,
    **dict.fromkeys((FaultScope.NODE, FaultScope.HOST, FaultScope.VERSION), node_faults.choose),
    FaultScope.FILES: file_faults.choose,
    FaultScope.VERBS: verb_faults.choose,
}
