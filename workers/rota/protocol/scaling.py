"""The data that nodes exchange about pools whose number of workers follows their load. It consists of the node that
leads a pool, the loads of all nodes, the backlog, and the latest decision of the leader about the number of workers.
Loads and decisions are texts that the supervisor writes and reads. This module does not interpret them."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from rota.protocol.entry import MICROSECONDS
from rota.protocol.scripts import Raw, ScriptCall, Transitions
from rota.protocol.tiers import Domain, tier_args
from rota.protocol.wire import Arg, pack, text_of

NO_DECISION: Final = 0


class Backlog(NamedTuple):
    """The backlog of a queue with ready tasks. If `queue` is a pattern, the values are an estimate for several
    queues."""

    queue: str
    queues: int  # number of queues that are counted here
    ready: int  # number of ready tasks
    oldest_seconds: float  # time since the oldest of these tasks became ready
    running: int  # number of the queue's tasks that are running or prefetched
    is_open: bool  # whether the queue is neither paused nor closed by a condition


class ScalingReply(NamedTuple):
    """The state of one pool, which a node gets in reply to its report on the pool."""

    leader: str  # the node that leads the pool
    number: int  # number of the current decision; NO_DECISION if there is none
    decision: bytes  # text of the current decision; b"" if the caller already has it
    loads: Mapping[str, bytes]  # the loads of the other nodes, by node, if the caller leads the pool
    backlog: tuple[Backlog, ...]  # the pool's queues with ready tasks; empty unless the caller leads the pool


class PoolExchange(NamedTuple):
    """A node's report on one pool, and its request for the backlog."""

    pool: str
    load: bytes  # the load of the node
    known: int = NO_DECISION  # number of the decision that the node already has
    decision: bytes = b""  # text of a new decision, which is stored if the node leads the pool
    tiers: tuple[Domain, ...] | None = None  # the tiers of the pool if the node needs the backlog, otherwise None


class ScalingStore(Transitions):
    """The transitions of scaling in one namespace, each as a `ScriptCall`: see `rota.protocol.store`."""

    def exchange(self, node: str, ttl_ms: int, sent: PoolExchange) -> ScriptCall[ScalingReply]:
        """Store the load of a node, and return the state of the pool. Unless another node leads the pool, the node
        becomes or remains its leader. After `ttl_ms`, the load expires, and the node is no longer the leader."""
        tiers: Iterable[Arg] = () if sent.tiers is None else tier_args(sent.tiers)
        args: list[Arg] = [sent.pool, node, max(1, ttl_ms), sent.load, sent.known, sent.decision, *tiers]
        return self._call("scaling", pack(args), _parse_exchange)

    def withdraw(self, node: str, pool: str) -> ScriptCall[ScalingReply]:
        """Remove the load that a node reported for a pool. If the node leads the pool, it stops being the leader."""
        return self._call("scaling", pack((pool, node, 0, b"", NO_DECISION, b"")), _parse_exchange)


def _parse_exchange(raw: Raw) -> ScalingReply:
    leader, number, decision, loads, rows = raw
    by_node = {text_of(node): load for node, load in zip(loads[::2], loads[1::2], strict=True)}
    return ScalingReply(text_of(leader), int(number), decision, by_node, tuple(map(_backlog_of, rows)))


def _backlog_of(row: Raw) -> Backlog:
    queue, queues, ready, age_us, running, is_open = row
    return Backlog(text_of(queue), queues, ready, age_us / MICROSECONDS, running, bool(is_open))
