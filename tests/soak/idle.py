"""Measurements of an idle fleet: the descriptors and the memory of its processes, zombies, and orphans."""

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import psutil

from soak.node import Node

ROLES: Final = ("master", "zygote", "worker", "poller", "exporter")
_HANG_UP_SECONDS: Final = 0.2
_MEGABYTE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Holding:
    """The number of file descriptors and the memory in megabytes that one process holds."""

    role: str
    descriptors: int
    memory_mb: float


@dataclass(frozen=True, slots=True)
class FleetHoldings:
    """The holdings of all processes of some nodes, by pid. `orphans` describes the processes that run in the folder of
    a node, but are not descendants of the node's master.
    """

    holdings: Mapping[int, Holding]
    zombies: int
    orphans: tuple[str, ...]

    def most(self, role: str) -> Holding:
        """Return the highest number of descriptors and the largest memory among the processes of a role."""
        of_role = [holding for holding in self.holdings.values() if holding.role == role]
        return Holding(
            role,
            max((holding.descriptors for holding in of_role), default=0),
            max((holding.memory_mb for holding in of_role), default=0.0),
        )

    def grown_since(self, earlier: "FleetHoldings") -> Holding:
        """Return the largest growth in descriptors and in memory since the earlier reading. Only processes that are in
        both readings count.
        """
        both = [(holding, earlier.holdings[pid]) for pid, holding in self.holdings.items() if pid in earlier.holdings]
        descriptors = max((now.descriptors - then.descriptors for now, then in both), default=0)
        memory_mb = max((now.memory_mb - then.memory_mb for now, then in both), default=0.0)
        return Holding("", max(0, descriptors), round(max(0.0, memory_mb), 3))


def holdings_of(nodes: Iterable[Node]) -> FleetHoldings:
    """Read the current holdings of the processes of these nodes."""
    nodes = list(nodes)
    roles = dict(role for node in nodes for role in _roles(node))
    time.sleep(_HANG_UP_SECONDS)  # the request's connection uses a descriptor of the master until the master closes it
    holdings: dict[int, Holding] = {}
    orphans: list[str] = []
    for process in (process for node in nodes for process in node.processes()):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.pid in roles:
                holdings[process.pid] = _holding(process, roles[process.pid])
            else:
                orphans.append(f"{process.pid} {' '.join(process.cmdline())}")
    return FleetHoldings(holdings, sum(_zombies_of(node.pid) for node in nodes), tuple(orphans))


def _roles(node: Node) -> Iterator[tuple[int, str]]:
    yield node.pid, "master"
    for child in node.children():
        yield child["pid"], child["role"]


def _holding(process: psutil.Process, role: str) -> Holding:
    return Holding(role, process.num_fds(), process.memory_info().rss / _MEGABYTE)


def _zombies_of(pid: int) -> int:
    with contextlib.suppress(psutil.NoSuchProcess):
        below = psutil.Process(pid).children(recursive=True)
        return sum(_is_zombie(child) for child in below)
    return 0


def _is_zombie(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    return False
