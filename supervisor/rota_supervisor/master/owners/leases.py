"""Owners and their leases: registered before their worker exists, renewed while it lives, retired when it is gone.

A renewal tells each worker, in its slot, when it was *sent*: from then on counts how long it may hold tasks,
however late the answer came.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby, islice
from operator import attrgetter
from typing import Final

from rota.child.slots import Slot, boottime_ns
from rota.protocol.replies import Retired
from rota.protocol.store import Blame, Store
from rota.protocol.wire import Packed, packed_in
from rota.server.aio_connection import FIRST_RETRY_SECONDS, MOST_RETRY_SECONDS, AioConnection
from rota.server.backoff import Backoff
from rota.server.server_errors import Refused, ServerError
from rota.telemetry import events, log
from rota_supervisor.config.model import Restarts
from rota_supervisor.master.children.child import Child
from rota_supervisor.master.deaths.account import Death, epitaph_of, setback_of

OWNERS_A_CALL: Final = 100
MILLISECONDS: Final = 1000


@dataclass(frozen=True, slots=True)
class Held:
    """A living owner: its name, the lease by which its worker fences itself, and where that reads of renewals."""

    owner: str
    lease_seconds: float
    slot: Slot


@dataclass(frozen=True, slots=True)
class Obituary:
    """All that retiring a dead worker takes. `task_name`: the task that ran, "" when none did."""

    owner: str
    task_name: str
    blame: Blame
    settlements: Packed
    tiers: Packed


def obituary_of(death: Death, slot: Slot, limits: Restarts, tiers: Packed) -> Obituary:
    """What the slot of a dead worker says: the outcomes it had finished, and the task that ran."""
    task = death.scene.task
    ran: tuple[tuple[str, bytes], ...] = ()
    if task is not None and death.is_task_to_blame:
        ran = ((task.id, epitaph_of(death, datetime.now(UTC))),)
    blame = Blame(ran, crash_limit=limits.crash_limit, loss_limit=limits.loss_limit, setback=setback_of(death))
    return Obituary(death.child.owner, task.name if task is not None else "", blame, packed_in(*slot.outcomes()), tiers)


def batches_of(held: Iterable[Held]) -> Iterator[tuple[float, list[Held]]]:
    """The owners of each call, with their lease: after a reload workers of the generation before have the old one."""
    by_lease = sorted(held, key=attrgetter("lease_seconds"))
    for lease_seconds, of_lease in groupby(by_lease, key=attrgetter("lease_seconds")):
        while batch := list(islice(of_lease, OWNERS_A_CALL)):
            yield lease_seconds, batch


class Leases:
    """The owners of this master. `lost` is told each owner whose lease was found to be lost, once."""

    def __init__(self, connection: AioConnection, store: Store, node: str, lost: Callable[[str], None]) -> None:
        self._connection = connection
        self._store = store
        self._node = node
        self._lost = lost
        self._known_lost: set[str] = set()

    async def register(self, children: list[Child], lease_seconds: float) -> tuple[list[str], int]:
        """Register an owner for each child, through outages; answers their names and when it was sent (ns)."""
        places = [f"{self._node}:{child.slot}" for child in children]
        command = self._store.register(round(lease_seconds * MILLISECONDS), places)
        backoff = Backoff(FIRST_RETRY_SECONDS, MOST_RETRY_SECONDS)
        while True:
            sent_ns = boottime_ns()
            try:
                return await self._connection.run(command), sent_ns
            except ServerError as error:
                _say_refused("register", error)
                await asyncio.sleep(backoff.next_seconds())

    async def renew(self, held: Iterable[Held]) -> None:
        """Renew all leases, each for as long as its worker was told, a hundred a call.

        Raises ServerError; what was renewed before it stays so.
        """
        for lease_seconds, batch in batches_of(held):
            sent_ns = boottime_ns()
            owners = [each.owner for each in batch]
            renewed = await self._connection.run(self._store.renew(round(lease_seconds * MILLISECONDS), owners))
            for each in batch:
                if each.owner not in renewed.lost:
                    each.slot.renewed_ns = sent_ns
            self._tell_lost(renewed.lost)

    def _tell_lost(self, owners: Iterable[str]) -> None:
        for owner in owners:
            if owner not in self._known_lost:
                self._known_lost.add(owner)
                self._lost(owner)

    async def retire(self, obituary: Obituary) -> Retired:
        """Give back what a dead owner held, through outages: until then its slot stays taken."""
        command = self._store.retire_exited(obituary.owner, obituary.blame, obituary.settlements, obituary.tiers)
        self._known_lost.discard(obituary.owner)
        backoff = Backoff(FIRST_RETRY_SECONDS, MOST_RETRY_SECONDS)
        while True:
            try:
                return await self._connection.run(command)
            except ServerError as error:
                _say_refused("retire", error)
                await asyncio.sleep(backoff.next_seconds())

    async def announce(self, queues: list[str], lease_seconds: float, heartbeat: dict[str, object]) -> None:
        """Publish that this master lives and which queues it serves. Raises ServerError."""
        text = json.dumps(heartbeat, separators=(",", ":")).encode()
        await self._connection.run(self._store.announce(self._node, text, round(lease_seconds * MILLISECONDS), queues))


def _say_refused(what: str, error: ServerError) -> None:
    """An outage is told elsewhere; a refusal needs a person, as when a permission is missing."""
    if isinstance(error, Refused):
        log.logger().error(events.REDIS_REFUSED, call=what, error=str(error))
