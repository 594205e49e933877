"""The data that nodes exchange through Redis to scale the pools whose number of workers is a range. The master measures
and publishes the load of each pool on this node. One node leads each pool: it decides the number of workers for the
whole fleet. The master of that node also reads the loads of the other nodes and the backlogs of the queues, from which
the next decision is made.

An exchange takes place twice a second, unless all pools have a fixed number of workers.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rota.child.slot_memory import SlotMemory
from rota.child.slots import Slot, boottime_ns
from rota.durations import NANOSECONDS
from rota.protocol.entry import MICROSECONDS
from rota.protocol.keys import served_as
from rota.protocol.scaling import NO_DECISION, Backlog, PoolExchange, ScalingReply, ScalingStore
from rota.protocol.tiers import QueueShare
from rota.server.aio_connection import AioConnection
from rota.server.server_errors import Refused, ServerError
from rota.telemetry import log, log_events
from rota.telemetry.log import OnceAMinute
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core.master_events import Event, PoolSeen, ScalingSeen
from rota_supervisor.master.core.scaling_inputs import NodeLoad, PoolInputs, QueueBacklog
from rota_supervisor.master.core.scaling_rule import Decision
from rota_supervisor.master.effects.background import Background
from rota_supervisor.master.effects.load_windows import (
    LONG_SECONDS,
    SHORT_SECONDS,
    PoolMeter,
    ProcessKey,
    WorkerReading,
)
from rota_supervisor.master.effects.node_resources import NodeResources, ResourceReader, private_bytes
from rota_supervisor.master.effects.scaling_texts import decision_in, load_in, text_of

MILLISECONDS: Final = 1000
UNKNOWN_START_SECONDS: Final = 1.0  # assumed start time of a worker until the first worker of the pool has started
_STARTS_KEPT: Final = 5
_LONG_NS: Final = round(LONG_SECONDS * NANOSECONDS)
_MEMORY_EVERY: Final = 4  # the memory of a worker is read only in every fourth round, because reading it is slow


class RunningTasks(NamedTuple):
    """The number and the total age of the tasks that the workers of a pool are running now."""

    running: int = 0  # the number of running tasks, not counting held tasks
    seconds: float = 0.0  # the total age of these tasks
    held: int = 0  # the number of tasks that have been running for longer than the long window


@dataclass(slots=True)
class PoolGauge:
    """The measurements of one pool on this node."""

    meter: PoolMeter = field(default_factory=PoolMeter)
    starts: deque[float] = field(default_factory=lambda: deque(maxlen=_STARTS_KEPT))  # how long each start took
    timed: frozenset[ProcessKey] = frozenset()  # the workers whose start time is in `starts`
    private: dict[ProcessKey, int] = field(default_factory=dict)  # last known private memory, in bytes
    rounds: int = 0

    def load(self, node: str, pool: do.ScaledPool, memory: SlotMemory, resources: NodeResources) -> NodeLoad:
        """Measure the load of the pool now."""
        at_ns = boottime_ns()
        slots = {(each.slot, each.nonce): memory.slot(each.slot) for each in pool.workers}
        slots = {key: slot for key, slot in slots.items() if slot.nonce == key[1] and slot.is_intact}
        loads = list(_read_loads(slots, at_ns))
        self.meter.add(loads, pool.first_crashes, at_ns / NANOSECONDS)
        self._note_starts(pool)
        self._read_memory(slots)
        serving = {(each.slot, each.nonce) for each in pool.workers if each.is_serving}
        running = running_in(slots.values(), at_ns)
        present = sum(each.is_serving or each.is_starting for each in pool.workers)
        most, limited_by = most_of(pool, present, resources, max(self.private.values(), default=0))
        return NodeLoad(
            node=node,
            short=self.meter.window(SHORT_SECONDS),
            long=self.meter.window(LONG_SECONDS),
            workers=len(serving),
            starting=sum(each.is_starting for each in pool.workers),
            free_slots=sum(each.task_slots - each.load.occupied for each in loads if each.key in serving),
            running_seconds=running.seconds,
            running=running.running,
            held=running.held,
            concurrency=pool.concurrency,
            least=pool.least,
            most=most,
            granted=min(pool.granted, most),
            limited_by=limited_by,
            start_seconds=sum(self.starts) / len(self.starts) if self.starts else UNKNOWN_START_SECONDS,
            is_blocked=pool.is_blocked,
            operator=pool.operator,
        )

    def _note_starts(self, pool: do.ScaledPool) -> None:
        for each in pool.workers:
            if each.start_seconds is not None and (each.slot, each.nonce) not in self.timed:
                self.starts.append(each.start_seconds)
        self.timed = frozenset((each.slot, each.nonce) for each in pool.workers if each.start_seconds is not None)

    def _read_memory(self, slots: Mapping[ProcessKey, Slot]) -> None:
        """In every fourth round, read the memory usage of one worker. The next worker is one whose memory has not been
        read yet. If there is none, it is the worker whose last reading is the oldest."""
        self.private = {key: size for key, size in self.private.items() if key in slots}
        self.rounds += 1
        pids = {key: slot.pid for key, slot in slots.items() if slot.pid > 0}
        key = next((each for each in pids if each not in self.private), next(iter(self.private), None))
        if self.rounds % _MEMORY_EVERY == 1 and key is not None and key in pids:
            self.private.pop(key, None)
            self.private[key] = private_bytes(pids[key])


def _read_loads(slots: Mapping[ProcessKey, Slot], at_ns: int) -> Iterator[WorkerReading]:
    for key, slot in slots.items():
        load = slot.load.read(slot.concurrency, at_ns)
        if load is not None:
            yield WorkerReading(key, load, slot.concurrency)


def running_in(slots: Iterable[Slot], at_ns: int) -> RunningTasks:
    """Return the number and the total age of the tasks that these workers are running. Tasks that have been running for
    longer than the long window are only counted, as `held`."""
    ages = [at_ns - task.started_ns for slot in slots for task in slot.running_times()]
    ages = [age for age in ages if 0 <= age <= at_ns]  # A task may have overwritten its start time.
    recent = [age for age in ages if age <= _LONG_NS]
    return RunningTasks(len(recent), sum(recent) / NANOSECONDS, len(ages) - len(recent))


def most_of(pool: do.ScaledPool, present: int, resources: NodeResources, private: int) -> tuple[int, str]:
    """Return how many workers the pool can have on this node at most, and the resource that limits this number:
    "memory", "cpu", or "" if only the configuration limits it. `present`: how many workers the pool has on this node
    now. `private`: how many bytes the largest worker needs, or 0 if this is not known."""
    limits = [(pool.most, "")]
    if resources.is_cpu_busy:
        limits.append((max(present, pool.least), "cpu"))
    if private and resources.free_bytes is not None:
        limits.append((max(present + resources.free_bytes // private, pool.least), "memory"))
    return min(limits, key=lambda limit: limit[0])


@dataclass(slots=True)
class KnownDecision:
    """The last decision about how many workers a pool has in the whole fleet, and whether this node leads the pool,
    which means that it makes the decisions. Both are taken from the last reply of Redis."""

    leads: bool = False
    number: int = NO_DECISION
    decision: Decision | None = None


@dataclass(slots=True, eq=False, repr=False)
class ScalingExchange:
    """The exchange with the other nodes about scaling: each node reports the load of its workers, and the leader of a
    pool decides the number of workers. The calls run in the background over the master's connection. `node`: the name
    of this node in Redis."""

    _connection: AioConnection
    _store: ScalingStore
    _node: str
    _memory: SlotMemory
    _background: Background
    _happened: Callable[[Event], None]
    _resources: ResourceReader = field(default_factory=ResourceReader)
    _gauges: dict[str, PoolGauge] = field(default_factory=dict)
    _known: dict[str, KnownDecision] = field(default_factory=dict)
    _rarely: OnceAMinute = field(default_factory=OnceAMinute)

    def start(self, effect: do.ExchangeScaling) -> None:
        """Measure the load now, then exchange it in the background."""
        names = {pool.pool for pool in effect.pools}
        gone = self._gauges.keys() - names
        self._gauges = {name: self._gauges.get(name) or PoolGauge() for name in names}
        self._known = {name: self._known.get(name) or KnownDecision() for name in names}
        resources = self._resources.read(effect.max_cpu) if names else NodeResources()
        loads = {
            pool.pool: self._gauges[pool.pool].load(self._node, pool, self._memory, resources) for pool in effect.pools
        }
        self._background.start(self._exchange(effect, loads, sorted(gone)))

    async def _exchange(self, effect: do.ExchangeScaling, loads: Mapping[str, NodeLoad], gone: list[str]) -> None:
        """Exchange the loads and decisions of one pool after another. If the server refuses the call for one pool, the
        other pools are not affected."""
        seen: dict[str, PoolSeen] = {}
        failed = True
        try:
            for name in gone:
                await self._connection.run(self._store.withdraw(self._node, name))
            for pool in effect.pools:
                found = await self._exchange_pool(pool, loads[pool.pool], effect.lease_seconds)
                if found is not None:
                    seen[pool.pool] = found
            failed = False
        except ServerError:  # The connection's watch has already reported it.
            pass
        finally:  # The core starts another exchange only when this event arrives.
            self._happened(ScalingSeen(seen, failed))

    async def _exchange_pool(self, pool: do.ScaledPool, load: NodeLoad, lease_seconds: float) -> PoolSeen | None:
        known = self._known[pool.pool]
        decision = text_of(pool.publish) if pool.publish is not None and known.leads else b""
        try:
            reply = await self._call(pool, load, lease_seconds, decision, asks_backlog=known.leads)
            if reply.leader == self._node and not known.leads:  # This node has just become the leader of the pool.
                self._note(known, reply)
                reply = await self._call(pool, load, lease_seconds, b"", asks_backlog=True)
        except Refused as error:
            if self._rarely.is_due(pool.pool):
                log.logger().error(log_events.REDIS_REFUSED, call="scaling", error=str(error))
            return None
        self._note(known, reply)
        return PoolSeen(load, reply.leader, known.decision, inputs_of(pool, load, reply) if known.leads else None)

    async def _call(
        self, pool: do.ScaledPool, load: NodeLoad, lease_seconds: float, decision: bytes, *, asks_backlog: bool
    ) -> ScalingReply:
        known = self._known[pool.pool]
        tiers = pool.tiers if asks_backlog else None
        sent = PoolExchange(pool.pool, text_of(load), known.number, decision, tiers)
        return await self._connection.run(self._store.exchange(self._node, round(lease_seconds * MILLISECONDS), sent))

    def _note(self, known: KnownDecision, reply: ScalingReply) -> None:
        known.leads = reply.leader == self._node
        if reply.number != known.number:
            known.number = reply.number
            known.decision = decision_in(reply.decision)


def inputs_of(pool: do.ScaledPool, load: NodeLoad, reply: ScalingReply) -> PoolInputs:
    """Return the inputs of the next decision about the pool: the load of this node, the loads of the other nodes, and
    the backlogs of the queues. All but the load of this node are in the reply."""
    others = (load_in(text, node) for node, text in sorted(reply.loads.items()))
    nodes = (load, *(other for other in others if other is not None))
    return PoolInputs(pool.pool, nodes, tuple(backlog_rows(pool, reply.backlog)))


def backlog_rows(pool: do.ScaledPool, rows: Iterable[Backlog]) -> Iterator[QueueBacklog]:
    """Yield the backlog of each queue of this pool, together with the queue's limits and lag objective. A row can stand
    for several queues that match one pattern. Its limits are then the sum of the limits of these queues."""
    shares = {share.name: share for tier in pool.tiers for share in tier.queues}
    patterns = [name for name, share in shares.items() if share.is_pattern]
    for row in rows:
        name = row.queue if row.queue in shares else served_as(row.queue, patterns)
        share = shares.get(name or "")
        objective = pool.objectives.get(name or "")
        if share is not None and objective is not None:
            yield QueueBacklog(
                row.queue,
                row.ready,
                row.oldest_seconds,
                row.running,
                row.is_open,
                share.cap * row.queues,
                rate_of(share) * row.queues,
                objective.seconds,
                objective.target,
            )


def rate_of(share: QueueShare) -> float:
    """Return how many tasks of a queue may start per second, or infinity if the queue has no rate."""
    return MICROSECONDS / share.interval_us if share.interval_us else math.inf
