"""A simulated master. The product's core decides when to renew leases and what to announce, and the product's code
sends it to Redis. Only the children are records without processes.
"""

import asyncio
from typing import Any, Final

from rota.child.child_process import boottime_seconds
from rota.child.slot_memory import SharedText, SlotMemory
from rota.protocol.schedule_store import ScheduleStore
from rota_supervisor.config.loader import Loaded
from rota_supervisor.layout import EXPORTER_SLOT, RANGES, Role
from rota_supervisor.master.core import effects as do
from rota_supervisor.master.core import master_events, redis_events
from rota_supervisor.master.core.children import ChildState
from rota_supervisor.master.core.process_settings import Surroundings
from rota_supervisor.master.core.state import Declarations, MasterState
from rota_supervisor.master.effects.background import Background
from rota_supervisor.master.effects.master_redis import MILLISECONDS, RedisCalls, RedisWatch, ScheduleDeclarer
from rota_supervisor.master.effects.task_watch import Orders
from rota_supervisor.master_snapshot import NodeThroughput

# The master checks once per tick what is due, or earlier if the core requests it.
_TICK_SECONDS: Final = 1.0
_POOL: Final = "default"


class SimulatedMaster:
    """A master whose workers are all ready and idle. `tasks` are the names of the tasks that its code declares."""

    def __init__(self, name: str, loaded: Loaded, tasks: tuple[str, ...], memory: SlotMemory) -> None:
        self._state = state = MasterState.first(Surroundings(name, host=name), loaded, boottime_seconds())
        state.wanted.rollout = state.rollout.promote().commit()
        state.declarations = Declarations(state.rollout.in_force, {}, {}, tasks)
        state.listen_address = "0.0.0.0:9090"
        self._name = name
        self._memory = memory
        self._background = Background()
        self._redis = RedisWatch(state, self._happened)
        store = self._redis.store
        schedules = ScheduleStore(state.config.namespace)
        declaring = ScheduleDeclarer(self._redis.connection, schedules)
        self._calls = RedisCalls(
            self._redis.connection, store, name, memory, self._background, declaring, self._happened
        )
        self._orders = Orders(
            self._redis.parked,
            store.keys.orders(name),
            self._redis.works,
            state.children,
            memory,
            self._background,
            self._happened,
        )

    async def register(self) -> list[str]:
        """Register the owners of the workers, and return them. Raises ServerError."""
        config = self._state.config
        count = self._state.wanted.counts[_POOL]
        slots = RANGES[Role.WORKER][:count]
        names = [f"{self._name}:{slot}" for slot in slots]
        milliseconds = round(config.lease.seconds * MILLISECONDS)
        owners = await self._redis.connection.run(self._redis.store.register(milliseconds, names))
        for slot, owner in zip(slots, owners, strict=True):
            self._add_ready_worker(slot, owner)
        return list(owners)

    def _add_ready_worker(self, slot: int, owner: str) -> None:
        now = boottime_seconds()
        child = self._state.children.add(Role.WORKER, _POOL, self._state.rollout.in_force.number, slot, now)
        child.state = ChildState.READY  # the states before it belong to processes, which these workers do not have
        child.owner = owner
        child.lease_seconds = self._state.config.lease.seconds
        child.ready_at = now

    def start(self) -> None:
        """Begin the background work, and the renewals."""
        self._background.keep(self._redis.watch_eviction)
        self._background.keep(self._redis.probe_when_in_doubt)
        self._background.keep(self._orders.listen)
        self._background.keep(self._renew_forever)

    async def _renew_forever(self) -> None:
        while True:
            SharedText(self._memory.slot(EXPORTER_SLOT).spare).publish(_idle_throughput())
            for effect in redis_events.renew_when_due(self._state, boottime_seconds()):
                self._calls.handlers[do.RenewLeases](effect)
            await asyncio.sleep(min(_TICK_SECONDS, max(0.01, self._state.leases.due_at - boottime_seconds())))

    def _happened(self, event: master_events.Event) -> None:
        handle = _HANDLERS.get(type(event))
        if handle is None:
            asyncio.get_running_loop().call_exception_handler({"message": f"unexpected event: {event}"})
        else:
            handle(self._state, event, boottime_seconds())


_HANDLERS: Final[dict[type, Any]] = {
    master_events.RedisReplied: redis_events.redis_replied,
    master_events.RoundTripSeen: redis_events.round_trip_seen,
    master_events.LeasesRenewed: redis_events.leases_renewed,
    master_events.ClosedSeen: redis_events.closed_seen,
    master_events.EvictionPolicySeen: redis_events.eviction_policy_seen,
}


def _idle_throughput() -> bytes:
    return NodeThroughput(boottime_seconds(), 0.0, None, None, None).to_json()
