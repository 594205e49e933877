"""The owners' side of the children: each worker's owner is registered first, renewed, and retired at the end."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any, Final

from rota.child.slot_memory import SlotMemory
from rota.protocol.replies import Retired
from rota.protocol.wire import Packed
from rota.server.server_errors import ServerError
from rota.telemetry import events, log
from rota_supervisor.config.model import Config, Restarts
from rota_supervisor.layout import Role
from rota_supervisor.master.children.child import Child, State
from rota_supervisor.master.children.fleet import Fleet
from rota_supervisor.master.deaths.account import Death
from rota_supervisor.master.owners.leases import Held, Leases, Obituary, obituary_of
from rota_supervisor.master.shown.gauges import Gauges

_RENEWALS_A_LEASE: Final = 2  # at least, of whatever lease an owner has: its worker's fence goes up after nine tenths
_TRIES_A_PERIOD: Final = 5  # after a renewal that failed, the next is not left for a whole period
_LONGEST_PAUSE_SECONDS: Final = 1.0


class Owners:
    """Runs beside the loop; `changed` is called when a slot is free again."""

    def __init__(
        self, leases: Leases, fleet: Fleet, memory: SlotMemory, gauges: Gauges, changed: Callable[[], None]
    ) -> None:
        self._leases = leases
        self._fleet = fleet
        self._memory = memory
        self._gauges = gauges
        self._changed = changed
        self._next_renewal_seconds = 0.0
        self._hurry = asyncio.Event()

    async def register(self, children: list[Child], lease_seconds: float, registered: Callable[[Child], None]) -> None:
        """Give the children owners and their slots to them; `registered` is told each one."""
        names, sent_ns = await self._leases.register(children, lease_seconds)
        for child, owner in zip(children, names, strict=True):
            if child.state is not State.REGISTERING:
                continue  # abandoned meanwhile: the owner expires, empty
            slot = self._memory.slot(child.slot)
            slot.begin(child.nonce)
            slot.renewed_ns = sent_ns
            child.owner = owner
            registered(child)
        if lease_seconds / _RENEWALS_A_LEASE < self._next_renewal_seconds:
            self._hurry.set()  # after a reload that made it shorter; the next renewal was to be too late for it

    async def keep_leases(self, config: Callable[[], Config], taken_queues: Callable[[], list[str]]) -> None:
        """Renew, and announce the queues that are taken here, for ever."""
        while True:
            lease = config().lease
            try:
                held = self._held()
                await self._leases.renew(held)
                await self._leases.announce(taken_queues(), lease.seconds, {"pid": os.getpid()})
                seconds = min([lease.renew_seconds, *(each.lease_seconds / _RENEWALS_A_LEASE for each in held)])
            except ServerError:  # told by the connection's watch
                seconds = min(_LONGEST_PAUSE_SECONDS, lease.renew_seconds / _TRIES_A_PERIOD)
            await self._rest(seconds)

    async def _rest(self, seconds: float) -> None:
        self._next_renewal_seconds = seconds
        try:
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
        except TimeoutError:
            return
        self._hurry.clear()

    def _held(self) -> list[Held]:
        living = (child for child in self._fleet.of(Role.WORKER) if child.owner and child.state is not State.EXITED)
        return [Held(child.owner, child.lease_seconds, self._memory.slot(child.slot)) for child in living]

    def retire(self, death: Death, limits: Restarts, tiers: Packed) -> Coroutine[Any, Any, None]:
        """Read the slot of a dead worker now; what is answered gives back what it held, when Redis takes it."""
        child = death.child
        return self._retire(child, obituary_of(death, self._memory.slot(child.slot), limits, tiers))

    async def _retire(self, child: Child, obituary: Obituary) -> None:
        retired = await self._leases.retire(obituary)
        self.free(child)
        self._gauges.count_retired(retired, obituary.task_name)
        _tell(child, obituary, retired)
        self._changed()

    def free(self, child: Child) -> None:
        """Let the slot be used again; a late process of this life finds that it is not its own."""
        self._memory.slot(child.slot).begin(0)
        self._fleet.forget(child)


def _tell(child: Child, obituary: Obituary, retired: Retired) -> None:
    ran = {task_id for task_id, _ in obituary.blame.ran}
    for entry in (*retired.requeued, *retired.dead):
        fields: dict[str, object] = {"task_id": entry.id, "queue": entry.queue, "owner": child.owner}
        if entry.id in ran:
            fields |= {"task": obituary.task_name, "cause": obituary.blame.setback.label}
        fields["crashes"] = entry.crashes
        if entry in retired.dead:
            log.logger().error(events.TASK_DEAD, **fields, reason="crashed")
        else:
            log.logger().warning(events.TASK_RECOVERED, **fields)
