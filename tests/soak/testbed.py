"""The environment of a soak: one server, the nodes and their links to the server. It also collects the oddities that
are noticed during the run.
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
    links: dict[str, FaultyLink]  # the link of each target: of each node without its own host, and of the producers
    oddities: list[str] = field(default_factory=list)  # descriptions for people; a run with any oddity fails

    def act_for(self, planned: Planned, seed: int) -> Act | None:
        """Choose the steps of a planned fault. Return None if the target of the fault does not exist at the moment."""
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
