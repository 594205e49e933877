"""The calls to Redis: owners registered before their worker exists, renewed while it lives, retired when it is gone.

A renewal tells each worker, in its slot, when it was *sent*: from then on counts how long it may hold tasks,
however late the answer came.
"""

import asyncio
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, Final, TypeVar

from rota.backoff import Backoff
from rota.child.slot_memory import SlotMemory
from rota.child.slots import boottime_ns
from rota.protocol.store import Command, Store
from rota.server.aio_connection import FIRST_RETRY_SECONDS, MOST_RETRY_SECONDS, AioConnection
from rota.server.server_errors import Refused, ServerError
from rota.telemetry import events, log
from rota_supervisor.master.core.effects import HeldLease, Recall, Register, RenewLeases, Retire
from rota_supervisor.master.core.events import Event, LeasesRenewed, OwnerRetired, OwnersRegistered
from rota_supervisor.master.effects.background import Background

OWNERS_A_CALL: Final = 100
MILLISECONDS: Final = 1000
RECALL_AGAIN_SECONDS: Final = 0.2  # after a call that failed

_T = TypeVar("_T")


class RedisCalls:
    """Carries out in the background what concerns the owners of this master, whose name in Redis is `node`."""

    def __init__(
        self,
        connection: AioConnection,
        store: Store,
        *,
        node: str,
        memory: SlotMemory,
        background: Background,
        happened: Callable[[Event], None],
    ) -> None:
        self._connection = connection
        self._store = store
        self._node = node
        self._memory = memory
        self._background = background
        self._happened = happened

    @property
    def handlers(self) -> Mapping[type, Callable[[Any], None]]:
        """Who carries out which effect."""
        start, keep = self._background.start, self._background.keep
        return {
            Register: lambda effect: keep(lambda: self._register(effect)),
            RenewLeases: lambda effect: start(self._renew(effect)),
            Retire: lambda effect: start(self._retire(effect)),
            Recall: lambda effect: start(self._recall(effect)),
        }

    # Owners

    async def _register(self, effect: Register) -> None:
        places = [f"{self._node}:{slot}" for slot, _ in effect.places]
        command = self._store.register(round(effect.lease_seconds * MILLISECONDS), places)
        owners, sent_ns = await self._through_outages("register", command)
        named = tuple((slot, nonce, owner) for (slot, nonce), owner in zip(effect.places, owners, strict=True))
        self._happened(OwnersRegistered(named, effect.lease_seconds, sent_ns))

    async def _retire(self, effect: Retire) -> None:
        """Until it is answered, the slot of the dead worker stays taken."""
        command = self._store.retire_exited(effect.owner, effect.blame, effect.settlements, effect.tiers)
        retired, _ = await self._through_outages("retire", command)
        self._happened(OwnerRetired(effect, retired))

    async def _through_outages(self, name: str, command: Command[_T]) -> tuple[_T, int]:
        """Repeat a call until it is answered; the answer, and when it was sent (ns)."""
        backoff = Backoff(FIRST_RETRY_SECONDS, MOST_RETRY_SECONDS)
        while True:
            sent_ns = boottime_ns()
            try:
                return await self._connection.run(command), sent_ns
            except ServerError as error:  # an outage is told by the connection's watch
                if isinstance(error, Refused):
                    log.logger().error(events.REDIS_REFUSED, call=name, error=str(error))
                await asyncio.sleep(backoff.next_seconds())

    # Leases

    async def _renew(self, effect: RenewLeases) -> None:
        """Each for as long as its worker was told, a hundred a call. What was renewed before a failure stays so."""
        lost: list[str] = []
        failed = True
        try:
            for lease_seconds, batch in batches_of(effect.held):
                lost += await self._renew_batch(lease_seconds, batch)
            await self._announce(effect)
            failed = False
        except ServerError:  # told by the connection's watch
            pass
        finally:  # whatever failed: leases that nobody renews any more end every worker
            self._happened(LeasesRenewed(tuple(lost), failed))

    async def _renew_batch(self, lease_seconds: float, batch: list[HeldLease]) -> tuple[str, ...]:
        sent_ns = boottime_ns()
        owners = [each.owner for each in batch]
        renewed = await self._connection.run(self._store.renew(round(lease_seconds * MILLISECONDS), owners))
        for each in batch:
            slot = self._memory.slot(each.slot)
            if each.owner not in renewed.lost and slot.nonce == each.nonce:
                slot.renewed_ns = sent_ns
        return tuple(renewed.lost)

    async def _announce(self, effect: RenewLeases) -> None:
        """Publish that this master lives and which queues it serves."""
        heartbeat = json.dumps({"pid": os.getpid()}, separators=(",", ":")).encode()
        milliseconds = round(effect.lease_seconds * MILLISECONDS)
        await self._connection.run(self._store.announce(self._node, heartbeat, milliseconds, list(effect.queues)))

    # Claims

    async def _recall(self, effect: Recall) -> None:
        """Call until there is an answer, or the task has ended that held the others up."""
        child = effect.child
        slot = self._memory.slot(child.slot)
        slot.recalled = effect.number  # before it is sent
        call = self._store.recall(effect.owner, effect.entry, effect.tiers, effect.finished)
        while slot.nonce == child.nonce and slot.held_up_by == effect.number:
            try:
                recalled = await self._connection.run(call)
            except ServerError:  # told by the connection's watch
                await asyncio.sleep(RECALL_AGAIN_SECONDS)
                continue
            if recalled:
                log.logger().debug(events.CLAIM_RECALLED, owner=effect.owner, slot=child.slot, tasks=recalled)
            return


def batches_of(held: Iterable[HeldLease]) -> Iterator[tuple[float, list[HeldLease]]]:
    """The owners of each call, with their lease: after a reload workers of the generation before have the old one."""
    by_lease = sorted(held, key=attrgetter("lease_seconds"))
    for lease_seconds, of_lease in groupby(by_lease, key=attrgetter("lease_seconds")):
        while batch := list(islice(of_lease, OWNERS_A_CALL)):
            yield lease_seconds, batch
