"""The environment of a soak: one server, the nodes, their links to the server, and the oddities that the
nemesis found.
"""

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from soak import file_faults, network_faults, node_faults, process_faults, server_faults, verb_faults
from soak.act import Act
from soak.faults import KINDS, FaultScope
from soak.node import Node
from soak.plan import Planned
from support.faulty_link import FaultyLink
from support.servers import Server


@dataclass(frozen=True, slots=True)
class Testbed:
    """The server, the nodes and the links of a soak."""

    folder: Path
    server: Server
    nodes: dict[str, Node]
    links: dict[str, FaultyLink]  # the links by target: each node without a host, and the producers
    oddities: list[str] = field(default_factory=list)  # descriptions for people; any oddity fails the run

    def act_for(self, planned: Planned, seed: int) -> Act | None:
        """Choose the steps of a planned fault, or return None if its target does not exist at the moment."""
        random = Random(f"{seed} {planned.number}")
        match KINDS[planned.fault].scope:
            case FaultScope.PROCESSES:
                return process_faults.choose(planned.fault, self.nodes[planned.target], random)
            case FaultScope.NODE | FaultScope.HOST | FaultScope.VERSION:
                return node_faults.choose(planned.fault, self.nodes[planned.target], random)
            case FaultScope.LINK:
                return network_faults.choose(planned.fault, self.links[planned.target], random)
            case FaultScope.SERVER:
                return server_faults.choose(planned.fault, self.server, planned.seconds, random)
            case FaultScope.FILES:
                return file_faults.choose(planned.fault, self.nodes[planned.target], random)
            case FaultScope.VERBS:
                return verb_faults.choose(planned.fault, self.nodes[planned.target], random)
