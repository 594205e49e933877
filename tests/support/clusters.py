"""A Redis Cluster of three primaries and three replicas on free ports of this machine, for tests."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

import redis
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.retry import Retry

from rota.protocol.keys import Keys, pattern_of_all
from support.servers import Server, free_port
from support.waiting import until

PRIMARIES: Final = 3
NODE_TIMEOUT_SECONDS: Final = 1.5  # after this time without a reply, the other nodes consider a node to be down
SLOTS: Final = 16384
MOVED_AT_ONCE: Final = 10
_REPLY_SECONDS: Final = 2.0  # a frozen node does not reply at all
_FAILOVER_SECONDS: Final = 0.5
_WAIT_MILLISECONDS: Final = 200
_CONFIG: Final = {
    "cluster_enabled": "yes",
    "cluster_node_timeout": f"{NODE_TIMEOUT_SECONDS * 1000:.0f}",
    "repl_diskless_sync_delay": "0",
    "repl_ping_replica_period": "1",
}


class Cluster:
    """A running cluster. The slots are divided evenly between the primaries. `options` are configuration lines of all
    nodes.
    """

    def __init__(self, binary: str, folder: Path, **options: str) -> None:
        self._binary = binary
        self._folder = folder
        self._options = {**_CONFIG, "appendonly": "yes", **options}
        self.nodes: list[Server] = []

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        for number in range(2 * PRIMARIES):
            self.nodes.append(self._make_node(number).start())
        primaries, replicas = self.nodes[:PRIMARIES], self.nodes[PRIMARIES:]
        for number, node in enumerate(primaries):
            first, end = number * SLOTS // PRIMARIES, (number + 1) * SLOTS // PRIMARIES
            self.do(node, "CLUSTER", "ADDSLOTSRANGE", first, end - 1)
            self.do(node, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            place = (node.addresses[0], node.port, node.options["cluster_port"])
            self.do(self.nodes[0], "CLUSTER", "MEET", *place)
        until(lambda: all(self._known_nodes(node) == len(self.nodes) for node in self.nodes), "nodes that have met")
        for primary, replica in zip(primaries, replicas, strict=True):
            self.do(replica, "CLUSTER", "REPLICATE", self.id_of(primary))
        self.wait_until_complete()

    def _make_node(self, number: int) -> Server:
        folder = self._folder / f"node-{number}"
        folder.mkdir(parents=True)
        bus = str(free_port())  # the default, the port plus 10,000, may be in use
        return Server(self._binary, folder, cluster_port=bus, **self._options)

    # Inspection

    @property
    def url(self) -> str:
        """The URL with which applications and fleets connect. It names three nodes."""
        return "redis+cluster://" + ",".join(f"{node.addresses[0]}:{node.port}" for node in self.nodes[:PRIMARIES])

    def do(self, node: Server, *command: str | int) -> Any:
        """Run a command on a node."""
        with self.client_of(node) as asking:
            return asking.execute_command(*command)

    def client_of(self, node: Server) -> "redis.Redis":
        """Return a client of one node, which follows no redirection and repeats nothing."""
        once = Retry(NoBackoff(), 0)
        return redis.Redis(
            node.addresses[0], node.port, socket_timeout=_REPLY_SECONDS, retry=once, decode_responses=True
        )

    def state_of(self, node: Server) -> dict[str, str]:
        """Return the reply of a node to CLUSTER INFO, or {} if the node does not reply."""
        try:
            with self.client_of(node) as asking:
                state: dict[str, str] = asking.execute_command("CLUSTER INFO")
        except redis.RedisError:
            return {}
        return state

    def id_of(self, node: Server) -> str:
        """Return the id of a node within the cluster."""
        return str(self.do(node, "CLUSTER", "MYID"))

    def role_of(self, node: Server) -> str:
        """Return the role that a node reports, or "" if it does not reply."""
        try:
            return str(self.do(node, "ROLE")[0])
        except redis.RedisError:
            return ""

    def slot_of(self, namespace: str) -> int:
        """Return the slot of a namespace, as redis-py computes it."""
        return key_slot(Keys(namespace).tasks.encode())

    def owner_of(self, namespace: str) -> Server:
        """Return the primary that has the slot of a namespace, according to itself."""
        slot = self.slot_of(namespace)
        found = until(lambda: next((node for node in self.nodes if self._has_slot(node, slot)), None), "an owner")
        assert found is not None
        return found

    def replica_of(self, primary: Server) -> Server:
        """Return a replica of this primary."""
        replicas = self.do(primary, "ROLE")[2]
        return next(node for node in self.nodes if node.port == int(replicas[0][1]))

    def others(self, *nodes: Server) -> list[Server]:
        """Return the primaries except these."""
        return [node for node in self.nodes if node not in nodes and self.role_of(node) == "master"]

    def has_all_copies(self, primary: Server) -> bool:
        """Whether a replica of this primary has the data that the primary had at the time of the call."""
        try:
            own = next(first for first, _, port in self._slots_of(primary) if port == primary.port)
            with self.client_of(primary) as asking:
                asking.set(_key_in(own), "written")
                return bool(asking.wait(1, _WAIT_MILLISECONDS))
        except redis.RedisError:
            return False

    def wait_until_complete(self) -> None:
        """Wait until the cluster is up and every primary has a replica with all data."""
        until(lambda: all(self.state_of(node).get("cluster_state") == "ok" for node in self.nodes), "a cluster", 30)
        until(lambda: sum(self.role_of(node) == "slave" for node in self.nodes) == PRIMARIES, "replicas", 30)
        until(lambda: all(self.has_all_copies(node) for node in self.others()), "replicas that have all", 30)

    def _known_nodes(self, node: Server) -> int:
        return int(self.state_of(node).get("cluster_known_nodes", 0))

    def _has_slot(self, node: Server, slot: int) -> bool:
        if self.role_of(node) != "master" or self.state_of(node).get("cluster_state") != "ok":
            return False
        return any(first <= slot <= last and port == node.port for first, last, port in self._slots_of(node))

    def _slots_of(self, node: Server) -> list[tuple[int, int, int]]:
        """Return the first and the last slot of each range, and the port of its primary, as this node knows them."""
        return [(first, last, primary[1]) for first, last, primary, *_ in self.do(node, "CLUSTER", "SLOTS")]

    # Actions

    def move_slot(self, namespace: str, between: Callable[[], None] = lambda: None) -> Server:
        """Move the slot of a namespace to another primary, as `redis-cli --cluster reshard` does. `between` is called
        whenever some keys have moved. Returns the new owner.
        """
        move = self.slot_move(namespace)
        move.begin()
        between()
        while move.move_some():
            between()
        move.finish()
        return move.target

    def move_slot_as_a_whole(self, namespace: str) -> Server:
        """Move the slot of a namespace to another primary as Valkey 9 does: the target first copies the slot like a
        replica, and then takes it over with all keys at once. Returns the new owner.
        """
        slot = self.slot_of(namespace)
        source = self.owner_of(namespace)
        target = self.others(source)[0]
        self.do(source, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", self.id_of(target))
        until(lambda: self._has_slot(target, slot), "a slot that has moved as a whole", 30)
        return target

    def slot_move(self, namespace: str) -> "SlotMove":
        """Return a move of the slot of a namespace to another primary, which has not begun."""
        source = self.owner_of(namespace)
        return SlotMove(self, self.slot_of(namespace), source, self.others(source)[0])

    def wait_for_another(self, old: Server, namespace: str) -> Server:
        """Wait until another primary has the slot of a namespace, and return it."""

        def found() -> Server | None:
            slot = self.slot_of(namespace)
            return next((node for node in self.nodes if node is not old and self._has_slot(node, slot)), None)

        new = until(found, "a failover", 30)
        assert new is not None
        return new

    def fail_over(self, primary: Server) -> None:
        """Make the replica of a primary take over in an orderly way, as an operator does before the upgrade of a
        server. The request is repeated, because the other nodes may not agree to it at first.
        """
        replica = self.replica_of(primary)

        def has_taken_over() -> bool:
            if self.role_of(replica) == "slave":
                self.do(replica, "CLUSTER", "FAILOVER")
            return self.role_of(replica) == "master"

        until(has_taken_over, "a replica that takes over", 30, pause_seconds=_FAILOVER_SECONDS)

    def freeze(self, node: Server) -> None:
        """Stop a node with SIGSTOP. The others then consider it to be down, as if it were partitioned from them."""
        os.kill(node.pid, signal.SIGSTOP)

    def thaw(self, node: Server) -> None:
        """Let a frozen node continue."""
        os.kill(node.pid, signal.SIGCONT)

    def erase(self, namespace: str) -> None:
        """Remove all keys of a namespace."""
        with self.client_of(self.owner_of(namespace)) as asking:
            for key in asking.scan_iter(pattern_of_all(Keys(namespace)), count=1000):
                asking.unlink(key)

    def stop(self) -> None:
        """Kill all nodes, whatever their state."""
        for node in self.nodes:
            node.stop()


class SlotMove:
    """A move of a slot from the node `source` to the node `target`. Call `begin`, `move_some` any number of times, and
    `finish`.
    """

    def __init__(self, cluster: Cluster, slot: int, source: Server, target: Server) -> None:
        self.source = source
        self.target = target
        self._cluster = cluster
        self._slot = slot

    def begin(self) -> None:
        """Open the slot at both nodes. The source then redirects commands on keys that it does not have. Shortly after
        a failover, each node may still consider the other one to be a replica, and refuse.
        """
        until(lambda: self._is_open(self.target, "IMPORTING", self.source), "a node that imports the slot")
        until(lambda: self._is_open(self.source, "MIGRATING", self.target), "a node that migrates the slot")

    def _is_open(self, node: Server, state: str, other: Server) -> bool:
        try:
            self._cluster.do(node, "CLUSTER", "SETSLOT", self._slot, state, self._cluster.id_of(other))
        except redis.ResponseError:
            return False
        return True

    def move_some(self) -> bool:
        """Move a few keys. Returns whether there were any."""
        keys = self._cluster.do(self.source, "CLUSTER", "GETKEYSINSLOT", self._slot, MOVED_AT_ONCE)
        if keys:
            self._cluster.do(
                self.source, "MIGRATE", self.target.addresses[0], self.target.port, "", 0, 5000, "KEYS", *keys
            )
        return bool(keys)

    def finish(self) -> None:
        """Move the remaining keys, and close the slot at all primaries."""
        while self.move_some():
            pass
        new = self._cluster.id_of(self.target)
        for node in (self.target, self.source, *self._cluster.others(self.target, self.source)):
            self._cluster.do(node, "CLUSTER", "SETSLOT", self._slot, "NODE", new)


def _key_in(slot: int) -> str:
    """Return a key in this slot."""
    numbers = iter(range(10 * SLOTS))
    return next(key for key in map(str, numbers) if key_slot(key.encode()) == slot)
