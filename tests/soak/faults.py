"""All faults of the nemesis with their targets and durations, and the profiles that select from them. This module does
no I/O.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Fault(StrEnum):
    """A fault. If it has a duration, it is undone after that time."""

    KILL_WORKER = "kill_worker"
    KILL_SEVERAL = "kill_several"  # two workers of a node at once
    KILL_WORKERS = "kill_workers"  # all workers of a node
    KILL_CHILDREN = "kill_children"  # all processes of a node except the master
    STOP_WORKER = "stop_worker"
    STOP_POLLER = "stop_poller"
    KILL_ZYGOTE = "kill_zygote"
    KILL_POLLER = "kill_poller"
    KILL_EXPORTER = "kill_exporter"

    STOP_MASTER = "stop_master"
    STOP_NODE = "stop_node"
    KILL_MASTER = "kill_master"
    KILL_NODE = "kill_node"
    TERM_NODE = "term_node"

    CUT = "cut"
    REFUSE = "refuse"
    SILENCE = "silence"
    SILENCE_REPLIES = "silence_replies"
    HOLD = "hold"
    DELAY = "delay"
    STALL = "stall"
    LOSE_REPLIES = "lose_replies"

    FLUSH_SCRIPTS = "flush_scripts"
    KILL_CLIENTS = "kill_clients"
    PAUSE_WRITES = "pause_writes"
    SERVER_SLEEP = "server_sleep"
    KILL_SERVER = "kill_server"
    LONG_OUTAGE = "long_outage"  # the server is killed, and started again after more than two leases
    FILL_MEMORY = "fill_memory"
    DELETE_DOORBELLS = "delete_doorbells"
    DELETE_SERVED = "delete_served"
    DELETE_OWNERS = "delete_owners"

    RESIZE = "resize"
    BAD_TOML = "bad_toml"
    BAD_IMPORT = "bad_import"
    HUP_STORM = "hup_storm"

    SCALE = "scale"
    QUIET = "quiet"
    RESTART = "restart"
    REPORT = "report"

    PARTITION = "partition"  # the link of a host is down
    LOSE_HOST = "lose_host"  # the link of a host is down, and every process on the host is killed

    MOVE_SLOT = "move_slot"  # the hash slot of the namespace moves to another node of the cluster
    FAIL_OVER = "fail_over"  # a replica takes over from the primary of the namespace, in an orderly way

    UPGRADE = "upgrade"  # a node is stopped, and started with the current version
    ROLL_BACK = "roll_back"  # a node is stopped, and started with the earlier version


class FaultScope(StrEnum):
    """The part of the test environment that a fault affects. Two lasting faults never overlap if they have the same
    scope and target. Only one fault of the scope `VERSION` happens at a time, because nodes change their versions one
    after the other.
    """

    PROCESSES = "processes"  # single processes of a node
    NODE = "node"  # a whole node, that is, its master or all of its processes
    LINK = "link"  # the link of a node or of the producers to the server
    SERVER = "server"
    FILES = "files"  # the `rota.toml` of a node
    VERBS = "verbs"  # requests that an operator makes to a node
    HOST = "host"  # a node's host, which is a network namespace
    CLUSTER = "cluster"  # the cluster in which the namespace is
    VERSION = "version"  # the version of Rota that runs on a node


NODES: Final = ("a", "b")
THREE_NODES: Final = (*NODES, "c")
PRODUCERS: Final = "producers"
SERVER: Final = "server"
CLUSTER: Final = "cluster"
TARGETS: Final = {
    FaultScope.PROCESSES: NODES,
    FaultScope.NODE: NODES,
    FaultScope.LINK: (*NODES, PRODUCERS),
    FaultScope.SERVER: (SERVER,),
    FaultScope.FILES: NODES,
    FaultScope.VERBS: NODES,
    FaultScope.HOST: THREE_NODES,
    FaultScope.CLUSTER: (CLUSTER,),
    FaultScope.VERSION: THREE_NODES,
}
_OF_THREE_NODES: Final = (FaultScope.HOST, FaultScope.VERSION)


@dataclass(frozen=True, slots=True)
class Kind:
    """The scope of a kind of fault, its duration in seconds, and its relative frequency."""

    scope: FaultScope
    shortest_seconds: float = 0.0
    longest_seconds: float = 0.0
    weight: int = 6


# The lease is 5 s, and the heartbeat limit is 3 s. Some faults are shorter than both times, and some are longer than
# both.
KINDS: Final = {
    Fault.KILL_WORKER: Kind(FaultScope.PROCESSES, weight=24),
    Fault.KILL_SEVERAL: Kind(FaultScope.PROCESSES),
    Fault.KILL_WORKERS: Kind(FaultScope.PROCESSES),
    Fault.KILL_CHILDREN: Kind(FaultScope.PROCESSES),
    Fault.STOP_WORKER: Kind(FaultScope.PROCESSES, 0.2, 5.0, weight=9),
    Fault.STOP_POLLER: Kind(FaultScope.PROCESSES, 0.2, 5.0),
    Fault.KILL_ZYGOTE: Kind(FaultScope.PROCESSES),
    Fault.KILL_POLLER: Kind(FaultScope.PROCESSES),
    Fault.KILL_EXPORTER: Kind(FaultScope.PROCESSES, weight=3),
    Fault.STOP_MASTER: Kind(FaultScope.NODE, 0.5, 11.0),
    Fault.STOP_NODE: Kind(FaultScope.NODE, 0.5, 11.0),
    Fault.KILL_MASTER: Kind(FaultScope.NODE, 0.1, 9.0),
    Fault.KILL_NODE: Kind(FaultScope.NODE, 0.1, 9.0),
    Fault.TERM_NODE: Kind(FaultScope.NODE, 0.5, 2.0),
    Fault.CUT: Kind(FaultScope.LINK, weight=9),
    Fault.REFUSE: Kind(FaultScope.LINK, 0.2, 8.0),
    Fault.SILENCE: Kind(FaultScope.LINK, 0.2, 9.0),
    Fault.SILENCE_REPLIES: Kind(FaultScope.LINK, 0.2, 9.0),
    Fault.HOLD: Kind(FaultScope.LINK, 0.2, 9.0),
    Fault.DELAY: Kind(FaultScope.LINK, 1.0, 5.0),
    Fault.STALL: Kind(FaultScope.LINK, 1.0, 5.0),
    Fault.LOSE_REPLIES: Kind(FaultScope.LINK, 0.5, 3.0, weight=12),
    Fault.FLUSH_SCRIPTS: Kind(FaultScope.SERVER, 1.0, 4.0),
    Fault.KILL_CLIENTS: Kind(FaultScope.SERVER, 0.0, 2.0),
    Fault.PAUSE_WRITES: Kind(FaultScope.SERVER, 0.3, 8.0),
    Fault.SERVER_SLEEP: Kind(FaultScope.SERVER, 0.3, 8.0),
    Fault.KILL_SERVER: Kind(FaultScope.SERVER, 0.0, 7.0, weight=9),
    Fault.LONG_OUTAGE: Kind(FaultScope.SERVER, 11.0, 14.0, weight=2),
    Fault.FILL_MEMORY: Kind(FaultScope.SERVER, 1.0, 6.0, weight=9),
    Fault.DELETE_DOORBELLS: Kind(FaultScope.SERVER, 0.5, 2.0),
    Fault.DELETE_SERVED: Kind(FaultScope.SERVER, weight=3),
    Fault.DELETE_OWNERS: Kind(FaultScope.SERVER, weight=3),
    Fault.RESIZE: Kind(FaultScope.FILES, 2.0, 6.0),
    Fault.BAD_TOML: Kind(FaultScope.FILES, 0.5, 2.0, weight=3),
    Fault.BAD_IMPORT: Kind(FaultScope.FILES, 1.0, 3.0, weight=3),
    Fault.HUP_STORM: Kind(FaultScope.FILES, 0.5, 1.5, weight=3),
    Fault.SCALE: Kind(FaultScope.VERBS, 0.5, 4.0, weight=9),
    Fault.QUIET: Kind(FaultScope.VERBS, 0.3, 4.0),
    Fault.RESTART: Kind(FaultScope.VERBS),
    Fault.REPORT: Kind(FaultScope.VERBS, weight=3),
    Fault.PARTITION: Kind(FaultScope.HOST, 0.2, 11.0),
    Fault.LOSE_HOST: Kind(FaultScope.HOST, 0.1, 9.0),
    Fault.MOVE_SLOT: Kind(FaultScope.CLUSTER, 0.0, 4.0, weight=18),
    Fault.FAIL_OVER: Kind(FaultScope.CLUSTER, weight=12),
    Fault.UPGRADE: Kind(FaultScope.VERSION, 8.0, 12.0),
    Fault.ROLL_BACK: Kind(FaultScope.VERSION, 8.0, 12.0),
}


def _of(*places: FaultScope) -> tuple[Fault, ...]:
    return tuple(fault for fault, kind in KINDS.items() if kind.scope in places)


PROFILES: Final[dict[str, tuple[Fault, ...]]] = {
    "everything": _of(*(scope for scope in FaultScope if scope not in (*_OF_THREE_NODES, FaultScope.CLUSTER))),
    "processes": _of(FaultScope.PROCESSES, FaultScope.FILES),
    "nodes": _of(FaultScope.NODE),
    "network": _of(FaultScope.LINK),
    "server": _of(FaultScope.SERVER),
    "files": _of(FaultScope.FILES),
    "verbs": (*_of(FaultScope.VERBS), Fault.KILL_WORKER),
    "quiet": (),
    "cluster": _of(FaultScope.CLUSTER, FaultScope.PROCESSES, FaultScope.NODE, FaultScope.FILES, FaultScope.VERBS),
    "hosts": _of(*_OF_THREE_NODES),
    "versions": _of(FaultScope.VERSION),
}


def nodes_of(profile: str) -> tuple[str, ...]:
    """Return the names of the nodes of a run with this profile. There are three nodes if the faults affect hosts or
    versions, and two otherwise.
    """
    scopes = {KINDS[fault].scope for fault in PROFILES[profile]}
    return NODES if scopes.isdisjoint(_OF_THREE_NODES) else THREE_NODES


def is_in_cluster(profile: str) -> bool:
    """Whether the namespace of a run with this profile is in a cluster."""
    return any(KINDS[fault].scope is FaultScope.CLUSTER for fault in PROFILES[profile])


def has_hosts(profile: str) -> bool:
    """Whether each node of a run with this profile has its own network namespace."""
    return any(KINDS[fault].scope is FaultScope.HOST for fault in PROFILES[profile])
