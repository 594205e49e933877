"""The findings about the fleet: its master on this node, the counters of its tasks, and whether the nodes that share
its namespace belong together.

Heartbeats show whether nodes belong together. The heartbeat of a node contains the names of the tasks that the node's
code declares, and the tiers and options of the node's queues. On all nodes of one fleet, these are the same, except
during a deploy.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from rota.child.slots import Phase
from rota.durations import in_words
from rota.protocol.keys import fits, is_pattern
from rota.protocol.nodes import Node
from rota.protocol.tiers import QueueShare, read_tiers
from rota.protocol.wire import Packed, shown
from rota_supervisor.config.resolution import served_queues
from rota_supervisor.doctor.findings import Finding
from rota_supervisor.doctor.readings import Examination
from rota_supervisor.fleet_snapshot import one_line
from rota_supervisor.master_snapshot import FLEET_STATES

_MAY_GO: Final = (FLEET_STATES[Phase.BOOTING], FLEET_STATES[Phase.DRAINING])
_HERE: Final = "the modules here"
_MOST_NAMES: Final = 5


def master(found: Examination) -> Iterator[Finding]:
    """Report the state of the master on this node."""
    status = found.fleet.status
    if status is None:
        yield Finding("fleet-not-seen", found.fleet.why_no_status)
        return
    if not status["ready"]["ok"]:
        yield Finding("fleet-not-ready", one_line(status["ready"]))
    reload = status.get("last_reload")
    if reload and reload["result"] == "failure":
        yield Finding("reload-refused", "; ".join(map(str, reload["faults"])))


def counts(found: Examination) -> Iterator[Finding]:
    """Report if the numbers of accepted, live and ended tasks do not add up."""
    missing = found.fleet.missing_tasks
    if missing:
        what = (
            "accepted tasks are neither live nor ended" if missing > 0 else "more tasks have ended than were accepted"
        )
        yield Finding("tasks-missing", f"{what}: {abs(missing)}")


def lost_nodes(found: Examination) -> Iterator[Finding]:
    """Report nodes that have sent no heartbeat for longer than a lease, and have not announced that they are
    stopping."""
    for node in found.fleet.nodes:
        if not node.is_alive and node.report.state not in _MAY_GO:
            yield Finding("node-lost", f"{node.name} has been silent for {in_words(node.silent_seconds)}")


# Which nodes belong to the same fleet


def _serving(nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes that are serving tasks. A killed node counts as alive until its lease expires. Therefore the
    last heartbeat of a node must be more recent than half of its lease."""
    return [
        node
        for node in nodes
        if node.is_alive and node.report.state not in _MAY_GO and node.silent_seconds <= node.lease_seconds / 2
    ]


class _Side(NamedTuple):
    """The tasks and the queues of one node, or of several nodes that run the same code. The code in the current folder,
    in which `rota doctor` runs, is treated like one more node."""

    names: tuple[str, ...]  # the names of the nodes
    code: frozenset[str]  # the names of the tasks that they declare
    queues: frozenset[str]


def sharing(found: Examination) -> Iterator[Finding]:
    """Report fleets that share the namespace but have no task in common. The finding is more severe if the fleets also
    share a queue."""
    nodes = [node for node in _serving(found.fleet.nodes) if node.tasks]
    sides = [_Side((node.name,), node.tasks or frozenset(), frozenset(_shares_of(node))) for node in nodes]
    if found.fleet.code:
        sides.append(_Side((_HERE,), found.fleet.code, frozenset(served_queues(found.config))))
    for one, other in combinations(_by_code(sides), 2):
        common = _common_queues(one.queues, other.queues)
        seen = f"{_listed(one.names)} and {_listed(other.names)} have no task in common"
        if common:
            yield Finding("namespace-shared", f"{seen}, and both serve {_listed(common)}")
        else:
            yield Finding("namespace-two-fleets", seen)


def _by_code(sides: Sequence[_Side]) -> list[_Side]:
    """Merge the sides that belong to one fleet, and return the resulting sides. Two sides belong to one fleet if they
    have a task in common, or if each of them has one in common with a third side, and so on."""
    joined: list[_Side] = []
    for side in sides:
        same = [each for each in joined if each.code & side.code]
        joined = [each for each in joined if each not in same]
        parts = [*same, side]
        joined.append(
            _Side(
                tuple(name for part in parts for name in part.names),
                frozenset().union(*(part.code for part in parts)),
                frozenset().union(*(part.queues for part in parts)),
            )
        )
    return joined


def _common_queues(one: Collection[str], other: Collection[str]) -> list[str]:
    """Return the queues in `one` that the other side also serves, by name or by a pattern."""
    return sorted(queue for queue in one if any(_overlap(queue, each) for each in other))


def _overlap(one: str, other: str) -> bool:
    return one == other or any(is_pattern(each) and fits(each, name) for each, name in ((one, other), (other, one)))


def code(found: Examination) -> Iterator[Finding]:
    """Report nodes of one fleet whose code declares different tasks."""
    nodes = [node for node in _serving(found.fleet.nodes) if node.tasks]
    for one, other in combinations(nodes, 2):
        mine = one.tasks or frozenset()
        others = other.tasks or frozenset()
        if mine & others and mine != others:
            lacks = [
                f"{node.name} has no {_listed(sorted(missing))}"
                for node, missing in ((other, mine - others), (one, others - mine))
                if missing
            ]
            yield Finding("nodes-code-differs", "; ".join(lacks))
            return  # One pair is enough, because the remedy is the same for all pairs.


def versions(found: Examination) -> Iterator[Finding]:
    """Report nodes that run different versions of Rota."""
    by_version: dict[str, list[str]] = defaultdict(list)
    for node in _serving(found.fleet.nodes):
        if node.report.version:
            by_version[node.report.version].append(node.name)
    if len(by_version) > 1:
        parts = (f"{version} on {_listed(names)}" for version, names in sorted(by_version.items()))
        yield Finding("nodes-versions-differ", "; ".join(parts))


def hosts(found: Examination) -> Iterator[Finding]:
    """Report live masters that run on the same host. The name of a node is the name of its host with a random
    suffix."""
    by_host: dict[str, list[str]] = defaultdict(list)
    for node in _serving(found.fleet.nodes):
        by_host[node.name.rpartition(".")[0]].append(node.name)
    for host, names in by_host.items():
        if host and len(names) > 1:
            yield Finding("nodes-one-host", f"{_listed(sorted(names))} are on {host}")


def settings(found: Examination) -> Iterator[Finding]:
    """Report nodes that differ in the options or the order of a queue, or in the length of the lease."""
    for one, other in combinations(_serving(found.fleet.nodes), 2):
        if differences := [*_differing_options(one, other), *_differing_order(one, other)]:
            yield Finding("nodes-settings-differ", f"{one.name} and {other.name}: {_listed(differences)}")
            return  # One pair is enough, because the remedy is the same for all pairs.


def _differing_options(one: Node, other: Node) -> Iterator[str]:
    mine = _shares_of(one)
    others = _shares_of(other)
    for queue in sorted(mine.keys() & others.keys()):
        if mine[queue] != others[queue]:
            yield f"the options of {queue}"
    if one.lease_seconds and other.lease_seconds and one.lease_seconds != other.lease_seconds:
        yield f"lease.seconds is {one.lease_seconds:g} and {other.lease_seconds:g}"


def _differing_order(one: Node, other: Node) -> Iterator[str]:
    """Yield the pairs of queues that two nodes serve in a different order. A pool need not serve all queues. Therefore
    a pair is compared only if each node has a pool that serves both queues."""
    mine = _order_of(one)
    others = _order_of(other)
    for pair in sorted(mine.keys() & others.keys()):
        if mine[pair] != others[pair]:
            yield f"the order of {pair[0]} and {pair[1]}"


def _order_of(node: Node) -> Mapping[tuple[str, str], int]:
    """Return the order in which a node serves each pair of queues that a pool has: -1 if the first queue is in a higher
    tier, 0 if both are in the same tier, and 1 if the first queue is in a lower tier."""
    found: dict[tuple[str, str], int] = {}
    for pool in node.pools.values():
        tiers = {queue: tier for tier, queues in enumerate(_tiers_of(pool)) for queue in queues}
        for one, other in combinations(sorted(tiers), 2):
            found[one, other] = (tiers[one] > tiers[other]) - (tiers[one] < tiers[other])
    return found


def _shares_of(node: Node) -> Mapping[str, QueueShare]:
    """Return the options of each queue of a node."""
    return {queue: share for pool in node.pools.values() for tier in _tiers_of(pool) for queue, share in tier.items()}


def _tiers_of(pool: Packed) -> list[Mapping[str, QueueShare]]:
    """Return the queues of each tier of a pool, the highest tier first. Return an empty list if another program wrote
    the heartbeat."""
    try:
        return [{shown(share.name): share for share in tier} for tier in read_tiers(pool)]
    except (ValueError, LookupError):
        return []


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


RULES: Final = (master, counts, lost_nodes, sharing, code, versions, hosts, settings)
